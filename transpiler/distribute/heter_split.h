#pragma once

#include <string>
#include <vector>

#include "framework/base/status.h"
#include "framework/op.h"
#include "framework/program.h"

namespace millrace::transpiler {

/// Ops of a training program that a heter worker runs together, in one call of a trainer.
struct HeterStage {
  std::string message;               ///< names the stage by its number and a digest of its ops
  std::vector<Op*> ops;              ///< in the order of the program
  std::vector<std::string> inputs;   ///< vars that the stage reads before it writes them
  std::vector<std::string> outputs;  ///< vars of the stage that are used outside of it
};

/// A training program divided by the op attribute `op_device` into the ops of trainers and those of
/// heter workers. Trainer and worker take turns: `trainer[0]`, `worker[0]`, `trainer[1]`, ...;
/// there is one list of ops of trainers more than there are stages.
///
/// Ops of heter workers are the forward and backward ops of block 0 whose op_device is neither
/// empty nor a CPU; sums of gradients without op_device belong to the ops whose results they add.
/// A heter worker keeps nothing between calls: parameters and other persistable vars are inputs of
/// the stages that read them, and outputs of those that write them.
struct HeterSplit {
  std::vector<std::vector<Op*>> trainer;
  std::vector<HeterStage> worker;
};

/// Divides a program. Every op runs in the earliest turn that keeps the order of reads and writes.
/// The result points into the program.
/// \param returned  vars of stages that are outputs as well, because callers fetch them; the loss
///                  always is one
/// Errors: kInvalidArgument for a program without ops of heter workers, and for a var in `returned`
/// that no stage writes; kUnimplemented, with the op, for several devices, ops with blocks,
/// lookups of tables that stay on servers, and vars that are neither tensors nor selected rows.
StatusOr<HeterSplit> split_by_device(const Program& main, const std::vector<std::string>& returned);

/// Removes the slots ReserveSpace of batch_norm and its gradient, which may be in different
/// processes: the original's GPU kernels pass a work space through it, none of ours does.
void drop_work_space(Op& op);

}  // namespace millrace::transpiler

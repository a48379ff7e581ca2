#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "executor/collective/trainer_link.h"
#include "executor/parallel/strategies.h"
#include "framework/base/status.h"
#include "framework/program.h"
#include "transpiler/pipeline.h"

namespace millrace::gpu {
class Context;
}

namespace millrace::executor {

class ParallelExecutor;

/// All options of a ParallelExecutor.
struct ParallelOptions {
  bool use_cuda = false;  ///< must agree with `gpus` if set
  int devices = 1;        ///< CPU devices, CPU_NUM of the original; or the number of `gpus`
  /// The GPU of each device, all different; empty: the devices are CPU devices. A program whose
  /// startup program has run on a GPU finds its values on the first one.
  std::vector<std::shared_ptr<gpu::Context>> gpus;
  std::string loss_name;  ///< needed for programs that train
  /// An executor whose variables are used; it must have run once. The scope argument is then
  /// ignored.
  const ParallelExecutor* share_vars_from = nullptr;
  ExecutionStrategy exec_strategy;
  BuildStrategy build_strategy;
  SplitRule split = SplitRule::kFloor;
  bool optimize = true;        ///< programs are rewritten to run faster (executor/optimize.h)
  bool bf16_products = false;  ///< as in ExecutorOptions
  bool debug_memory = false;   ///< as in ExecutorOptions
  uint64_t seed = 0;  ///< initial state of random numbers; each device has its own sequence
  TrainerLink* trainers = nullptr;  ///< the other processes, for num_trainers > 1
  /// The same for values in the memory of the only GPU of each process (collective/device_group.h),
  /// which then sums dense gradients there; null: they are summed in process memory.
  TrainerLink* trainers_on_gpu = nullptr;
  int64_t wait_timeout_ms = 600'000;  ///< how long a device waits for the others
};

/// Checks fields against each other and against the program. Errors: kInvalidArgument naming the
/// field; kUnimplemented for options that no build supports.
Status check_options(const ParallelOptions& options, const Program& program);

/// Lists the fields of the strategies that have no effect, one line each.
std::vector<std::string> option_remarks(const ParallelOptions& options);

/// The passes that turn an already optimized program into the program of one device.
/// \param keep  names of vars whose value is needed after a run, or differs between devices
transpiler::Pipeline device_pipeline(const ParallelOptions& options, int device,
                                     const std::vector<std::string>& keep);

}  // namespace millrace::executor

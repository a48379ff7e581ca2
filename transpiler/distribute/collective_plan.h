#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "framework/base/status.h"
#include "framework/block.h"
#include "framework/program.h"
#include "transpiler/distribute_config.h"
#include "transpiler/pass.h"

namespace millrace::transpiler {

/// What the passes of collective mode need to know about the job. Immutable while they run.
struct CollectivePlan final : Facts {
  int64_t rank = 0;
  int64_t rings = 1;  ///< communicators; collectives are assigned to them round-robin
  std::vector<std::string> endpoints;
  std::vector<std::string> others;  ///< all endpoints except the current one
  std::string current_endpoint;
  bool many_devices = false;  ///< each process has several devices (single_process_multi_thread)
  int64_t device_count = 0;   ///< local GPUs; communicators are set up only where there are some
  /// Parameters of the startup program in order of creation, tables included.
  std::vector<std::string> parameters;
  /// Parameters that live on several machines (tables of is_distributed lookups): never reduced.
  std::set<std::string> tables;
  int64_t fuse_allreduce = 1;
  /// Number of machines that reduce with each other: all endpoints, or distinct hosts in
  /// single_process_multi_thread.
  int64_t ranks = 1;

  [[nodiscard]] bool is_table(const std::string& name) const { return tables.count(name) != 0; }
};

/// Builds the plan. Errors: those of transpile_collective().
StatusOr<CollectivePlan> plan_collective(const Program& main, const Program& startup,
                                         const DistributeTranspilerConfig& config,
                                         const TranspileArguments& arguments);

/// One parameter and the gradient that a backward op computes for it.
struct GradPair {
  std::string param;
  std::string grad;
};

/// The (param, grad) pairs in op_role_var of a backward op; empty if the op is not a backward op or
/// has no pairs.
/// Errors: kInvalidProgram with the op's location for a list of odd length or an undeclared var.
StatusOr<std::vector<GradPair>> backward_pairs(const Op& op);

/// A backward op and the pairs whose gradients it computes, at least one.
struct PairsOfOp {
  Op* op = nullptr;
  std::vector<GradPair> pairs;
};
/// All of them in a block, from its last op back. Errors: those of backward_pairs().
StatusOr<std::vector<PairsOfOp>> pairs_from_last(Block& block);

/// Checks that some backward op lists the gradient of every update of the block in its op_role_var:
/// only listed gradients are reduced.
/// Errors: kInvalidProgram with the location of an update whose gradient is not listed.
Status check_updates_are_reduced(const Program& main, const CollectivePlan& plan);

/// Tests of the role bits of an op. Source: spec/transpiler.md section 1.
bool is_backward_op(const Op& op);
bool is_loss_grad_op(const Op& op);
/// True if the op has slots Param, Grad and LearningRate.
bool is_update_op(const Op& op);

/// Emits an op that reads X and writes the same var as Out, before `where` (null: at the end).
Op& insert_in_place(Block& block, Op* where, llvm::StringRef type, llvm::StringRef var,
                    int32_t role);
/// As above, with attribute ring_id.
Op& insert_on_ring(Block& block, Op* where, llvm::StringRef type, llvm::StringRef var, int64_t ring,
                   int32_t role);

}  // namespace millrace::transpiler

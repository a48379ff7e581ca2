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

namespace millrace::transpiler {

/// What the passes of collective mode need to know of the job. Immutable while they run.
struct CollectivePlan {
  int64_t rank = 0;
  int64_t rings = 1;  ///< communicators; collectives are dealt to them in turn
  std::vector<std::string> endpoints;
  std::vector<std::string> others;  ///< endpoints without the current one
  std::string current_endpoint;
  int64_t device_count = 0;  ///< local GPUs; communicators are set up only where there are some
  /// Parameters of the startup program in order of creation, tables included.
  std::vector<std::string> parameters;
  /// Parameters that live on several machines (tables of is_distributed look-ups): never reduced.
  std::set<std::string> tables;
  int64_t fuse_allreduce = 1;
  /// Numbers of machines that reduce among each other: all endpoints, or distinct hosts in
  /// single_process_multi_thread.
  int64_t ranks = 1;

  [[nodiscard]] bool is_table(const std::string& name) const { return tables.count(name) != 0; }
};

/// Builds the plan. Errors: as transpile_collective().
StatusOr<CollectivePlan> plan_collective(const Program& main, const Program& startup,
                                         const DistributeTranspilerConfig& config,
                                         const TranspileArguments& arguments);

/// One parameter and the gradient that a backward op makes for it.
struct GradPair {
  std::string param;
  std::string grad;
};

/// The pairs of op_role_var of a backward op; empty if the op is none or has no pairs.
/// Errors: kInvalidProgram with the op's place for an odd list or an undeclared var.
StatusOr<std::vector<GradPair>> backward_pairs(const Op& op);

/// Every update of the block has a gradient that some backward op states, which is what is reduced.
/// Errors: kInvalidProgram with the place of an update that has none.
Status check_updates_are_reduced(const Program& main, const CollectivePlan& plan);

/// A pass may ask for these by role bits. Source: spec/transpiler.md section 1.
bool is_backward_op(const Op& op);
bool is_loss_grad_op(const Op& op);
/// Has slots Param, Grad and LearningRate.
bool is_update_op(const Op& op);

/// Emits an op that reads X and writes the same var as Out, before `where` (null: at the end).
Op& insert_in_place(Block& block, Op* where, llvm::StringRef type, llvm::StringRef var,
                    int32_t role);
/// As above, with attribute ring_id.
Op& insert_on_ring(Block& block, Op* where, llvm::StringRef type, llvm::StringRef var, int64_t ring,
                   int32_t role);

}  // namespace millrace::transpiler

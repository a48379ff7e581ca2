#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "framework/base/status.h"
#include "framework/program.h"

/// Jobs of the second generation: parameters live in typed tables of the servers, which apply the
/// optimizer themselves; server programs are empty. Source: spec/fleet.md sections 5, 7 and 13.
namespace millrace::transpiler {

/// A parameter and the gradient that updates it.
struct TrainedVar {
  std::string param;
  std::string grad;
};

/// Parameters and gradients of one program, in the order of its optimizer ops.
struct TrainedVars {
  std::vector<TrainedVar> sparse;  ///< looked up by ops that fetch rows from the servers
  std::vector<TrainedVar> dense;
};

/// Gradients are those that workers send: clipped and regularised. Errors: kInvalidProgram for a
/// gradient that block 0 does not declare; those of divide_updates().
StatusOr<TrainedVars> find_trained_vars(const Program& main);

/// The rows of one embedding.
struct SparseTablePlan {
  TrainedVar var;
  int32_t table_id = 0;
  bool is_distributed = false;  ///< a lookup says so
  std::vector<int64_t> dims;    ///< of the gradient; the first is 0 for distributed ones
};

/// Dense parameters side by side.
struct DenseTablePlan {
  std::vector<TrainedVar> vars;
  int32_t table_id = 0;
  bool is_data_norm = false;  ///< statistics of data_norm ops
  int64_t elements = 0;

  /// "Dense@GRAD_1", "DataNorm@GRAD_2": what its gradients are called together.
  [[nodiscard]] std::string context_name() const;
};

/// Which table has which parameter. Numbers: sparse tables first, then the dense one, then that of
/// data_norm, last the barrier.
struct TablePlan {
  std::vector<SparseTablePlan> sparse;
  std::vector<DenseTablePlan> dense;
  int32_t barrier_id = 0;

  /// The table of an embedding; null if there is none.
  [[nodiscard]] const SparseTablePlan* find_sparse(llvm::StringRef param) const;
};

/// Plans the tables of a training program. Errors: those of find_trained_vars(); kInvalidProgram
/// for gradients whose shape is not known.
StatusOr<TablePlan> plan_tables(const Program& main);

/// True for lookup_table and lookup_table_v2.
bool is_lookup(const Op& op);
/// True for lookups that fetch their rows from the servers (attribute remote_prefetch).
bool is_remote_lookup(const Op& op);
/// padding_idx that the lookups of one table share; -1: none. One op or table that takes their
/// place has one. Errors: kUnimplemented where they differ.
StatusOr<int64_t> common_padding(llvm::ArrayRef<Op*> lookups);
/// Parameters of lookups that are sparse or distributed, each once, sorted.
std::vector<std::string> embedding_names(const Program& main);
/// True if a distributed lookup uses the parameter.
bool is_distributed_embedding(const Program& main, llvm::StringRef param);

}  // namespace millrace::transpiler

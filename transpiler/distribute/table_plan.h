#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "framework/base/status.h"
#include "framework/program.h"

/// Jobs of the second generation of the fleet API: parameters are in typed tables of the servers,
/// which apply the optimizer; server programs are empty. Source: spec/fleet.md sections 5, 7 and
/// 13.
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

/// Finds parameters and gradients. Gradients are those that workers send, after clipping and
/// regularization. Errors: kInvalidProgram for a gradient that block 0 does not declare; those of
/// divide_updates().
StatusOr<TrainedVars> find_trained_vars(const Program& main);

/// The table of one embedding.
struct SparseTablePlan {
  TrainedVar var;
  int32_t table_id = 0;
  bool is_distributed = false;  ///< some lookup has is_distributed
  std::vector<int64_t> dims;    ///< of the gradient; the first is 0 for distributed ones
};

/// A table of dense parameters, stored one after the other.
struct DenseTablePlan {
  std::vector<TrainedVar> vars;
  int32_t table_id = 0;
  bool is_data_norm = false;  ///< holds the statistics of data_norm ops
  int64_t elements = 0;

  /// "Dense@GRAD_1", "DataNorm@GRAD_2": the common name of its gradients.
  [[nodiscard]] std::string context_name() const;
};

/// Which parameter is in which table. Numbering: sparse tables first, then the dense table, then
/// that of data_norm, last the barrier.
struct TablePlan {
  std::vector<SparseTablePlan> sparse;
  std::vector<DenseTablePlan> dense;
  int32_t barrier_id = 0;

  /// The table of an embedding; null if there is none.
  [[nodiscard]] const SparseTablePlan* find_sparse(llvm::StringRef param) const;
};

/// Plans the tables of a training program. Errors: those of find_trained_vars(); kInvalidProgram
/// for gradients of unknown shape.
StatusOr<TablePlan> plan_tables(const Program& main);

/// True for lookup_table and lookup_table_v2.
bool is_lookup(const Op& op);
/// True for lookups that fetch their rows from the servers (attribute remote_prefetch).
bool is_remote_lookup(const Op& op);
/// Checks the lookups of workers that do not hold embeddings: those with is_sparse or
/// is_distributed need remote_prefetch, as the startup program of a worker does not initialize
/// their rows. \param distributed  also those with is_distributed. The original makes programs of
/// them, too,
///                     which do not run.
/// Errors: kUnimplemented naming op, table and attribute.
Status check_lookups(const Program& main, bool distributed);
/// Checks the lookups of geo workers, whose rows are in the gradient of a lookup with is_sparse.
/// Errors: kUnimplemented for one with remote_prefetch alone.
Status check_geo_lookups(const Program& main);
/// padding_idx of the lookups of one table; -1: none. The op or table that replaces them has only
/// one. Errors: kUnimplemented if the lookups differ.
StatusOr<int64_t> common_padding(llvm::ArrayRef<Op*> lookups);
/// Parameters of lookups that are sparse or distributed, each once, sorted.
std::vector<std::string> embedding_names(const Program& main);
/// True if a distributed lookup uses the parameter.
bool is_distributed_embedding(const Program& main, llvm::StringRef param);

}  // namespace millrace::transpiler

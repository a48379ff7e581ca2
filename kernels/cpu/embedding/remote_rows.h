#pragma once

#include <numeric>
#include <string>
#include <vector>

#include "kernels/kernel.h"

namespace millrace::kernels {

/// Old programs have ops that fetch the rows of a table from pservers: attribute remote_prefetch,
/// with the pservers in epmap. Without pservers the table is local, as in the original. Errors:
/// kUnimplemented if there are pservers; the local table would be a different one.
inline Status check_rows_are_here(const KernelSetup& op, llvm::StringRef table_slot) {
  const auto servers = op.attr<std::vector<std::string>>("epmap");
  if (!op.attr<bool>("remote_prefetch") || servers.empty()) return Ok();
  return {StatusCode::kUnimplemented,
          fmt::format("'{}' fetches rows of '{}' from servers (attributes 'remote_prefetch' and "
                      "'epmap' with '{}'), which only distributed_lookup_table can do here",
                      op.def().type().str(), op.op().first_input(table_slot).str(), servers[0])};
}

/// The rows of a weight [height, width] that a loss over many classes uses: the whole weight, or
/// what was fetched from servers for the classes or nodes of this step, [rows, samples, width].
/// Does not own the tensors. Thread-safety: may be read by several threads.
class UsedRows {
 public:
  /// No rows.
  UsedRows() = default;
  /// \param weight   the whole weight; null if `fetched` is given
  /// \param fetched  a row for each sample of each row of the input
  /// \param height   number of rows of the whole weight
  UsedRows(const Tensor* weight, const Tensor* fetched, int64_t height)
      : tensor_(weight != nullptr ? weight : fetched),
        is_fetched_(weight == nullptr),
        height_(height) {}

  /// Row `index` of the weight, which is sample j of row i. T must be dtype().
  template <typename T>
  [[nodiscard]] const T* row(int64_t i, int64_t j, int64_t index) const {
    const int64_t at = is_fetched_ ? i * tensor_->dim(1) + j : index;
    return tensor_->data<T>() + at * tensor_->dim(-1);
  }
  /// Shape of the whole weight: [height, width].
  [[nodiscard]] Dims dims() const { return {height_, tensor_->dim(-1)}; }
  /// True if only the rows of a step are here.
  [[nodiscard]] bool is_fetched() const { return is_fetched_; }
  /// The tensor with the rows.
  [[nodiscard]] const Tensor& tensor() const { return *tensor_; }

 private:
  const Tensor* tensor_ = nullptr;  ///< all rows, or the fetched ones
  bool is_fetched_ = false;         ///< true for [rows, samples, width]
  int64_t height_ = 0;              ///< of the whole weight
};

/// Where an op finds the rows of its weight.
struct UsedRowsArgs {
  /// Resolves the inputs `slot` and Rows, and reads attribute height_sections, which has the rows
  /// of each slice on the servers.
  UsedRowsArgs(const KernelSetup& op, const char* slot)
      : weight_slot(slot), weight(op.input(slot)), rows(op.input("Rows")) {
    const auto sections = op.attr<std::vector<int64_t>>("height_sections");
    height = std::accumulate(sections.begin(), sections.end(), int64_t{0});
  }

  /// Errors: rows that do not fit the input [rows, width], neither or both of the inputs.
  StatusOr<UsedRows> read(const KernelContext& ctx, const Tensor& x) const {
    const Tensor* const whole = ctx.find_in(weight);
    const Tensor* const fetched = ctx.find_in(rows);
    if ((whole == nullptr) == (fetched == nullptr))
      return ctx.error("expected either input '{}' or 'Rows'", weight_slot);
    const Tensor& given = whole != nullptr ? *whole : *fetched;
    const size_t rank = whole != nullptr ? 2 : 3;
    if (x.rank() != 2 || given.rank() != rank || given.dim(-1) != x.dim(1) ||
        given.dtype() != x.dtype() || (fetched != nullptr && fetched->dim(0) != x.dim(0)))
      return ctx.error("{} {} must have rows as long as those of the input {}",
                       whole != nullptr ? weight_slot : "Rows", describe(given), describe(x));
    return UsedRows(whole, fetched, whole != nullptr ? whole->dim(0) : height);
  }

  std::string weight_slot;  ///< Weight or W
  ArgIndex weight, rows;
  int64_t height = 0;  ///< of the whole weight if it is on servers
};

}  // namespace millrace::kernels

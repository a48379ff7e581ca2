#pragma once

#include <algorithm>
#include <vector>

#include "kernels/cpu/int_list.h"
#include "kernels/cpu/strided.h"
#include "kernels/kernel.h"

namespace millrace::kernels {

/// The gradient of a [rows, width] weight of which some rows were used: dense, or selected rows
/// that have each used row once. Does not own the memory, which belongs to the output var.
/// Thread-safety: different rows may be written at the same time.
template <typename T>
class RowGradient {
 public:
  /// \param used  row numbers in any order, repeats allowed; read if sparse
  /// \param out     output var; its elements are set to 0
  /// \param sparse  writes selected rows instead of a dense tensor
  /// \param dims    of the weight, [rows, width]
  /// Errors: kResource.
  static StatusOr<RowGradient> open(const KernelContext& ctx, Value& out, bool sparse,
                                    llvm::ArrayRef<int64_t> dims, std::vector<int64_t> used) {
    RowGradient gradient;
    gradient.width_ = dims[1];
    if (!sparse) {
      auto& tensor = out.as<Tensor>();
      MILLRACE_RETURN_IF_ERROR(size_output(tensor, kDTypeOf<T>, dims));
      fill_zero(ctx.device(), tensor);
      gradient.data_ = tensor.template data<T>();
      return gradient;
    }
    auto& rows = out.as<SelectedRows>();
    std::sort(used.begin(), used.end());
    used.erase(std::unique(used.begin(), used.end()), used.end());
    rows.height = dims[0];
    rows.rows = std::move(used);
    gradient.rows_ = &rows.rows;
    MILLRACE_RETURN_IF_ERROR(
        size_output(rows.value, kDTypeOf<T>, {static_cast<int64_t>(rows.rows.size()), dims[1]}));
    fill_zero(ctx.device(), rows.value);
    gradient.data_ = rows.value.template data<T>();
    return gradient;
  }

  /// Elements of a used row.
  /// The row must be one of `used`, if the gradient is sparse. Cost: O(log used) if sparse.
  T* row(int64_t index) {
    if (rows_ == nullptr) return data_ + index * width_;
    const auto found = std::lower_bound(rows_->begin(), rows_->end(), index);
    return data_ + (found - rows_->begin()) * width_;
  }

 private:
  T* data_ = nullptr;  ///< of the output
  int64_t width_ = 0;
  const std::vector<int64_t>* rows_ = nullptr;  ///< null if dense
};

/// to += factor * from.
template <typename T>
void add_scaled(T* to, const T* from, T factor, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] += factor * from[i];
}

}  // namespace millrace::kernels

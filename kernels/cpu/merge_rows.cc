#include "kernels/cpu/merge_rows.h"

#include <cstring>

#include <fmt/format.h>
#include <llvm/ADT/STLExtras.h>

#include "kernels/dispatch.h"

namespace millrace::kernels {

int64_t row_width(const Tensor& tensor) {
  int64_t width = 1;
  for (size_t i = 1; i < tensor.rank(); ++i) width *= tensor.dims()[i];
  return width;
}

template <typename T>
Status RowMerger::add_up(const Tensor& from) {
  MILLRACE_RETURN_IF_ERROR(
      sums_.resize(from.dtype(), {static_cast<int64_t>(distinct_.size()), width_}));
  const T* const values = from.data<T>();
  T* const sums = sums_.data<T>();
  int32_t filled = 0;
  for (size_t i = 0; i < slots_.size(); ++i) {
    const T* __restrict source = values + static_cast<int64_t>(i) * width_;
    T* __restrict sum = sums + slots_[i] * width_;
    if (slots_[i] == filled) {
      std::memcpy(sum, source, static_cast<size_t>(width_) * sizeof(T));
      ++filled;
    } else {
      for (int64_t k = 0; k < width_; ++k) sum[k] += source[k];
    }
  }
  values_ = sums_.raw();
  return Ok();
}

Status RowMerger::merge(const SelectedRows& from) {
  if (from.rows.size() > 0 && from.value.dim(0) != static_cast<int64_t>(from.rows.size())) {
    return {StatusCode::kExecution,
            fmt::format("selected rows name {} rows, but their values are {}", from.rows.size(),
                        describe(from.value))};
  }
  for (const int64_t row : from.rows) {
    if (row < 0 || row >= from.height) {
      return {StatusCode::kExecution,
              fmt::format("selected rows name row {}, expected one in [0, {})", row, from.height)};
    }
  }
  width_ = row_width(from.value);
  distinct_.begin(from.rows.size());
  slots_.clear();
  for (const int64_t row : from.rows) slots_.push_back(static_cast<int32_t>(distinct_.add(row)));
  values_ = from.value.raw();
  if (distinct_.size() == from.rows.size()) return Ok();
  return dispatch<FloatTypes>(from.value.dtype(), [&](auto tag) -> Status {
    return add_up<typename decltype(tag)::type>(from.value);
  });
}

llvm::ArrayRef<int32_t> RowMerger::positions(int64_t height) {
  positions_.assign(static_cast<size_t>(height), -1);
  for (const auto& [position, row] : llvm::enumerate(rows()))
    positions_[static_cast<size_t>(row)] = static_cast<int32_t>(position);
  return positions_;
}

StatusOr<SelectedRows> merged_rows(const SelectedRows& from) {
  RowMerger merger;
  MILLRACE_RETURN_IF_ERROR(merger.merge(from));
  SelectedRows out{{merger.rows().begin(), merger.rows().end()}, from.height, {}};
  Dims dims(from.value.dims().begin(), from.value.dims().end());
  if (dims.empty()) dims.push_back(0);
  dims[0] = static_cast<int64_t>(out.rows.size());
  MILLRACE_RETURN_IF_ERROR(out.value.resize(from.value.dtype(), dims));
  if (out.value.numel() == 0) return out;
  MILLRACE_RETURN_IF_ERROR(dispatch<FloatTypes>(from.value.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    std::memcpy(out.value.data<T>(), merger.values<T>(), static_cast<size_t>(out.value.bytes()));
    return Ok();
  }));
  return out;
}

}  // namespace millrace::kernels

#include "kernels/cpu/merge_rows.h"

#include <bit>
#include <cstring>

#include <fmt/format.h>

#include "kernels/dispatch.h"

namespace millrace::kernels {

int64_t row_width(const Tensor& tensor) {
  int64_t width = 1;
  for (size_t i = 1; i < tensor.rank(); ++i) width *= tensor.dims()[i];
  return width;
}

// Open addressing; at most half of the entries are used.
void RowMerger::find_distinct(llvm::ArrayRef<int64_t> rows) {
  const size_t capacity = std::bit_ceil(rows.size() * 2 + 2);
  const size_t mask = capacity - 1;
  table_.assign(capacity, 0);
  rows_.clear();
  slots_.resize(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    // a multiplicative hash: consecutive ids, which are common, spread over the table
    size_t at = static_cast<size_t>((static_cast<uint64_t>(rows[i]) * 0x9E3779B97F4A7C15ULL) >>
                                    (64U - static_cast<unsigned>(std::bit_width(mask)))) &
                mask;
    while (table_[at] != 0 && rows_[static_cast<size_t>(table_[at]) - 1] != rows[i])
      at = (at + 1) & mask;
    if (table_[at] == 0) {
      rows_.push_back(rows[i]);
      table_[at] = static_cast<int32_t>(rows_.size());
    }
    slots_[i] = table_[at] - 1;
  }
}

template <typename T>
Status RowMerger::add_up(const Tensor& from) {
  MILLRACE_RETURN_IF_ERROR(
      sums_.resize(from.dtype(), {static_cast<int64_t>(rows_.size()), width_}));
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
  find_distinct(from.rows);
  values_ = from.value.raw();
  if (rows_.size() == from.rows.size()) return Ok();
  return dispatch<FloatTypes>(from.value.dtype(), [&](auto tag) -> Status {
    return add_up<typename decltype(tag)::type>(from.value);
  });
}

llvm::ArrayRef<int32_t> RowMerger::positions(int64_t height) {
  positions_.assign(static_cast<size_t>(height), -1);
  for (size_t i = 0; i < rows_.size(); ++i)
    positions_[static_cast<size_t>(rows_[i])] = static_cast<int32_t>(i);
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

#include "ps/slices/split_rows.h"

#include <cstring>
#include <numeric>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "ps/slices/row_routes.h"
#include "ps/values.h"

namespace millrace::ps {
namespace {

Status failed_split(std::string message) {
  return {StatusCode::kExecution, std::move(message)};
}

Status split_selected(const SelectedRows& from, llvm::ArrayRef<int64_t> ends,
                      std::vector<Value>& slices) {
  const int64_t bytes = from.rows.empty() ? 0 : from.value.bytes() / from.value.dim(0);
  std::vector<int64_t> counts(ends.size(), 0);
  for (const int64_t row : from.rows) {
    if (row < 0 || row >= ends.back())
      return failed_split(
          fmt::format("row {} is out of range, the slices cover [0, {})", row, ends.back()));
    ++counts[slice_of(ends, row)];
  }
  for (size_t k = 0; k < ends.size(); ++k) {
    auto& to = slices[k].as<SelectedRows>();
    to.rows.clear();
    to.height = ends[k] - (k == 0 ? 0 : ends[k - 1]);
    Dims dims(from.value.dims().begin(), from.value.dims().end());
    dims[0] = counts[k];
    MILLRACE_RETURN_IF_ERROR(to.value.resize(from.value.dtype(), dims));
  }
  for (size_t i = 0; i < from.rows.size(); ++i) {
    const size_t k = slice_of(ends, from.rows[i]);
    auto& to = *slices[k].get_if<SelectedRows>();
    std::memcpy(to.value.raw() + static_cast<int64_t>(to.rows.size()) * bytes,
                from.value.raw() + static_cast<int64_t>(i) * bytes, static_cast<size_t>(bytes));
    to.rows.push_back(from.rows[i] - (k == 0 ? 0 : ends[k - 1]));
  }
  return Ok();
}

}  // namespace

Status split_rows(const Value& value, llvm::ArrayRef<int64_t> heights, std::vector<Value>& slices) {
  slices.resize(heights.size());
  std::vector<int64_t> ends(heights.begin(), heights.end());
  std::partial_sum(ends.begin(), ends.end(), ends.begin());
  if (const auto* const rows = value.get_if<SelectedRows>())
    return split_selected(*rows, ends, slices);
  const auto* const tensor = value.get_if<Tensor>();
  if (tensor == nullptr || tensor->rank() == 0 || tensor->dim(0) != ends.back()) {
    return failed_split(fmt::format("slices of {} rows do not cover {}", fmt::join(heights, ", "),
                                    describe(value)));
  }
  for (size_t k = 0; k < heights.size(); ++k)
    slices[k].as<Tensor>() = tensor->share_rows(ends[k] - heights[k], ends[k]);
  return Ok();
}

Status join_rows(llvm::ArrayRef<Value> slices, Value& whole) {
  const auto* const first = slices.front().get_if<Tensor>();
  int64_t rows = 0;
  for (const Value& slice : slices) {
    const auto* const tensor = slice.get_if<Tensor>();
    if (first == nullptr || first->rank() == 0 || tensor == nullptr ||
        tensor->rank() != first->rank() || tensor->dtype() != first->dtype() ||
        tensor->dims().drop_front() != first->dims().drop_front()) {
      return failed_split(fmt::format("slices cannot be joined: {} and {}",
                                      describe(slices.front()), describe(slice)));
    }
    rows += tensor->dim(0);
  }
  Dims dims(first->dims().begin(), first->dims().end());
  dims[0] = rows;
  auto& to = whole.as<Tensor>();
  MILLRACE_RETURN_IF_ERROR(to.resize(first->dtype(), dims));
  std::byte* place = to.raw();
  for (const Value& slice : slices) {
    const auto* const tensor = slice.get_if<Tensor>();
    std::memcpy(place, tensor->raw(), static_cast<size_t>(tensor->bytes()));
    place += tensor->bytes();
  }
  return Ok();
}

}  // namespace millrace::ps

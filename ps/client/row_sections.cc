#include "ps/client/row_sections.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "ps/client/failed.h"
#include "ps/values.h"

namespace millrace::ps {
namespace {

Status cut_selected(const SelectedRows& from, llvm::ArrayRef<int64_t> ends,
                    std::vector<Value>& pieces) {
  const int64_t bytes = from.rows.empty() ? 0 : from.value.bytes() / from.value.dim(0);
  std::vector<int64_t> counts(ends.size(), 0);
  const auto piece_of = [&](int64_t row) {
    return static_cast<size_t>(std::upper_bound(ends.begin(), ends.end(), row) - ends.begin());
  };
  for (const int64_t row : from.rows) {
    if (row < 0 || row >= ends.back())
      return failed(
          fmt::format("row {} is out of range, the slices cover [0, {})", row, ends.back()));
    ++counts[piece_of(row)];
  }
  for (size_t k = 0; k < ends.size(); ++k) {
    auto& to = pieces[k].as<SelectedRows>();
    to.rows.clear();
    to.height = ends[k] - (k == 0 ? 0 : ends[k - 1]);
    Dims dims(from.value.dims().begin(), from.value.dims().end());
    dims[0] = counts[k];
    MILLRACE_RETURN_IF_ERROR(to.value.resize(from.value.dtype(), dims));
  }
  for (size_t i = 0; i < from.rows.size(); ++i) {
    const size_t k = piece_of(from.rows[i]);
    auto& to = *pieces[k].get_if<SelectedRows>();
    std::memcpy(to.value.raw() + static_cast<int64_t>(to.rows.size()) * bytes,
                from.value.raw() + static_cast<int64_t>(i) * bytes, static_cast<size_t>(bytes));
    to.rows.push_back(from.rows[i] - (k == 0 ? 0 : ends[k - 1]));
  }
  return Ok();
}

}  // namespace

Status cut_rows(const Value& value, llvm::ArrayRef<int64_t> sections, std::vector<Value>& pieces) {
  pieces.resize(sections.size());
  std::vector<int64_t> ends(sections.begin(), sections.end());
  std::partial_sum(ends.begin(), ends.end(), ends.begin());
  if (const auto* const rows = value.get_if<SelectedRows>())
    return cut_selected(*rows, ends, pieces);
  const auto* const tensor = value.get_if<Tensor>();
  if (tensor == nullptr || tensor->rank() == 0 || tensor->dim(0) != ends.back()) {
    return failed(fmt::format("slices of {} rows do not cover {}", fmt::join(sections, ", "),
                              describe(value)));
  }
  for (size_t k = 0; k < sections.size(); ++k)
    pieces[k].as<Tensor>() = tensor->share_rows(ends[k] - sections[k], ends[k]);
  return Ok();
}

Status join_rows(llvm::ArrayRef<Value> pieces, Value& whole) {
  const auto* const first = pieces.front().get_if<Tensor>();
  int64_t rows = 0;
  for (const Value& piece : pieces) {
    const auto* const tensor = piece.get_if<Tensor>();
    if (first == nullptr || first->rank() == 0 || tensor == nullptr ||
        tensor->rank() != first->rank() || tensor->dtype() != first->dtype() ||
        tensor->dims().drop_front() != first->dims().drop_front()) {
      return failed(fmt::format("slices cannot be joined: {} and {}", describe(pieces.front()),
                                describe(piece)));
    }
    rows += tensor->dim(0);
  }
  Dims dims(first->dims().begin(), first->dims().end());
  dims[0] = rows;
  auto& to = whole.as<Tensor>();
  MILLRACE_RETURN_IF_ERROR(to.resize(first->dtype(), dims));
  std::byte* place = to.raw();
  for (const Value& piece : pieces) {
    const auto* const tensor = piece.get_if<Tensor>();
    std::memcpy(place, tensor->raw(), static_cast<size_t>(tensor->bytes()));
    place += tensor->bytes();
  }
  return Ok();
}

}  // namespace millrace::ps

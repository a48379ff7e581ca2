#include "ps/slices/slicer.h"

#include <cstring>
#include <numeric>
#include <utility>

#include <fmt/ranges.h>

#include "framework/base/errors.h"
#include "framework/tensor/join_rows.h"
#include "kernels/cpu/merge_rows.h"
#include "kernels/dispatch.h"

namespace millrace::ps {
namespace {

// Where the values of one slice are, and how many of its rows are filled.
struct Target {
  std::byte* values = nullptr;
  int32_t filled = 0;
};

template <typename T>
void add_up(const SelectedRows& from, llvm::ArrayRef<RowRoutes::Place> places, size_t width,
            std::vector<Target>& targets) {
  const T* source = from.value.data<T>();
  for (const RowRoutes::Place& place : places) {
    Target& target = targets[static_cast<size_t>(place.slice)];
    T* const to = reinterpret_cast<T*>(target.values) + static_cast<size_t>(place.position) * width;
    if (place.position == target.filled) {
      std::memcpy(to, source, width * sizeof(T));
      ++target.filled;
    } else {
      for (size_t i = 0; i < width; ++i) to[i] += source[i];
    }
    source += width;
  }
}

void copy_apart(const SelectedRows& from, llvm::ArrayRef<RowRoutes::Place> places, size_t bytes,
                std::vector<Target>& targets) {
  const std::byte* source = from.value.raw();
  for (const RowRoutes::Place& place : places) {
    std::byte*& to = targets[static_cast<size_t>(place.slice)].values;
    std::memcpy(to, source, bytes);
    to += bytes;
    source += bytes;
  }
}

Status outside_slices(int64_t row, llvm::ArrayRef<int64_t> ends) {
  return {StatusCode::kExecution,
          fmt::format("row {} is out of range, the slices cover [0, {})", row, ends.back())};
}

Status different_kinds(llvm::ArrayRef<Value> slices, const Value& slice) {
  return {StatusCode::kExecution, fmt::format("slices cannot be joined: {} and {}",
                                              describe(slices.front()), describe(slice))};
}

Status join_tensors(llvm::ArrayRef<Value> slices, Tensor& whole) {
  std::vector<const Tensor*> parts;
  for (const Value& slice : slices) {
    parts.push_back(slice.get_if<Tensor>());
    if (parts.back() == nullptr) return different_kinds(slices, slice);
  }
  return join_rows(parts, whole);
}

Status join_selected(llvm::ArrayRef<Value> slices, SelectedRows& whole) {
  std::vector<const Tensor*> values;  // those of slices without rows may have any form
  whole.rows.clear();
  whole.height = 0;
  for (const Value& slice : slices) {
    const auto* const part = slice.get_if<SelectedRows>();
    if (part == nullptr) return different_kinds(slices, slice);
    for (const int64_t row : part->rows) whole.rows.push_back(whole.height + row);
    whole.height += part->height;
    if (!part->rows.empty()) values.push_back(&part->value);
  }
  if (values.empty())
    return resize_rows(slices.front().get_if<SelectedRows>()->value, 0, whole.value);
  return join_rows(values, whole.value);
}

}  // namespace

Slicer::Slicer(llvm::ArrayRef<int64_t> heights, Repeats repeats)
    : ends_(heights.begin(), heights.end()), repeats_(repeats) {
  std::partial_sum(ends_.begin(), ends_.end(), ends_.begin());
  slices_.resize(std::max<size_t>(1, ends_.size()));
}

Status Slicer::resize_slice(size_t slice, const SelectedRows& from, llvm::ArrayRef<int64_t> ends,
                            size_t rows) {
  auto& to = slices_[slice].as<SelectedRows>();
  to.height = ends[slice] - (slice == 0 ? 0 : ends[slice - 1]);
  return resize_rows(from.value, static_cast<int64_t>(rows), to.value);
}

Status Slicer::split_tensor(const Value& from) {
  const auto* const tensor = from.get_if<Tensor>();
  if (tensor == nullptr || tensor->rank() == 0 ||
      (!ends_.empty() && tensor->dim(0) != ends_.back())) {
    std::vector<int64_t> heights(ends_.size());
    std::adjacent_difference(ends_.begin(), ends_.end(), heights.begin());
    return {StatusCode::kExecution, fmt::format("slices of {} rows do not cover {}",
                                                fmt::join(heights, ", "), describe(from))};
  }
  int64_t begin = 0;
  for (size_t k = 0; k < slices_.size(); ++k) {
    const int64_t end = ends_.empty() ? tensor->dim(0) : ends_[k];
    slices_[k].as<Tensor>() = tensor->share_rows(begin, end);
    begin = end;
  }
  return Ok();
}

Status Slicer::split_keeping(const SelectedRows& from, llvm::ArrayRef<int64_t> ends) {
  std::vector<size_t> counts(ends.size(), 0);
  for (const int64_t row : from.rows) {
    if (row < 0 || row >= ends.back()) return outside_slices(row, ends);
    ++counts[slice_of(ends, row)];
  }
  for (size_t k = 0; k < ends.size(); ++k) {
    slices_[k].as<SelectedRows>().rows.clear();
    MILLRACE_RETURN_IF_ERROR(resize_slice(k, from, ends, counts[k]));
  }
  if (from.rows.empty()) return Ok();
  const int64_t bytes = from.value.bytes() / from.value.dim(0);
  for (size_t i = 0; i < from.rows.size(); ++i) {
    const size_t k = slice_of(ends, from.rows[i]);
    auto& to = *slices_[k].get_if<SelectedRows>();
    std::memcpy(to.value.raw() + static_cast<int64_t>(to.rows.size()) * bytes,
                from.value.raw() + static_cast<int64_t>(i) * bytes, static_cast<size_t>(bytes));
    to.rows.push_back(from.rows[i] - (k == 0 ? 0 : ends[k - 1]));
  }
  return Ok();
}

Status Slicer::split_adding_up(const SelectedRows& from, llvm::ArrayRef<int64_t> ends) {
  routes_.begin(ends, from.rows.size());
  if (const std::optional<int64_t> bad = routes_.add(from.rows)) return outside_slices(*bad, ends);
  const bool has_repeats = routes_.distinct() != from.rows.size();
  std::vector<Target> targets(slices_.size());
  for (size_t k = 0; k < slices_.size(); ++k) {
    auto& to = slices_[k].as<SelectedRows>();
    to.rows.swap(routes_.rows(k));
    MILLRACE_RETURN_IF_ERROR(resize_slice(k, from, ends, to.rows.size()));
    targets[k].values = to.value.raw();
  }
  if (from.rows.empty()) return Ok();
  const auto width = static_cast<size_t>(kernels::row_width(from.value));
  if (!has_repeats) {
    copy_apart(from, routes_.places(), width * static_cast<size_t>(dtype_size(from.value.dtype())),
               targets);
    return Ok();
  }
  return kernels::dispatch<kernels::FloatTypes>(from.value.dtype(), [&](auto tag) -> Status {
    add_up<typename decltype(tag)::type>(from, routes_.places(), width, targets);
    return Ok();
  });
}

Status Slicer::split(const Value& value) {
  const auto* const from = value.get_if<SelectedRows>();
  if (from == nullptr) return split_tensor(value);
  const llvm::ArrayRef<int64_t> ends =
      ends_.empty() ? llvm::ArrayRef<int64_t>(from->height) : llvm::ArrayRef<int64_t>(ends_);
  if (!from->rows.empty() &&
      (from->value.rank() == 0 || from->value.dim(0) != static_cast<int64_t>(from->rows.size())))
    return {StatusCode::kExecution,
            fmt::format("selected rows have {} row ids, but their values are {}", from->rows.size(),
                        describe(from->value))};
  return repeats_ == Repeats::kKeep ? split_keeping(*from, ends) : split_adding_up(*from, ends);
}

Status join_slices(llvm::ArrayRef<Value> slices, Value& whole) {
  return slices.front().holds<SelectedRows>() ? join_selected(slices, whole.as<SelectedRows>())
                                              : join_tensors(slices, whole.as<Tensor>());
}

}  // namespace millrace::ps

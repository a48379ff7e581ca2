#include "ps/slices/row_slicer.h"

#include <cstring>
#include <numeric>
#include <utility>

#include "framework/base/errors.h"
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

}  // namespace

RowSlicer::RowSlicer(llvm::ArrayRef<int64_t> heights) : ends_(heights.begin(), heights.end()) {
  std::partial_sum(ends_.begin(), ends_.end(), ends_.begin());
  slices_.resize(std::max<size_t>(1, ends_.size()));
}

Status RowSlicer::resize_slices(const SelectedRows& from, llvm::ArrayRef<int64_t> ends) {
  for (size_t k = 0; k < slices_.size(); ++k) {
    auto& to = slices_[k].as<SelectedRows>();
    to.rows.swap(routes_.rows(k));
    to.height = ends[k] - (k == 0 ? 0 : ends[k - 1]);
    Dims dims(from.value.dims().begin(), from.value.dims().end());
    if (dims.empty()) dims.push_back(0);
    dims[0] = static_cast<int64_t>(to.rows.size());
    MILLRACE_RETURN_IF_ERROR(to.value.resize(from.value.dtype(), dims));
  }
  return Ok();
}

Status RowSlicer::split(const SelectedRows& from) {
  const llvm::ArrayRef<int64_t> ends =
      ends_.empty() ? llvm::ArrayRef<int64_t>(from.height) : llvm::ArrayRef<int64_t>(ends_);
  if (!from.rows.empty() && from.value.dim(0) != static_cast<int64_t>(from.rows.size()))
    return {StatusCode::kExecution,
            fmt::format("selected rows have {} row ids, but their values are {}", from.rows.size(),
                        describe(from.value))};
  routes_.begin(ends, from.rows.size());
  if (const std::optional<int64_t> bad = routes_.add(from.rows))
    return {StatusCode::kExecution,
            fmt::format("row {} is out of range, the slices cover [0, {})", *bad, ends.back())};
  const bool has_repeats = routes_.distinct() != from.rows.size();
  MILLRACE_RETURN_IF_ERROR(resize_slices(from, ends));
  if (from.rows.empty()) return Ok();
  std::vector<Target> targets(slices_.size());
  for (size_t k = 0; k < targets.size(); ++k)
    targets[k].values = slices_[k].get_if<SelectedRows>()->value.raw();
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

}  // namespace millrace::ps

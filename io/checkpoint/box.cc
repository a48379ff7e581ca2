#include "io/checkpoint/box.h"

#include <algorithm>
#include <cassert>

#include <fmt/ranges.h>

#include "framework/base/errors.h"

namespace millrace::io {
namespace {

// Byte distance between adjacent elements along each axis in row-major memory.
Dims strides(const Dims& shape, int64_t element_bytes) {
  Dims steps(shape.size(), element_bytes);
  for (size_t i = shape.size(); i-- > 1;) steps[i - 1] = steps[i] * shape[i];
  return steps;
}

int64_t begin_of(const Box& part, const Box& whole, const Dims& steps) {
  int64_t begin = 0;
  for (size_t i = 0; i < steps.size(); ++i) begin += (part.offset[i] - whole.offset[i]) * steps[i];
  return begin;
}

Status overlapping(const Box& a, const Box& b) {
  return InvalidData("the parts {} and {} overlap", a.text(), b.text());
}

// The axis with the most distinct start offsets: it keeps the set of open boxes small.
size_t sweep_axis(const std::vector<Box>& boxes, size_t rank) {
  size_t best = 0;
  size_t most = 0;
  for (size_t axis = 0; axis < rank; ++axis) {
    std::vector<int64_t> begins;
    for (const Box& box : boxes) begins.push_back(box.offset[axis]);
    std::ranges::sort(begins);
    const auto distinct =
        static_cast<size_t>(std::unique(begins.begin(), begins.end()) - begins.begin());
    if (distinct > most) best = axis;
    most = std::max(most, distinct);
  }
  return best;
}

// Sweeps over the boxes by start offset along one axis and compares each box only with those that
// are still open, that is, that extend beyond its start.
Status check_disjoint(std::vector<Box>& boxes, size_t rank) {
  if (rank == 0) return boxes.size() < 2 ? Ok() : overlapping(boxes[0], boxes[1]);
  const size_t axis = sweep_axis(boxes, rank);
  std::ranges::stable_sort(boxes, {}, [&](const Box& box) { return box.offset[axis]; });
  std::vector<const Box*> open;
  for (const Box& box : boxes) {
    std::erase_if(open, [&](const Box* other) {
      return other->offset[axis] + other->shape[axis] <= box.offset[axis];
    });
    for (const Box* const other : open)
      if (overlap(*other, box)) return overlapping(*other, box);
    open.push_back(&box);
  }
  return Ok();
}

}  // namespace

bool Box::operator<(const Box& other) const {
  if (offset != other.offset) return offset < other.offset;
  return shape < other.shape;
}

Box Box::whole(llvm::ArrayRef<int64_t> dims) {
  return {Dims(dims.size(), 0), Dims(dims.begin(), dims.end())};
}

int64_t Box::numel() const {
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  return count;
}

std::string Box::text() const {
  return fmt::format("[{}] + [{}]", fmt::join(offset, ", "), fmt::join(shape, ", "));
}

std::optional<Box> overlap(const Box& a, const Box& b) {
  assert(a.offset.size() == b.offset.size());
  Box shared = a;
  for (size_t i = 0; i < a.offset.size(); ++i) {
    const int64_t begin = std::max(a.offset[i], b.offset[i]);
    const int64_t end = std::min(a.offset[i] + a.shape[i], b.offset[i] + b.shape[i]);
    if (begin >= end) return std::nullopt;
    shared.offset[i] = begin;
    shared.shape[i] = end - begin;
  }
  return shared;
}

Status check_inside(const Box& box, llvm::ArrayRef<int64_t> dims) {
  bool fits = box.offset.size() == dims.size() && box.shape.size() == dims.size();
  for (size_t i = 0; fits && i < dims.size(); ++i) {
    fits = box.offset[i] >= 0 && box.shape[i] >= 0 && box.offset[i] <= dims[i] &&
           box.shape[i] <= dims[i] - box.offset[i];
  }
  if (fits) return Ok();
  return InvalidData("expected a part of a tensor of shape [{}], found {}", fmt::join(dims, ", "),
                     box.text());
}

Status check_exact_cover(std::vector<Box> boxes, llvm::ArrayRef<int64_t> dims) {
  const int64_t wanted = Box::whole(dims).numel();
  std::erase_if(boxes, [](const Box& box) { return box.numel() == 0; });
  std::sort(boxes.begin(), boxes.end());
  MILLRACE_RETURN_IF_ERROR(check_disjoint(boxes, dims.size()));
  // Without overlaps the sum cannot exceed the product of the dims.
  int64_t found = 0;
  for (const Box& box : boxes) found += box.numel();
  if (found == wanted) return Ok();
  return InvalidData("the parts leave a gap: expected {} elements of shape [{}], found {}", wanted,
                     fmt::join(dims, ", "), found);
}

Runs::Runs(const Box& from, const Box& to, int64_t element_bytes) {
  const std::optional<Box> shared = overlap(from, to);
  assert(shared);
  const Dims from_steps = strides(from.shape, element_bytes);
  const Dims to_steps = strides(to.shape, element_bytes);
  from_begin_ = begin_of(*shared, from, from_steps);
  to_begin_ = begin_of(*shared, to, to_steps);
  // A run covers the last axes, and further axes as long as the elements are contiguous in both
  // boxes.
  size_t axis = shared->shape.size();
  bytes_ = element_bytes;
  bool in_one_piece = true;
  while (axis > 0 && in_one_piece) {
    --axis;
    bytes_ *= shared->shape[axis];
    in_one_piece = shared->shape[axis] == from.shape[axis] && shared->shape[axis] == to.shape[axis];
  }
  for (size_t i = 0; i < axis; ++i) {
    counts_.push_back(shared->shape[i]);
    from_steps_.push_back(from_steps[i]);
    to_steps_.push_back(to_steps[i]);
    count_ *= shared->shape[i];
  }
}

int64_t Runs::start(int64_t run, int64_t begin, const Dims& steps) const {
  for (size_t i = counts_.size(); i-- > 0;) {
    begin += run % counts_[i] * steps[i];
    run /= counts_[i];
  }
  return begin;
}

int64_t Runs::first_ending_after(int64_t from_byte) const {
  int64_t low = 0;
  int64_t high = count_;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (from(middle) + bytes_ > from_byte) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

Box even_part(llvm::ArrayRef<int64_t> dims, int64_t axis, int64_t part, int64_t parts) {
  Box box = Box::whole(dims);
  const auto i = static_cast<size_t>(axis);
  const int64_t each = dims[i] / parts;
  const int64_t larger = dims[i] % parts;
  box.offset[i] = part * each + std::min(part, larger);
  box.shape[i] = each + (part < larger ? 1 : 0);
  return box;
}

}  // namespace millrace::io

#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "framework/tensor/tensor.h"
#include "kernels/cpu/random/bits.h"
#include "kernels/kernel.h"

/// Helpers of the ops that make the training targets of a detector. Corners of boxes are pixels.
namespace millrace::kernels {

/// Area of the intersection of two boxes / area of their union. Boxes with right < left or bottom <
/// top are not handled: their area may be negative.
template <typename T>
T pixel_overlap(const T* a, const T* b) {
  const auto area = [](const T* box) { return (box[2] - box[0] + 1) * (box[3] - box[1] + 1); };
  const T width = std::max(std::min(a[2], b[2]) - std::max(a[0], b[0]) + 1, T{0});
  const T height = std::max(std::min(a[3], b[3]) - std::max(a[1], b[1]) + 1, T{0});
  const T common = width * height;
  return common == 0 ? T{0} : common / (area(a) + area(b) - common);
}

/// The largest overlap of a box with others, and the first box that has it. Without other boxes:
/// the lowest number and place 0.
template <typename T>
struct BestOverlap {
  T overlap = std::numeric_limits<T>::lowest();  ///< as pixel_overlap()
  int64_t place = 0;                             ///< index of the other box
};

/// Offset of a target from a box: distance of the centres divided by the size of the box, and the
/// logarithm of the ratio of the sizes.
template <typename T>
std::array<T, 4> offsets_to(const T* box, const T* target) {
  const T width = box[2] - box[0] + 1;
  const T height = box[3] - box[1] + 1;
  const T target_width = target[2] - target[0] + 1;
  const T target_height = target[3] - target[1] + 1;
  // centres are half of the size, in pixels, from the left and top corner
  const T half = static_cast<T>(0.5);
  const T x = (target[0] + half * target_width) - (box[0] + half * width);
  const T y = (target[1] + half * target_height) - (box[1] + half * height);
  return {x / width, y / height, std::log(target_width / width), std::log(target_height / height)};
}

/// Random choices of an op without a seed attribute. The numbers depend on the device's seed and on
/// how many such ops ran before.
class Draws {
 public:
  /// Takes a seed from the device, so that the next op draws other numbers.
  explicit Draws(CpuDevice& device) : key_(device.next_seed()) {}
  /// A number in [0, count), count > 0.
  int64_t below(int64_t count) {
    const double at = unit_double(random_bits(key_, next_++)) * static_cast<double>(count);
    return std::min(static_cast<int64_t>(at), count - 1);
  }

 private:
  uint64_t key_;       ///< of the stream of random numbers
  uint64_t next_ = 0;  ///< index of the next number
};

/// Shortens a list to that many elements: the first ones, or, with draws, a random selection in
/// which all elements are equally likely.
template <typename E>
void keep_some(std::vector<E>& list, int64_t count, Draws* draws) {
  count = std::max<int64_t>(count, 0);
  const auto size = static_cast<int64_t>(list.size());
  if (size <= count) return;
  // reservoir sampling: element i replaces a kept one with probability count / (i + 1)
  for (int64_t i = count; draws != nullptr && i < size; ++i) {
    const int64_t place = draws->below(i + 1);
    if (place < count) std::swap(list[static_cast<size_t>(place)], list[static_cast<size_t>(i)]);
  }
  list.resize(static_cast<size_t>(count));
}

/// Elements of an int32 or int64 tensor. Errors: another element type, or another number of
/// elements than count.
StatusOr<std::vector<int64_t>> integers_of(const Tensor& tensor, int64_t count, const char* slot);

/// Row offsets of the images in a tensor. Errors: no LoD, or a LoD with other than `images` parts
/// (-1: any number).
StatusOr<std::vector<int64_t>> image_offsets(const Tensor& tensor, int64_t images,
                                             const char* slot);

/// Checks a tensor [rows, columns], such as boxes with 4 columns. Errors: other dims, or another
/// element type than that of `like`. The message names the slot.
Status check_rows(const Tensor& tensor, int64_t columns, const Tensor& like, const char* slot);

/// Makes a float output [rows, columns] with the LoD of the offsets. Does nothing if absent.
template <typename T>
Status put_rows(Tensor* out, const std::vector<T>& values, int64_t columns,
                const LodLevel& offsets) {
  if (out == nullptr) return Ok();
  MILLRACE_RETURN_IF_ERROR(
      out->resize(kDTypeOf<T>, {static_cast<int64_t>(values.size()) / columns, columns}));
  std::copy(values.begin(), values.end(), out->template data<T>());
  out->set_lod(Lod({offsets}));
  return Ok();
}

/// Makes an int32 output [n], or [n, 1] if it is a column, with the LoD of the offsets. Does
/// nothing if absent.
Status put_numbers(Tensor* out, const std::vector<int64_t>& values, bool column,
                   const LodLevel& offsets);

}  // namespace millrace::kernels

#pragma once

#include <array>

#include <llvm/ADT/ArrayRef.h>
#include <llvm/ADT/SmallVector.h>

#include "framework/types.h"
#include "kernels/gpu/functors/walk.h"
#include "kernels/gpu/ops/args.h"

namespace millrace::gpu {

/// Strides of row-major elements.
inline llvm::SmallVector<int64_t, 8> row_major_strides(llvm::ArrayRef<int64_t> dims) {
  llvm::SmallVector<int64_t, 8> strides(dims.size());
  int64_t step = 1;
  for (size_t i = dims.size(); i-- > 0;) {
    strides[i] = step;
    step *= dims[i];
  }
  return strides;
}

/// A box of indices in the making: dims with the stride of each operand, outermost first.
template <int kOperands>
class Box {
 public:
  /// The stride of a dim in each operand.
  using Strides = std::array<int64_t, kOperands>;
  /// Adds a dim after the others. Joins it to the one before where all operands allow that.
  void push(int64_t extent, const Strides& strides) {
    count_ *= extent;
    if (extent == 1) return;
    if (!dims_.empty()) {
      Dim& outer = dims_.back();
      bool joins = true;
      for (size_t k = 0; k < kOperands; ++k) joins &= outer.strides[k] == strides[k] * extent;
      if (joins) {
        outer = {outer.extent * extent, strides};
        return;
      }
    }
    dims_.push_back({extent, strides});
  }
  /// Number of indices.
  [[nodiscard]] int64_t count() const { return count_; }
  /// Errors: rejects boxes with too many dims or indices.
  [[nodiscard]] StatusOr<Walk<kOperands>> walk() const {
    Walk<kOperands> made;
    made.dense = dims_.empty() || (dims_.size() == 1 && all_ones(dims_[0].strides));
    if (made.dense) return made;
    if (dims_.size() > kWalkDims || count_ >= int64_t{1} << 31)
      return refuse(
          "the GPU kernel walks through {} dims and less than 2^31 elements, found {} "
          "and {}",
          kWalkDims, dims_.size(), count_);
    made.rank = static_cast<int32_t>(dims_.size());
    for (size_t i = 0; i < dims_.size(); ++i) {
      const Dim& dim = dims_[dims_.size() - 1 - i];
      if (dim.extent > 0) made.extents[i] = Divider(dim.extent);
      for (size_t k = 0; k < kOperands; ++k) made.strides[k][i] = dim.strides[k];
    }
    return made;
  }
  /// Elements that all operands have side by side: the factor by which wider words can be copied.
  /// \param most  largest factor, a power of 2
  [[nodiscard]] int64_t common_run(int64_t most) const {
    if (dims_.empty() || !all_ones(dims_.back().strides)) return 1;
    int64_t factor = most;
    const auto limit = [&factor](int64_t number) {
      while (number % factor != 0) factor /= 2;
    };
    limit(dims_.back().extent);
    for (size_t i = 0; i + 1 < dims_.size(); ++i) {
      for (const int64_t stride : dims_[i].strides) limit(stride);
    }
    return factor;
  }
  /// The same box with words of that many elements, which common_run() allows.
  [[nodiscard]] Box widened(int64_t factor) const {
    if (factor == 1) return *this;
    Box wide = *this;
    wide.count_ /= factor;
    wide.dims_.back().extent /= factor;
    for (size_t i = 0; i + 1 < dims_.size(); ++i) {
      for (int64_t& stride : wide.dims_[i].strides) stride /= factor;
    }
    return wide;
  }

 private:
  /// A dim of the box.
  struct Dim {
    int64_t extent;   ///< indices along it
    Strides strides;  ///< by operand, in elements
  };
  /// True if all operands have the elements of a dim side by side.
  static bool all_ones(const Strides& strides) {
    for (const int64_t stride : strides) {
      if (stride != 1) return false;
    }
    return true;
  }
  llvm::SmallVector<Dim, 8> dims_;  ///< outermost first, joined where possible
  int64_t count_ = 1;               ///< indices
};

/// Sets elements of `to` from elements of `from`; operand 0 of the box is `to`. Both start at the
/// given positions, in elements. Errors: as Box::walk(); element types without a size.
Status move_elements(Device& device, const Box<2>& box, Tensor& to, int64_t to_start,
                     const Tensor& from, int64_t from_start);

/// Sets all bytes of the tensor to 0.
Status clear_elements(Device& device, Tensor& tensor);

}  // namespace millrace::gpu

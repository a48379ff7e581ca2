#pragma once

#include <cstddef>
#include <cstdint>

#include <llvm/ADT/ArrayRef.h>

#include "framework/base/status.h"
#include "framework/tensor/tensor.h"
#include "framework/var.h"
#include "kernels/device.h"

/// Copies elements between two tensors that share a box of indices, each with its own strides.
/// Transposing, slicing, joining, repeating and reversing are all of this kind.
namespace millrace::kernels {

/// A box of indices and the strides of its dims in the two tensors. Strides count elements; 0
/// repeats one element, a negative stride goes backwards.
struct StridedBox {
  Dims dims;  ///< extents of the box
  Dims to;    ///< strides in the written tensor
  Dims from;  ///< strides in the read tensor

  /// Adds a dim after the existing ones.
  void push(int64_t dim, int64_t to_stride, int64_t from_stride) {
    dims.push_back(dim);
    to.push_back(to_stride);
    from.push_back(from_stride);
  }
};

/// Strides of row-major elements.
Dims row_major(llvm::ArrayRef<int64_t> dims);

/// to[index] = from[index] over the box; the two must not overlap. Elements are copied as bytes, 1,
/// 2, 4, 8 or 16 per element. Cost: one pass; contiguous runs and transposed planes are detected
/// and copied faster.
void copy_strided(CpuDevice& device, int64_t element_bytes, const StridedBox& box, std::byte* to,
                  const std::byte* from);

/// Each element of to = sum of the elements of from that the box maps to it (stride 0 in box.to);
/// elements that the box does not reach become 0. 16-bit floats are summed in float. Errors:
/// kUnimplemented for a dtype that is no number; kResource.
Status sum_strided(CpuDevice& device, const StridedBox& box, Tensor& to, const Tensor& from);

/// Copies bytes, on several threads if there are many; does nothing if source and target are the
/// same.
void copy_bytes(CpuDevice& device, std::byte* to, const std::byte* from, int64_t bytes);
/// The bytes of from; if to has the same memory, a copy of them in scratch slot 3. For kernels that
/// cannot work in place. Errors: kResource.
StatusOr<const std::byte*> bytes_apart(CpuDevice& device, const Tensor& from, const Tensor& to);
/// Sets all bytes of the tensor to 0.
void fill_zero(CpuDevice& device, Tensor& tensor);

}  // namespace millrace::kernels

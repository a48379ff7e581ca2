#pragma once

#include <vector>

#include "kernels/gpu/functors/indexing.h"
#include "kernels/gpu/ops/row_groups.h"
#include "kernels/gpu/ops/walk.h"
#include "kernels/gpu/ops/words.h"

// Elements and lines of tensors that are chosen by indices.
namespace millrace::gpu {

/// An i32 or i64 tensor in device memory. The caller has checked its type.
inline IndexValues index_values(const Tensor& index) {
  return {index.raw(), index.dtype() == DType::kInt64};
}

/// What an index says about places in a tensor.
struct Coordinates {
  const Tensor* index;                  ///< i32 or i64
  llvm::SmallVector<int64_t, 4> steps;  ///< distance of adjacent coordinates, in elements
  int64_t limit = 0;                    ///< others than [0, limit) make NaN; 0: they were checked
};
/// to[i] = from[place], or with `puts` to[place] = from[i], where no two places are the same. The
/// place is operand 0 of the box plus what the coordinates say; operand 1 is the first of them.
/// Errors: rejects too many coordinates, as Box::walk(); element types without a size.
Status take_elements(Device& device, const Box<2>& box, const Coordinates& c, const Tensor& from,
                     Tensor& to, bool puts);

/// Types that add_lines() takes; the caller checks them before it writes anything.
inline bool is_added(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kFloat64 || dtype == DType::kInt32 ||
         dtype == DType::kInt64;
}
/// Adds lines of `width` elements to the rows of a matrix.
/// \param rows      row of each line, in process memory
/// \param replaces  rows that occur start as zero
/// Errors: rejects other types than f32, f64, i32 and i64, and 2^31 elements; kResource.
Status add_lines(Memory& memory, GroupedRows& grouped, llvm::ArrayRef<int64_t> rows,
                 const Tensor& lines, int64_t width, Tensor& matrix, bool replaces);
/// Sets rows of a matrix to their last line; lines == nullptr: to zeros. Errors: as add_lines(), of
/// elements without a size.
Status put_lines(Memory& memory, GroupedRows& grouped, llvm::ArrayRef<int64_t> rows,
                 const Tensor* lines, int64_t width, Tensor& matrix);

/// Slots of a gradient op whose forward op reads an index.
struct IndexSlots {
  const char* index;  ///< i32 or i64
  const char* dout;   ///< gradient of the result
  const char* dx;     ///< gradient of the operand
};
/// Its kernel: body(ctx, index, dout, dx) returns a Status; dx has the type of dout and other
/// memory. Nothing is computed if dx is not requested.
template <typename Body>
Kernel index_gradient(const KernelSetup& op, const IndexSlots& slots, Body body) {
  return Kernel([slots, index = op.input(slots.index), dout = op.input(slots.dout),
                 dx = op.output(slots.dx),
                 body = std::move(body)](const KernelContext& ctx) -> Status {
    Tensor* const to = ctx.find_out(dx);
    if (to == nullptr) return Ok();
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const d, needed_here(ctx, dout, slots.dout));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const numbers, needed_here(ctx, index, slots.index));
    if (!to->initialized() || d->dtype() != to->dtype() ||
        (d->raw() == to->raw() && d->bytes() > 0))
      return refuse("{} {} for {}", slots.dout, describe(*d), describe(*to));
    return body(ctx, *numbers, *d, *to);
  });
}

/// Copies the bytes of a tensor unless both have the same memory.
Status copy_all(Device& device, const Tensor& from, Tensor& to);

}  // namespace millrace::gpu

#include <algorithm>

#include "kernels/cpu/int_list.h"
#include "kernels/cpu/strided.h"
#include "kernels/kernel.h"
#include "kernels/registry.h"
#include "ops/infer_context.h"

// Joining tensors along a dim, and splitting one into parts. Relative to the axis, a tensor is a
// number of rows (the dims before the axis) of equal length (the other dims).
namespace millrace::kernels {
namespace concat_kernels {
namespace {

// Copies all of `part` to or from a range of columns of `whole`.
StridedBox rows_box(int64_t rows, int64_t part_row, int64_t whole_row, bool into_whole) {
  StridedBox box;
  box.push(rows, into_whole ? whole_row : part_row, into_whole ? part_row : whole_row);
  box.push(part_row, 1, 1);
  return box;
}

// A part may differ from the whole only along the axis.
Status check_part(const KernelContext& ctx, const Tensor& part, const Tensor& whole, size_t axis) {
  bool fits = part.dtype() == whole.dtype() && part.rank() == whole.rank();
  for (size_t d = 0; fits && d < part.rank(); ++d)
    fits = d == axis || part.dims()[d] == whole.dims()[d];
  if (fits) return Ok();
  return ctx.error("{} and {} must have the same element type, and dims except dim {}",
                   describe(part), describe(whole), axis);
}

// Dims of the joined operands. Errors: their ranks differ.
StatusOr<Dims> joined_dims(const KernelContext& ctx, ArgRange x, size_t axis) {
  Dims dims(ctx.in(x, 0).dims().begin(), ctx.in(x, 0).dims().end());
  for (int32_t k = 1; k < x.count; ++k) {
    const Tensor& part = ctx.in(x, k);
    if (part.rank() != dims.size())
      return ctx.error("X[{}] {} and X[0] must have the same rank {}", k, describe(part),
                       dims.size());
    dims[axis] += part.dims()[axis];
  }
  return dims;
}

StatusOr<Kernel> concat(const KernelSetup& op) {
  const ArgRange x = op.inputs("X");
  const AxisArg axis_arg(op, "axis", "AxisTensor");
  const ArgIndex out = op.output("Out");
  if (x.count == 0) return op.error("X has no tensors");
  return Kernel([=](const KernelContext& ctx) -> Status {
    const Tensor& first = ctx.in(x, 0);
    if (first.rank() == 0)
      return ctx.error("X must have at least one dim, found {}", describe(first));
    MILLRACE_ASSIGN_OR_RETURN(const int64_t found, axis_arg.read(ctx, first.rank()));
    const auto axis = static_cast<size_t>(found);
    Tensor& to = ctx.out(out);
    if (axis_arg.dynamic()) {
      MILLRACE_ASSIGN_OR_RETURN(const Dims dims, joined_dims(ctx, x, axis));
      MILLRACE_RETURN_IF_ERROR(size_output(to, first.dtype(), dims));
    }
    const int64_t bytes = dtype_size(to.dtype());
    const int64_t rows = ops::dims_product(to.dims().take_front(axis));
    const int64_t whole_row = ops::dims_product(to.dims().drop_front(axis));
    int64_t offset = 0;
    for (int32_t k = 0; k < x.count; ++k) {
      const Tensor& part = ctx.in(x, k);
      MILLRACE_RETURN_IF_ERROR(check_part(ctx, part, to, axis));
      const int64_t part_row = ops::dims_product(part.dims().drop_front(axis));
      copy_strided(ctx.device(), bytes, rows_box(rows, part_row, whole_row, /*into_whole=*/true),
                   to.raw() + offset * bytes, part.raw());
      offset += part_row;
    }
    return Ok();
  });
}

// Copies the columns of whole that start at offset into a part. Errors: they exceed the row.
Status take_part(const KernelContext& ctx, const Tensor& whole, Tensor& part, size_t axis,
                 int64_t offset) {
  MILLRACE_RETURN_IF_ERROR(check_part(ctx, part, whole, axis));
  const int64_t rows = ops::dims_product(whole.dims().take_front(axis));
  const int64_t whole_row = ops::dims_product(whole.dims().drop_front(axis));
  const int64_t part_row = ops::dims_product(part.dims().drop_front(axis));
  if (offset + part_row > whole_row)
    return ctx.error("the parts are longer than dim {} of {}", axis, describe(whole));
  const int64_t bytes = dtype_size(whole.dtype());
  copy_strided(ctx.device(), bytes, rows_box(rows, part_row, whole_row, /*into_whole=*/false),
               part.raw(), whole.raw() + offset * bytes);
  return Ok();
}

StatusOr<Kernel> concat_grad(const KernelSetup& op) {
  const ArgRange x = op.inputs("X");
  const AxisArg axis_arg(op, "axis", "AxisTensor");
  const ArgIndex grad = op.input("Out@GRAD");
  const ArgRange x_grad = op.outputs("X@GRAD");
  return Kernel([=](const KernelContext& ctx) -> Status {
    const Tensor* const whole = ctx.find_in(grad);
    int64_t axis = 0;
    if (x.count > 0) {
      MILLRACE_ASSIGN_OR_RETURN(axis, axis_arg.read(ctx, ctx.in(x, 0).rank()));
    }
    int64_t offset = 0;
    for (int32_t k = 0; k < x.count && k < x_grad.count; ++k) {
      const Tensor& operand = ctx.in(x, k);
      if (ctx.has_out(x_grad, k)) {
        Tensor& part = ctx.out(x_grad, k);
        if (whole == nullptr) {
          fill_zero(ctx.device(), part);
        } else {
          MILLRACE_RETURN_IF_ERROR(take_part(ctx, *whole, part, static_cast<size_t>(axis), offset));
        }
      }
      offset += ops::dims_product(operand.dims().drop_front(static_cast<size_t>(axis)));
    }
    return Ok();
  });
}

// Sizes of the parts along the axis, if inference cannot know them.
StatusOr<Ints> part_sizes(const KernelContext& ctx, const Ints& sections, int64_t size,
                          int32_t outputs) {
  Ints sizes = sections;
  if (sizes.empty()) {
    if (size % outputs != 0)
      return ctx.error("{} equal parts do not divide a dim of {}", outputs, size);
    return Ints(static_cast<size_t>(outputs), size / outputs);
  }
  int64_t sum = 0;
  int64_t* open = nullptr;
  for (int64_t& section : sizes) {
    if (section < -1 || section > size || (section == -1 && open != nullptr))
      return ctx.error("the sections {} do not fit a dim of {}", ops::dims_text(sizes), size);
    if (section == -1) {
      open = &section;
    } else {
      sum += section;
    }
  }
  if (open != nullptr) *open = size - sum;
  const bool fits = open != nullptr ? sum <= size : sum == size;
  if (!fits || sizes.size() != static_cast<size_t>(outputs)) {
    return ctx.error("the sections {} must be {} and add up to {}", ops::dims_text(sections),
                     outputs, size);
  }
  return sizes;
}

StatusOr<Kernel> split(const KernelSetup& op) {
  const ArgIndex x = op.input("X");
  const AxisArg axis_arg(op, "axis", "AxisTensor");
  const IntList sections(op, "sections", "", "SectionsTensorList");
  const ArgRange out = op.outputs("Out");
  const bool dynamic = axis_arg.dynamic() || sections.dynamic();
  if (out.count == 0) return op.error("Out has no vars");
  return Kernel([=](const KernelContext& ctx) -> Status {
    const Tensor& whole = ctx.in(x);
    if (whole.rank() == 0) return ctx.error("X must have at least one dim");
    MILLRACE_ASSIGN_OR_RETURN(const int64_t axis, axis_arg.read(ctx, whole.rank()));
    const auto at = static_cast<size_t>(axis);
    Ints sizes;
    if (dynamic) {
      MILLRACE_ASSIGN_OR_RETURN(const Ints wanted, sections.read(ctx));
      MILLRACE_ASSIGN_OR_RETURN(sizes, part_sizes(ctx, wanted, whole.dims()[at], out.count));
    }
    const int64_t inner = ops::dims_product(whole.dims().drop_front(at + 1));
    int64_t offset = 0;
    for (int32_t k = 0; k < out.count; ++k) {
      if (!ctx.has_out(out, k)) {
        if (!dynamic)
          return ctx.error("Out[{}] is absent, so the size of its part is not known", k);
        offset += sizes[static_cast<size_t>(k)] * inner;
        continue;
      }
      Tensor& part = ctx.out(out, k);
      if (dynamic) {
        Dims dims(whole.dims().begin(), whole.dims().end());
        dims[at] = sizes[static_cast<size_t>(k)];
        MILLRACE_RETURN_IF_ERROR(size_output(part, whole.dtype(), dims));
      }
      MILLRACE_RETURN_IF_ERROR(take_part(ctx, whole, part, at, offset));
      offset += part.dims()[at] * inner;
    }
    return Ok();
  });
}

}  // namespace
}  // namespace concat_kernels

void add_tensor_concat(KernelRegistry& registry) {
  using namespace concat_kernels;
  registry.add("concat", concat);
  registry.add("concat_grad", concat_grad);
  registry.add("split", split);
}

}  // namespace millrace::kernels

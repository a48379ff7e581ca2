#include <algorithm>
#include <optional>

#include "kernels/cpu/gradient.h"
#include "kernels/cpu/int_list.h"
#include "kernels/cpu/strided.h"
#include "kernels/dispatch.h"
#include "kernels/kernel.h"
#include "kernels/registry.h"
#include "ops/infer_context.h"

// Ops whose output has the elements of the input in the same order. If the memory plan lets the
// output use the input's memory, nothing is copied.
namespace millrace::kernels {
namespace reshape_kernels {
namespace {

Status copy_elements(const KernelContext& ctx, const Tensor& from, Tensor& to) {
  if (to.numel() != from.numel() || to.dtype() != from.dtype()) {
    return ctx.error("{} cannot hold the elements of {}", describe(to), describe(from));
  }
  copy_bytes(ctx.device(), to.raw(), from.raw(), from.bytes());
  return Ok();
}

// The dims are those that inference set for the output.
StatusOr<Kernel> same_elements(const KernelSetup& op) {
  const ArgIndex x = op.input("X");
  const ArgIndex out = op.output("Out");
  return Kernel([=](const KernelContext& ctx) -> Status {
    return copy_elements(ctx, ctx.in(x), ctx.out(out));
  });
}

StatusOr<Kernel> same_elements_grad(const KernelSetup& op) {
  const GradientArgs gradient(op);
  return Kernel([=](const KernelContext& ctx) -> Status {
    const GradientTensors g = gradient.find(ctx, StartsAs::kUnset);
    if (g.to == nullptr) return Ok();
    if (!g.to->initialized())
      return ctx.error(
          "X and XShape are both missing, one of which must determine the shape of X@GRAD");
    return g ? copy_elements(ctx, *g.from, *g.to) : Ok();
  });
}

// Replaces 0 by the dim of X at the same position and -1 by the remaining size.
Status solve_shape(const KernelContext& ctx, const Tensor& x, Ints& shape) {
  int64_t product = 1;
  std::optional<size_t> open;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 0 && i < x.rank()) shape[i] = x.dims()[i];
    if (shape[i] == -1 && !open) {
      open = i;
      continue;
    }
    if (shape[i] < 0 || __builtin_mul_overflow(product, shape[i], &product))
      return ctx.error("the shape {} is invalid for X {}", ops::dims_text(shape), describe(x));
  }
  if (open) shape[*open] = product == 0 ? 0 : x.numel() / product;
  const int64_t found = open ? product * shape[*open] : product;
  if (found == x.numel()) return Ok();
  return ctx.error("the shape {} does not fit the {} elements of X {}", ops::dims_text(shape),
                   x.numel(), describe(x));
}

StatusOr<Kernel> reshape_kernel(const KernelSetup& op) {
  const IntList shape(op, "shape", "Shape", "ShapeTensor");
  if (!shape.dynamic()) return same_elements(op);
  const ArgIndex x = op.input("X");
  const ArgIndex out = op.output("Out");
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(Ints dims, shape.read(ctx));
    const Tensor& from = ctx.in(x);
    MILLRACE_RETURN_IF_ERROR(solve_shape(ctx, from, dims));
    MILLRACE_RETURN_IF_ERROR(size_output(ctx.out(out), from.dtype(), dims));
    return copy_elements(ctx, from, ctx.out(out));
  });
}

StatusOr<Kernel> unsqueeze(const KernelSetup& op) {
  const IntList axes(op, "axes", "AxesTensor", "AxesTensorList");
  if (!axes.dynamic()) return same_elements(op);
  const ArgIndex x = op.input("X");
  const ArgIndex out = op.output("Out");
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Ints inserted, axes.read(ctx));
    const Tensor& from = ctx.in(x);
    Dims dims(from.dims().begin(), from.dims().end());
    for (const int64_t axis : inserted) {
      MILLRACE_ASSIGN_OR_RETURN(const int64_t at, axis_of(axis, dims.size() + 1));
      dims.insert(dims.begin() + at, 1);
    }
    MILLRACE_RETURN_IF_ERROR(size_output(ctx.out(out), from.dtype(), dims));
    return copy_elements(ctx, from, ctx.out(out));
  });
}

}  // namespace
}  // namespace reshape_kernels

void add_tensor_reshape(KernelRegistry& registry) {
  using namespace reshape_kernels;
  for (const char* const type :
       {"squeeze", "squeeze2", "flatten", "flatten2", "flatten_contiguous_range"})
    registry.add(type, same_elements);
  for (const char* const type : {"reshape", "reshape2"}) registry.add(type, reshape_kernel);
  for (const char* const type : {"unsqueeze", "unsqueeze2"}) registry.add(type, unsqueeze);
  for (const char* const type : {"squeeze_grad", "squeeze2_grad", "flatten_grad", "flatten2_grad",
                                 "flatten_contiguous_range_grad", "reshape_grad", "reshape2_grad",
                                 "unsqueeze_grad", "unsqueeze2_grad"})
    registry.add(type, same_elements_grad);
}

}  // namespace millrace::kernels

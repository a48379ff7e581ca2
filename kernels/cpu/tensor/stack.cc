#include <algorithm>

#include "kernels/cpu/int_list.h"
#include "kernels/cpu/strided.h"
#include "kernels/kernel.h"
#include "kernels/registry.h"
#include "ops/infer_context.h"

// Joining tensors along a new dim, and splitting one along a dim. Slot names differ between the
// ops; there are two operations.
namespace millrace::kernels {
namespace stack_kernels {
namespace {

// Boxes between element k of dim axis of `whole` and all of `part`.
struct Layer {
  StridedBox into_whole;
  StridedBox into_part;
  int64_t step;  // elements between two layers

  Layer(const Tensor& whole, size_t axis) {
    const int64_t rows = ops::dims_product(whole.dims().take_front(axis));
    const int64_t row = ops::dims_product(whole.dims().drop_front(axis));
    step = ops::dims_product(whole.dims().drop_front(axis + 1));
    into_whole.push(rows, row, step);
    into_whole.push(step, 1, 1);
    into_part = into_whole;
    std::swap(into_part.to, into_part.from);
  }
};

Status check_part(const KernelContext& ctx, const Tensor& part, const Tensor& whole, int64_t size) {
  if (part.dtype() == whole.dtype() && part.numel() * size == whole.numel()) return Ok();
  return ctx.error("{} is not a part of {}", describe(part), describe(whole));
}

// Joins the parts in order; an absent part is filled with zeros.
Status join(const KernelContext& ctx, ArgRange parts, Tensor& whole, int64_t axis) {
  const Layer layer(whole, static_cast<size_t>(axis));
  const int64_t bytes = dtype_size(whole.dtype());
  if (whole.dims()[static_cast<size_t>(axis)] != parts.count)
    return ctx.error("{} parts do not make up dim {} of {}", parts.count, axis, describe(whole));
  for (int32_t k = 0; k < parts.count; ++k)
    if (!ctx.has_in(parts, k)) {
      fill_zero(ctx.device(), whole);
      break;
    }
  for (int32_t k = 0; k < parts.count; ++k) {
    if (!ctx.has_in(parts, k)) continue;
    const Tensor& part = ctx.in(parts, k);
    MILLRACE_RETURN_IF_ERROR(check_part(ctx, part, whole, parts.count));
    copy_strided(ctx.device(), bytes, layer.into_whole, whole.raw() + k * layer.step * bytes,
                 part.raw());
  }
  return Ok();
}

Status take_apart(const KernelContext& ctx, const Tensor& whole, ArgRange parts, int64_t axis) {
  const Layer layer(whole, static_cast<size_t>(axis));
  const int64_t bytes = dtype_size(whole.dtype());
  if (whole.dims()[static_cast<size_t>(axis)] != parts.count) {
    return ctx.error("dim {} of {} must be the number of outputs, {}", axis, describe(whole),
                     parts.count);
  }
  for (int32_t k = 0; k < parts.count; ++k) {
    if (!ctx.has_out(parts, k)) continue;
    Tensor& part = ctx.out(parts, k);
    MILLRACE_RETURN_IF_ERROR(check_part(ctx, part, whole, parts.count));
    copy_strided(ctx.device(), bytes, layer.into_part, part.raw(),
                 whole.raw() + k * layer.step * bytes);
  }
  return Ok();
}

StatusOr<Kernel> make_join(const KernelSetup& op, llvm::StringRef in, llvm::StringRef out) {
  const ArgRange parts = op.inputs(in);
  const ArgIndex to = op.output(out);
  const auto axis = op.attr<int64_t>("axis");
  return Kernel([=](const KernelContext& ctx) -> Status {
    Tensor* const whole = ctx.find_out(to);
    if (whole == nullptr) return Ok();
    MILLRACE_ASSIGN_OR_RETURN(const int64_t at, axis_of(axis, whole->rank()));
    return join(ctx, parts, *whole, at);
  });
}

StatusOr<Kernel> make_take_apart(const KernelSetup& op, llvm::StringRef in, llvm::StringRef out) {
  const ArgIndex from = op.input(in);
  const ArgRange parts = op.outputs(out);
  const auto axis = op.attr<int64_t>("axis");
  return Kernel([=](const KernelContext& ctx) -> Status {
    const Tensor* const whole = ctx.find_in(from);
    if (whole == nullptr) {
      for (int32_t k = 0; k < parts.count; ++k)
        if (ctx.has_out(parts, k)) fill_zero(ctx.device(), ctx.out(parts, k));
      return Ok();
    }
    if (whole->rank() == 0) return ctx.error("a tensor without dims cannot be split");
    MILLRACE_ASSIGN_OR_RETURN(const int64_t at, axis_of(axis, whole->rank()));
    return take_apart(ctx, *whole, parts, at);
  });
}

StatusOr<Kernel> stack(const KernelSetup& op) {
  return make_join(op, "X", "Y");
}
StatusOr<Kernel> stack_grad(const KernelSetup& op) {
  return make_take_apart(op, "Y@GRAD", "X@GRAD");
}
StatusOr<Kernel> unstack(const KernelSetup& op) {
  return make_take_apart(op, "X", "Y");
}
StatusOr<Kernel> unstack_grad(const KernelSetup& op) {
  return make_join(op, "Y@GRAD", "X@GRAD");
}
StatusOr<Kernel> unbind(const KernelSetup& op) {
  return make_take_apart(op, "X", "Out");
}

}  // namespace
}  // namespace stack_kernels

void add_tensor_stack(KernelRegistry& registry) {
  using namespace stack_kernels;
  registry.add("stack", stack);
  registry.add("stack_grad", stack_grad);
  registry.add("unstack", unstack);
  registry.add("unstack_grad", unstack_grad);
  registry.add("unbind", unbind);
}

}  // namespace millrace::kernels

#include "kernels/cpu/gradient.h"
#include "kernels/cpu/int_list.h"
#include "kernels/cpu/strided.h"
#include "kernels/kernel.h"
#include "kernels/registry.h"
#include "ops/infer_context.h"

// Ops that repeat a tensor along dims; their gradients sum over the repetitions.
namespace millrace::kernels {
namespace {

// Box that repeats x to dims; to: the large tensor, from: x, whose dims are aligned at the end.
// Each dim of the large tensor is a multiple of the dim of x.
StatusOr<StridedBox> repeated_box(const KernelContext& ctx, llvm::ArrayRef<int64_t> x,
                                  llvm::ArrayRef<int64_t> large) {
  const Dims x_strides = row_major(x);
  const Dims strides = row_major(large);
  StridedBox box;
  bool fits = large.size() >= x.size();
  const size_t lead = fits ? large.size() - x.size() : 0;
  for (size_t i = 0; fits && i < large.size(); ++i) {
    const int64_t dim = i < lead ? 1 : x[i - lead];
    fits = dim == 0 ? large[i] == 0 : large[i] % dim == 0;
    if (!fits) break;
    box.push(dim == 0 ? 0 : large[i] / dim, strides[i] * dim, 0);
    if (i >= lead) box.push(dim, strides[i], x_strides[i - lead]);
  }
  if (fits) return box;
  return ctx.error("{} is not a multiple of {}", ops::dims_text(large), ops::dims_text(x));
}

Status repeat(const KernelContext& ctx, const Tensor& x, Tensor& out) {
  MILLRACE_ASSIGN_OR_RETURN(const StridedBox box, repeated_box(ctx, x.dims(), out.dims()));
  MILLRACE_ASSIGN_OR_RETURN(const std::byte* const bytes, bytes_apart(ctx.device(), x, out));
  copy_strided(ctx.device(), dtype_size(x.dtype()), box, out.raw(), bytes);
  return Ok();
}

// Out has the dims of X times counts; the shorter list is extended with 1 at the front.
Status size_by_counts(const KernelContext& ctx, const Tensor& x, const Ints& counts, Tensor& out) {
  const size_t rank = std::max(x.rank(), counts.size());
  Dims dims(rank, 1);
  for (size_t i = 0; i < x.rank(); ++i) dims[rank - x.rank() + i] = x.dims()[i];
  for (size_t i = 0; i < counts.size(); ++i) {
    int64_t& dim = dims[rank - counts.size() + i];
    if (counts[i] < 0 || __builtin_mul_overflow(dim, counts[i], &dim))
      return ctx.error("dim {} of X {} cannot be repeated {} times", i, describe(x), counts[i]);
  }
  return size_output(out, x.dtype(), dims);
}

StatusOr<Kernel> make_repeat(const KernelSetup& op, const IntList& counts) {
  const ArgIndex x = op.input("X");
  const ArgIndex out = op.output("Out");
  return Kernel([=](const KernelContext& ctx) -> Status {
    const Tensor& from = ctx.in(x);
    Tensor& to = ctx.out(out);
    MILLRACE_ASSIGN_OR_RETURN(const Ints times, counts.read(ctx));
    MILLRACE_RETURN_IF_ERROR(size_by_counts(ctx, from, times, to));
    return repeat(ctx, from, to);
  });
}

StatusOr<Kernel> expand_kernel(const KernelSetup& op) {
  return make_repeat(op, IntList(op, "expand_times", "ExpandTimes", "expand_times_tensor"));
}
StatusOr<Kernel> tile(const KernelSetup& op) {
  return make_repeat(op, IntList(op, "repeat_times", "RepeatTimes", "repeat_times_tensor"));
}

StatusOr<Kernel> expand_v2(const KernelSetup& op) {
  const ArgIndex x = op.input("X");
  const ArgIndex out = op.output("Out");
  const IntList shape(op, "shape", "Shape", "expand_shapes_tensor");
  return Kernel([=](const KernelContext& ctx) -> Status {
    const Tensor& from = ctx.in(x);
    Tensor& to = ctx.out(out);
    MILLRACE_ASSIGN_OR_RETURN(const Ints wanted, shape.read(ctx));
    Dims dims(wanted.begin(), wanted.end());
    const size_t lead = dims.size() - from.rank();
    for (size_t i = 0; i < dims.size(); ++i) {
      if (dims.size() < from.rank() || (dims[i] < 0 && i < lead))
        return ctx.error("X {} cannot get the shape {}", describe(from), ops::dims_text(wanted));
      if (dims[i] < 0) dims[i] = from.dims()[i - lead];
    }
    MILLRACE_RETURN_IF_ERROR(size_output(to, from.dtype(), dims));
    return repeat(ctx, from, to);
  });
}

// Inference has set the dims.
StatusOr<Kernel> expand_as(const KernelSetup& op) {
  const ArgIndex x = op.input("X");
  const ArgIndex out = op.output("Out");
  return Kernel(
      [=](const KernelContext& ctx) -> Status { return repeat(ctx, ctx.in(x), ctx.out(out)); });
}

StridedBox reversed(StridedBox box) {
  std::swap(box.to, box.from);
  return box;
}

StatusOr<Kernel> repeat_grad(const KernelSetup& op) {
  const GradientArgs gradient(op);
  return Kernel([=](const KernelContext& ctx) -> Status {
    const GradientTensors g = gradient.find(ctx, StartsAs::kUnset);
    if (!g) return Ok();
    if (g.from->dtype() != g.to->dtype())
      return ctx.error("Out@GRAD {} and X@GRAD {} must have the same element type",
                       describe(*g.from), describe(*g.to));
    MILLRACE_ASSIGN_OR_RETURN(const StridedBox box,
                              repeated_box(ctx, g.to->dims(), g.from->dims()));
    if (g.from->numel() == g.to->numel()) {
      copy_bytes(ctx.device(), g.to->raw(), g.from->raw(), g.from->bytes());
      return Ok();
    }
    return sum_strided(ctx.device(), reversed(box), *g.to, *g.from);
  });
}

// Box that repeats operand k of a meshgrid over its grid.
StridedBox grid_box(llvm::ArrayRef<int64_t> grid, size_t k) {
  StridedBox box;
  box.dims.assign(grid.begin(), grid.end());
  box.to = row_major(grid);
  box.from.assign(grid.size(), 0);
  box.from[k] = 1;
  return box;
}

StatusOr<Kernel> meshgrid(const KernelSetup& op) {
  const ArgRange x = op.inputs("X");
  const ArgRange out = op.outputs("Out");
  return Kernel([=](const KernelContext& ctx) -> Status {
    for (int32_t k = 0; k < out.count; ++k) {
      if (!ctx.has_out(out, k)) continue;
      const Tensor& from = ctx.in(x, k);
      Tensor& to = ctx.out(out, k);
      copy_strided(ctx.device(), dtype_size(from.dtype()),
                   grid_box(to.dims(), static_cast<size_t>(k)), to.raw(), from.raw());
    }
    return Ok();
  });
}

StatusOr<Kernel> meshgrid_grad(const KernelSetup& op) {
  ArgRange grad = op.inputs("outputs@GRAD");
  if (grad.count == 0) grad = op.inputs("Out@GRAD");
  const ArgRange x_grad = op.outputs("X@GRAD");
  return Kernel([=](const KernelContext& ctx) -> Status {
    for (int32_t k = 0; k < x_grad.count; ++k) {
      if (!ctx.has_out(x_grad, k)) continue;
      Tensor& to = ctx.out(x_grad, k);
      if (k >= grad.count || !ctx.has_in(grad, k)) {
        fill_zero(ctx.device(), to);
        continue;
      }
      const Tensor& from = ctx.in(grad, k);
      const auto at = static_cast<size_t>(k);
      if (from.rank() <= at || from.dims()[at] != to.numel() || from.dtype() != to.dtype())
        return ctx.error("{} is not a gradient of a grid over X[{}] {}", describe(from), k,
                         describe(to));
      MILLRACE_RETURN_IF_ERROR(
          sum_strided(ctx.device(), reversed(grid_box(from.dims(), at)), to, from));
    }
    return Ok();
  });
}

}  // namespace

void add_tensor_expand(KernelRegistry& registry) {
  registry.add("expand", expand_kernel);
  registry.add("tile", tile);
  registry.add("expand_v2", expand_v2);
  registry.add("expand_as", expand_as);
  registry.add("expand_as_v2", expand_as);
  for (const char* const type :
       {"expand_grad", "tile_grad", "expand_v2_grad", "expand_as_grad", "expand_as_v2_grad"})
    registry.add(type, repeat_grad);
  registry.add("meshgrid", meshgrid);
  registry.add("meshgrid_grad", meshgrid_grad);
}

}  // namespace millrace::kernels

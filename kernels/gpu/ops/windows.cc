#include "kernels/cpu/nn/patches.h"
#include "kernels/gpu/ops/args.h"
#include "kernels/gpu/resident.h"
#include "kernels/registry.h"

// unfold and im2sequence: the windows of images as matrices.
namespace millrace::gpu {
namespace windows {
namespace {

// Errors: rejects images without a position for the window.
StatusOr<WindowMatrix> matrix_of(const kernels::PatchAttrs& attrs, const Tensor& x,
                                 bool place_first) {
  const StatusOr<kernels::Patches> p = kernels::patches_of(attrs, x);
  if (!p.ok()) return refuse("{}", p.status().message());
  WindowMatrix matrix;
  matrix.channels = p->channels;
  matrix.place_first = place_first;
  for (size_t i = 0; i < 2; ++i) {
    matrix.sides[i + 1] = {p->size[i],    p->places[i],    p->kernel[i],
                           p->strides[i], p->dilations[i], p->before[i]};
  }
  return matrix;
}

Status gather(Device& device, const WindowMatrix& m, const Tensor& x, Tensor& to) {
  const int64_t count = x.dim(0) * m.elements() * m.places();
  if (to.dtype() != DType::kFloat32 || to.numel() != count) return refuse("{}", describe(to));
  return each(device, CopyWindows{m, floats(x), floats(to)}, count);
}

StatusOr<Kernel> unfold(const KernelSetup& op) {
  return Kernel([attrs = kernels::read_patch_attrs(op, "kernel_sizes"), &device = device_of(op),
                 x = op.input("X"), y = op.output("Y")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const from, needed_here(ctx, x, "X"));
    MILLRACE_RETURN_IF_ERROR(all_floats({from}));
    MILLRACE_ASSIGN_OR_RETURN(const WindowMatrix m, matrix_of(attrs, *from, false));
    return gather(device, m, *from, ctx.out(y));
  });
}

StatusOr<Kernel> im2sequence(const KernelSetup& op) {
  if (op.input("Y")) return refuse("sizes given by a tensor");
  return Kernel([attrs = kernels::read_patch_attrs(op, "kernels"), &memory = memory_of(op),
                 x = op.input("X"), out = op.output("Out")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const from, needed_here(ctx, x, "X"));
    MILLRACE_RETURN_IF_ERROR(all_floats({from}));
    MILLRACE_ASSIGN_OR_RETURN(const WindowMatrix m, matrix_of(attrs, *from, true));
    Tensor& to = ctx.out(out);
    MILLRACE_RETURN_IF_ERROR(resize_resident(
        to, DType::kFloat32, {from->dim(0) * m.places(), m.elements()}, memory, "im2sequence"));
    LodLevel offsets = {0};
    for (int64_t n = 0; n < from->dim(0); ++n) offsets.push_back(offsets.back() + m.places());
    to.set_lod(Lod({offsets}));
    return gather(memory.device(), m, *from, to);
  });
}

// The gradients of both: sums over the windows that contain an element.
StatusOr<Kernel> gradient(const KernelSetup& op, const char* kernel_attr, const char* out,
                          bool place_first) {
  return Kernel([attrs = kernels::read_patch_attrs(op, kernel_attr), &device = device_of(op),
                 x = op.input("X"), dout = op.input(out), dx = op.output("X@GRAD"),
                 place_first](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const FloatGradient g, float_gradient(ctx, x, "X", dout, dx));
    if (g.dx == nullptr) return Ok();
    MILLRACE_ASSIGN_OR_RETURN(const WindowMatrix m, matrix_of(attrs, *g.y, place_first));
    if (g.dy->numel() != g.y->dim(0) * m.elements() * m.places())
      return refuse("{}", describe(*g.dy));
    return each(device, AddWindows{m, floats(g.dy), floats(g.dx)}, g.dx->numel());
  });
}
StatusOr<Kernel> unfold_grad(const KernelSetup& op) {
  return gradient(op, "kernel_sizes", "Y@GRAD", false);
}
StatusOr<Kernel> im2sequence_grad(const KernelSetup& op) {
  if (op.input("Y")) return refuse("sizes given by a tensor");
  return gradient(op, "kernels", "Out@GRAD", true);
}

}  // namespace
}  // namespace windows

void add_windows(KernelRegistry& registry) {
  registry.add("unfold", windows::unfold);
  registry.add("unfold_grad", windows::unfold_grad);
  registry.add("im2sequence", windows::im2sequence);
  registry.add("im2sequence_grad", windows::im2sequence_grad);
}

}  // namespace millrace::gpu

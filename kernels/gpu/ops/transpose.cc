#include "kernels/gpu/ops/walk.h"
#include "kernels/registry.h"

// Permuted dims, of elements of any type.
namespace millrace::gpu {
namespace {

using Permutation = std::vector<int64_t>;

// Dim i of `to` is dim axis[i] of `from`.
Status permute(Device& device, const Permutation& axis, const Tensor& from, Tensor& to) {
  if (from.rank() != axis.size() || to.rank() != axis.size() || from.dtype() != to.dtype() ||
      from.numel() != to.numel() || from.raw() == to.raw())
    return refuse("{} becomes {}", describe(from), describe(to));
  const auto from_strides = row_major_strides(from.dims());
  const auto to_strides = row_major_strides(to.dims());
  Box<2> box;
  for (size_t i = 0; i < axis.size(); ++i)
    box.push(to.dims()[i], {to_strides[i], from_strides[static_cast<size_t>(axis[i])]});
  return move_elements(device, box, to, 0, from, 0);
}

StatusOr<Kernel> permutation(const KernelSetup& op, const char* from_slot, const char* to_slot,
                             bool inverse) {
  auto axis = op.attr<Permutation>("axis");
  Permutation inverted(axis.size(), -1);
  for (size_t i = 0; i < axis.size(); ++i) {
    if (axis[i] < 0) axis[i] += static_cast<int64_t>(axis.size());
    if (axis[i] < 0 || axis[i] >= static_cast<int64_t>(axis.size()) ||
        inverted[static_cast<size_t>(axis[i])] != -1)
      return refuse("attribute 'axis' is no permutation");
    inverted[static_cast<size_t>(axis[i])] = static_cast<int64_t>(i);
  }
  return Kernel([&device = device_of(op), axis = inverse ? inverted : axis, from_slot,
                 from = op.input(from_slot),
                 to = op.output(to_slot)](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const x, needed_here(ctx, from, from_slot));
    Tensor* const y = ctx.find_out(to);
    return y == nullptr ? Ok() : permute(device, axis, *x, *y);
  });
}

StatusOr<Kernel> gpu_transpose(const KernelSetup& op) {
  return permutation(op, "X", "Out", /*inverse=*/false);
}
StatusOr<Kernel> gpu_transpose_grad(const KernelSetup& op) {
  return permutation(op, "Out@GRAD", "X@GRAD", /*inverse=*/true);
}

}  // namespace

void add_transpose(KernelRegistry& registry) {
  registry.add("transpose", gpu_transpose);
  registry.add("transpose2", gpu_transpose);
  registry.add("transpose_grad", gpu_transpose_grad);
  registry.add("transpose2_grad", gpu_transpose_grad);
}

}  // namespace millrace::gpu

#include "kernels/cpu/gradient.h"
#include "kernels/cpu/strided.h"
#include "kernels/kernel.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace transpose_kernels {
namespace {

using Longs = std::vector<int64_t>;

// Dim i of one tensor is dim axis[i] of the other; the box uses the dims of the written tensor.
StridedBox box_of(const Tensor& from, const Tensor& to, const Longs& axis) {
  const Dims from_strides = row_major(from.dims());
  const Dims to_strides = row_major(to.dims());
  StridedBox box;
  for (size_t i = 0; i < axis.size(); ++i)
    box.push(to.dims()[i], to_strides[i], from_strides[static_cast<size_t>(axis[i])]);
  return box;
}

StatusOr<Longs> read_axis(const KernelSetup& op) {
  auto axis = op.attr<Longs>("axis");
  const auto rank = static_cast<int64_t>(axis.size());
  std::vector<bool> used(axis.size(), false);
  for (int64_t& from : axis) {
    if (from < 0) from += rank;
    if (from < 0 || from >= rank || used[static_cast<size_t>(from)])
      return op.error("attribute 'axis' must be a permutation of {} dims", rank);
    used[static_cast<size_t>(from)] = true;
  }
  return axis;
}

Status check_ranks(const KernelContext& ctx, const Tensor& from, const Tensor& to, size_t rank) {
  if (from.rank() == rank && to.rank() == rank && from.dtype() == to.dtype()) return Ok();
  return ctx.error("attribute 'axis' has {} entries, which cannot permute {} to {}", rank,
                   describe(from), describe(to));
}

StatusOr<Kernel> transpose(const KernelSetup& op) {
  const ArgIndex x = op.input("X");
  const ArgIndex out = op.output("Out");
  MILLRACE_ASSIGN_OR_RETURN(const Longs axis, read_axis(op));
  return Kernel([=](const KernelContext& ctx) -> Status {
    const Tensor& from = ctx.in(x);
    Tensor& to = ctx.out(out);
    MILLRACE_RETURN_IF_ERROR(check_ranks(ctx, from, to, axis.size()));
    MILLRACE_ASSIGN_OR_RETURN(const std::byte* const bytes, bytes_apart(ctx.device(), from, to));
    copy_strided(ctx.device(), dtype_size(from.dtype()), box_of(from, to, axis), to.raw(), bytes);
    return Ok();
  });
}

StatusOr<Kernel> transpose_grad(const KernelSetup& op) {
  const GradientArgs gradient(op);
  MILLRACE_ASSIGN_OR_RETURN(const Longs axis, read_axis(op));
  Longs inverse(axis.size());
  for (size_t i = 0; i < axis.size(); ++i)
    inverse[static_cast<size_t>(axis[i])] = static_cast<int64_t>(i);
  return Kernel([=](const KernelContext& ctx) -> Status {
    const GradientTensors g = gradient.find(ctx, StartsAs::kUnset);
    if (!g) return Ok();
    MILLRACE_RETURN_IF_ERROR(check_ranks(ctx, *g.from, *g.to, axis.size()));
    copy_strided(ctx.device(), dtype_size(g.from->dtype()), box_of(*g.from, *g.to, inverse),
                 g.to->raw(), g.from->raw());
    return Ok();
  });
}

}  // namespace
}  // namespace transpose_kernels

void add_tensor_transpose(KernelRegistry& registry) {
  using namespace transpose_kernels;
  registry.add("transpose", transpose);
  registry.add("transpose2", transpose);
  registry.add("transpose_grad", transpose_grad);
  registry.add("transpose2_grad", transpose_grad);
}

}  // namespace millrace::kernels

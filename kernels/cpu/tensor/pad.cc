#include "kernels/cpu/tensor/cut.h"
#include "kernels/dispatch.h"
#include "kernels/kernel.h"
#include "kernels/registry.h"

// pad and pad_constant_like: a border with one value around a tensor.
namespace millrace::kernels {
namespace pad_kernels {
namespace {

using Cuts = llvm::SmallVector<Cut, 6>;
using Longs = std::vector<int64_t>;

// The elements that a small tensor and a padded one share, as a range in each; both have the same
// size.
struct Overlap {
  Cuts of_small;
  Cuts of_padded;
};

// Negative padding cuts off elements of the small tensor.
Overlap overlap_of(llvm::ArrayRef<int64_t> small, llvm::ArrayRef<int64_t> padded,
                   llvm::ArrayRef<int64_t> before) {
  Overlap out;
  for (size_t i = 0; i < small.size(); ++i) {
    const int64_t skipped = std::max<int64_t>(-before[i], 0);
    const int64_t start = std::max<int64_t>(before[i], 0);
    const int64_t count = std::max<int64_t>(0, std::min(small[i] - skipped, padded[i] - start));
    out.of_small.push_back({skipped, count, 1});
    out.of_padded.push_back({start, count, 1});
  }
  return out;
}

// Copies the shared elements.
void copy_overlap(CpuDevice& device, const Overlap& overlap, bool into_padded, Tensor& to,
                  const Tensor& from) {
  const CutBox to_cut(to.dims(), into_padded ? overlap.of_padded : overlap.of_small);
  const CutBox from_cut(from.dims(), into_padded ? overlap.of_small : overlap.of_padded);
  StridedBox box = from_cut.box;
  box.to = to_cut.box.from;
  const int64_t size = dtype_size(to.dtype());
  copy_strided(device, size, box, to.raw() + to_cut.offset * size,
               from.raw() + from_cut.offset * size);
}

Status fill_pad(CpuDevice& device, Tensor& to, double value) {
  if (value == 0) {
    fill_zero(device, to);
    return Ok();
  }
  return dispatch<AllTypes>(to.dtype(), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    const T element = static_cast<T>(static_cast<Compute<T>>(value));
    std::fill_n(to.data<T>(), to.numel(), element);
    return Ok();
  });
}

Status check_ranks(const KernelContext& ctx, const Tensor& small, const Tensor& padded,
                   size_t rank) {
  if (small.rank() == rank && padded.rank() == rank && small.dtype() == padded.dtype()) return Ok();
  return ctx.error("{} padded cannot be {}", describe(small), describe(padded));
}

Longs every_second(const Longs& paddings) {
  Longs before;
  for (size_t i = 0; i + 1 < paddings.size(); i += 2) before.push_back(paddings[i]);
  return before;
}

StatusOr<Kernel> make(const KernelSetup& op, llvm::StringRef small, Longs before) {
  const ArgIndex x = op.input(small);
  const ArgIndex out = op.output("Out");
  const double value = op.attr<float>("pad_value");
  return Kernel([=](const KernelContext& ctx) -> Status {
    const Tensor& from = ctx.in(x);
    Tensor& to = ctx.out(out);
    Longs start = before;
    start.resize(from.rank(), 0);
    MILLRACE_RETURN_IF_ERROR(
        check_ranks(ctx, from, to, before.empty() ? from.rank() : before.size()));
    if (from.numel() != to.numel()) MILLRACE_RETURN_IF_ERROR(fill_pad(ctx.device(), to, value));
    copy_overlap(ctx.device(), overlap_of(from.dims(), to.dims(), start), /*into_padded=*/true, to,
                 from);
    return Ok();
  });
}

StatusOr<Kernel> make_grad(const KernelSetup& op, llvm::StringRef small_grad, Longs before) {
  const ArgIndex grad = op.input("Out@GRAD");
  const ArgIndex out = op.output(small_grad);
  return Kernel([=](const KernelContext& ctx) -> Status {
    Tensor* const to = ctx.find_out(out);
    if (to == nullptr) return Ok();
    fill_zero(ctx.device(), *to);
    const Tensor* const from = ctx.find_in(grad);
    if (from == nullptr) return Ok();
    Longs start = before;
    start.resize(to->rank(), 0);
    MILLRACE_RETURN_IF_ERROR(
        check_ranks(ctx, *to, *from, before.empty() ? to->rank() : before.size()));
    copy_overlap(ctx.device(), overlap_of(to->dims(), from->dims(), start), /*into_padded=*/false,
                 *to, *from);
    return Ok();
  });
}

StatusOr<Kernel> pad(const KernelSetup& op) {
  return make(op, "X", every_second(op.attr<Longs>("paddings")));
}
StatusOr<Kernel> pad_grad(const KernelSetup& op) {
  return make_grad(op, "X@GRAD", every_second(op.attr<Longs>("paddings")));
}
StatusOr<Kernel> pad_constant_like(const KernelSetup& op) {
  return make(op, "Y", {});
}
StatusOr<Kernel> pad_constant_like_grad(const KernelSetup& op) {
  return make_grad(op, "Y@GRAD", {});
}

}  // namespace
}  // namespace pad_kernels

void add_tensor_pad(KernelRegistry& registry) {
  using namespace pad_kernels;
  registry.add("pad", pad);
  registry.add("pad_grad", pad_grad);
  registry.add("pad_constant_like", pad_constant_like);
  registry.add("pad_constant_like_grad", pad_constant_like_grad);
}

}  // namespace millrace::kernels

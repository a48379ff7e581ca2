#include "kernels/cpu/lane_sum.h"
#include "kernels/cpu/needed.h"
#include "kernels/cpu/sequence/sequence.h"
#include "kernels/cpu/sums.h"
#include "kernels/cpu/vector_math.h"
#include "kernels/dispatch.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace {

Status check_one_column(const KernelContext& ctx, const Tensor& x) {
  if (x.numel() == (x.rank() == 0 ? 1 : x.dim(0))) return Ok();
  return ctx.error("X must have one element per row, found {}", describe(x));
}

template <typename T>
void softmax_kernel(const T* x, int64_t count, T* out) {
  if (count == 0) return;
  const T most = combine_lanes(x, count, x[0], [](T a, T b) { return a > b ? a : b; });
  for (int64_t i = 0; i < count; ++i) out[i] = vmath::exp(x[i] - most);
  const T inverse = 1 / sum_of(out, count);
  for (int64_t i = 0; i < count; ++i) out[i] *= inverse;
}

StatusOr<Kernel> sequence_softmax(const KernelSetup& op) {
  const ArgIndex x = op.input("X");
  const ArgIndex out = op.output("Out");
  return Kernel([=](const KernelContext& ctx) -> Status {
    const Tensor& from = ctx.in(x);
    MILLRACE_RETURN_IF_ERROR(check_one_column(ctx, from));
    MILLRACE_ASSIGN_OR_RETURN(const llvm::ArrayRef<int64_t> offsets, sequences_of(from, "X"));
    return dispatch<FloatTypes>(from.dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      for (size_t i = 0; i + 1 < offsets.size(); ++i) {
        softmax_kernel(from.data<T>() + offsets[i], offsets[i + 1] - offsets[i],
                       ctx.out(out).data<T>() + offsets[i]);
      }
      return Ok();
    });
  });
}

StatusOr<Kernel> sequence_softmax_grad(const KernelSetup& op) {
  const ArgIndex out = op.input("Out");
  const ArgIndex dout = op.input("Out@GRAD");
  const ArgIndex x = op.input("X");
  const ArgIndex dx = op.output("X@GRAD");
  return Kernel([=](const KernelContext& ctx) -> Status {
    if (!dx) return Ok();
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const y, needed(ctx, out, "Out"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const d, needed(ctx, dout, "Out@GRAD"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const from, needed(ctx, x, "X"));
    MILLRACE_ASSIGN_OR_RETURN(const llvm::ArrayRef<int64_t> offsets, sequences_of(*from, "X"));
    if (d->numel() != y->numel() || y->numel() != from->dim(0) || d->dtype() != y->dtype())
      return ctx.error("Out and Out@GRAD must match X {}, found {} and {}", describe(*from),
                       describe(*y), describe(*d));
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const to, result_like(ctx, dx, *from));
    to->set_lod(from->lod());
    return dispatch<FloatTypes>(y->dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      for (size_t i = 0; i + 1 < offsets.size(); ++i) {
        const T* const p = y->data<T>() + offsets[i];
        const T* const g = d->data<T>() + offsets[i];
        T* const result = to->data<T>() + offsets[i];
        const int64_t count = offsets[i + 1] - offsets[i];
        const T sum = lane_sum<T>(count, [&](int64_t k) { return p[k] * g[k]; });
        for (int64_t k = 0; k < count; ++k) result[k] = (g[k] - sum) * p[k];
      }
      return Ok();
    });
  });
}

}  // namespace

void add_sequence_softmax(KernelRegistry& registry) {
  registry.add("sequence_softmax", sequence_softmax);
  registry.add("sequence_softmax_grad", sequence_softmax_grad);
}

}  // namespace millrace::kernels

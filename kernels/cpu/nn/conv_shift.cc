#include "kernels/cpu/nn/channels.h"
#include "kernels/cpu/nn/pair_grad.h"
#include "kernels/dispatch.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace conv_shift_kernels {
namespace {

Status check_operands(const Tensor& x, const Tensor& y) {
  if (x.rank() == 2 && y.rank() == 2 && x.dtype() == y.dtype() && x.dim(0) == y.dim(0) &&
      y.dim(1) % 2 == 1 && x.dim(1) > 0)
    return Ok();
  return KernelContext::error(
      "X {} and Y {} must be matrices with the same number of rows, Y with "
      "an odd number of columns",
      describe(x), describe(y));
}

// Calls body(element of Out, element of X, element of Y) for all products: Out[i, j] sums
// X[i, (j + k - half) mod columns] * Y[i, k] over k.
template <typename Body>
void for_products(const Tensor& x, const Tensor& y, Body&& body) {
  const int64_t m = x.dim(1);
  const int64_t n = y.dim(1);
  const int64_t half = (n - 1) / 2;
  for (int64_t i = 0; i < x.dim(0); ++i) {
    for (int64_t k = 0; k < n; ++k) {
      int64_t from = ((k - half) % m + m) % m;
      for (int64_t j = 0; j < m; ++j) {
        body(i * m + j, i * m + from, i * n + k);
        from = from + 1 == m ? 0 : from + 1;
      }
    }
  }
}

StatusOr<Kernel> conv_shift(const KernelSetup& op) {
  return Kernel([args = PairArgs(op)](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const PairArgs::Operands operands, args.operands(ctx));
    const auto [a, b] = operands;
    MILLRACE_RETURN_IF_ERROR(check_operands(*a, *b));
    return dispatch<FloatTypes>(a->dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      T* const to = ctx.out(args.out).data<T>();
      std::fill_n(to, a->numel(), T{0});
      for_products(*a, *b, [&](int64_t o, int64_t i, int64_t k) {
        to[o] += a->data<T>()[i] * b->data<T>()[k];
      });
      return Ok();
    });
  });
}

StatusOr<Kernel> conv_shift_grad(const KernelSetup& op) {
  return Kernel([args = PairGradArgs(op)](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const PairGrad grad, args.read(ctx));
    const Tensor& a = *grad.x;
    const Tensor& b = *grad.y;
    MILLRACE_RETURN_IF_ERROR(check_operands(a, b));
    if (grad.dout == nullptr) return Ok();
    MILLRACE_RETURN_IF_ERROR(check_alike(a, "X", *grad.dout, "Out@GRAD"));
    return dispatch<FloatTypes>(a.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      const T* const g = grad.dout->data<T>();
      for_products(a, b, [&](int64_t o, int64_t i, int64_t k) {
        if (grad.dx != nullptr) grad.dx->data<T>()[i] += g[o] * b.data<T>()[k];
        if (grad.dy != nullptr) grad.dy->data<T>()[k] += g[o] * a.data<T>()[i];
      });
      return Ok();
    });
  });
}

}  // namespace
}  // namespace conv_shift_kernels

void add_nn_conv_shift(KernelRegistry& registry) {
  using namespace conv_shift_kernels;
  registry.add("conv_shift", conv_shift);
  registry.add("conv_shift_grad", conv_shift_grad);
}

}  // namespace millrace::kernels

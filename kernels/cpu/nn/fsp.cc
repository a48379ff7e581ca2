#include "kernels/cpu/lane_sum.h"
#include "kernels/cpu/nn/channels.h"
#include "kernels/cpu/nn/pair_grad.h"
#include "kernels/dispatch.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace fsp_kernels {
namespace {

struct FspShape {
  int64_t batch = 0;
  int64_t x = 0;  // number of channels
  int64_t y = 0;  // number of channels
  int64_t pixels = 0;
};

StatusOr<FspShape> shape_of(const Tensor& x, const Tensor& y) {
  if (x.rank() != 4 || y.rank() != 4 || x.dtype() != y.dtype() || x.dim(0) != y.dim(0) ||
      x.dim(2) != y.dim(2) || x.dim(3) != y.dim(3)) {
    return KernelContext::error("X {} and Y {} must have the same batch, height and width",
                                describe(x), describe(y));
  }
  return FspShape{x.dim(0), x.dim(1), y.dim(1), x.dim(2) * x.dim(3)};
}

StatusOr<Kernel> fsp(const KernelSetup& op) {
  return Kernel([args = PairArgs(op)](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const PairArgs::Operands operands, args.operands(ctx));
    const auto [a, b] = operands;
    MILLRACE_ASSIGN_OR_RETURN(const FspShape s, shape_of(*a, *b));
    return dispatch<FloatTypes>(a->dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      T* to = ctx.out(args.out).data<T>();
      for (int64_t n = 0; n < s.batch; ++n) {
        for (int64_t i = 0; i < s.x; ++i) {
          const T* const left = a->data<T>() + (n * s.x + i) * s.pixels;
          for (int64_t j = 0; j < s.y; ++j) {
            const T* const right = b->data<T>() + (n * s.y + j) * s.pixels;
            *to++ = lane_sum<T>(s.pixels, [&](int64_t p) { return left[p] * right[p]; }) /
                    static_cast<T>(s.pixels);
          }
        }
      }
      return Ok();
    });
  });
}

// to[n, i] += sum over j of g[n, i, j] * from[n, j] / pixels; by_columns swaps i and j in g.
template <typename T>
void spread(const FspShape& s, const T* g, const T* from, bool by_columns, T* to) {
  for (int64_t n = 0; n < s.batch; ++n) {
    for (int64_t i = 0; i < s.x; ++i) {
      for (int64_t j = 0; j < s.y; ++j) {
        const T weight = g[(n * s.x + i) * s.y + j] / static_cast<T>(s.pixels);
        const int64_t x = (n * s.x + i) * s.pixels;
        const int64_t y = (n * s.y + j) * s.pixels;
        T* const row = to + (by_columns ? y : x);
        const T* const other = from + (by_columns ? x : y);
        for (int64_t p = 0; p < s.pixels; ++p) row[p] += weight * other[p];
      }
    }
  }
}

StatusOr<Kernel> fsp_grad(const KernelSetup& op) {
  return Kernel([args = PairGradArgs(op)](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const PairGrad grad, args.read(ctx));
    MILLRACE_ASSIGN_OR_RETURN(const FspShape s, shape_of(*grad.x, *grad.y));
    if (grad.dout == nullptr) return Ok();
    const Tensor& dout = *grad.dout;
    if (dout.dtype() != grad.x->dtype() || dout.numel() != s.batch * s.x * s.y) {
      return ctx.error("Out@GRAD must be [{}, {}, {}], found {}", s.batch, s.x, s.y,
                       describe(dout));
    }
    return dispatch<FloatTypes>(grad.x->dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      const T* const g = dout.data<T>();
      if (grad.dx != nullptr)
        spread(s, g, grad.y->data<T>(), /*by_columns=*/false, grad.dx->data<T>());
      if (grad.dy != nullptr)
        spread(s, g, grad.x->data<T>(), /*by_columns=*/true, grad.dy->data<T>());
      return Ok();
    });
  });
}

}  // namespace
}  // namespace fsp_kernels

void add_nn_fsp(KernelRegistry& registry) {
  using namespace fsp_kernels;
  registry.add("fsp", fsp);
  registry.add("fsp_grad", fsp_grad);
}

}  // namespace millrace::kernels

#include "kernels/cpu/convert.h"
#include "kernels/cpu/reduce/axes.h"
#include "kernels/cpu/reduce/spread.h"
#include "kernels/dispatch.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace {

struct SumGrad {
  template <typename T>
  static T slope(T /*x*/, T /*out*/, T dout, T /*each*/) {
    return dout;
  }
};
struct MeanGrad {
  template <typename T>
  static T slope(T /*x*/, T /*out*/, T dout, T each) {
    return dout / each;
  }
};
// Every element that equals the result gets the whole gradient.
struct ExtremeGrad {
  template <typename T>
  static T slope(T x, T out, T dout, T /*each*/) {
    return x == out ? dout : T(0);
  }
};
// As in the original, NaN where x is 0.
struct ProductGrad {
  template <typename T>
  static T slope(T x, T out, T dout, T /*each*/) {
    return dout * out / x;
  }
};
struct RootGrad {
  template <typename T>
  static T slope(T x, T out, T dout, T /*each*/) {
    return dout * x / out;
  }
};

template <typename F, bool kReadsOut>
StatusOr<Kernel> grad(const KernelSetup& op) {
  const ArgIndex x_arg = op.input("X");
  const ArgIndex out_arg = kReadsOut ? op.input("Out") : ArgIndex{};
  const ArgIndex dout_arg = op.input("Out@GRAD");
  const ArgIndex dx_arg = op.output("X@GRAD");
  if (kReadsOut && !out_arg) return op.error("input 'Out' is missing");
  if (!dx_arg) return Kernel([](const KernelContext&) { return Ok(); });
  return Kernel(
      [=, axes = ReduceAxes(op, "dim", "keep_dim")](const KernelContext& ctx) mutable -> Status {
        const Tensor& x = ctx.in(x_arg);
        MILLRACE_ASSIGN_OR_RETURN(const ReduceAxes::Plan* const plan, axes.plan(ctx, x.dims()));
        return spread<F>(ctx, *plan, x, ctx.find_in(out_arg), ctx.in(dout_arg), ctx.out(dx_arg));
      });
}

}  // namespace

/// Gradients of reduce_sum, reduce_mean and the like.
void add_reduce_reduction_grads(KernelRegistry& registry) {
  registry.add("reduce_sum_grad", grad<SumGrad, false>);
  registry.add("reduce_mean_grad", grad<MeanGrad, false>);
  registry.add("reduce_max_grad", grad<ExtremeGrad, true>);
  registry.add("reduce_min_grad", grad<ExtremeGrad, true>);
  registry.add("reduce_prod_grad", grad<ProductGrad, true>);
  registry.add("frobenius_norm_grad", grad<RootGrad, true>);
}

}  // namespace millrace::kernels

#include <cmath>

#include "kernels/cpu/convert.h"
#include "kernels/cpu/reduce/axes.h"
#include "kernels/dispatch.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace reductions {
namespace {

// The last operation on the results.
enum class Finish { kNothing, kDivide, kRoot };

template <Finish kFinish, typename T>
void finish(T* out, int64_t count, int64_t each) {
  if constexpr (kFinish == Finish::kDivide) {
    if (std::is_integral_v<T> && each == 0) return;
    for (int64_t i = 0; i < count; ++i) out[i] /= static_cast<T>(each);
  }
  if constexpr (kFinish == Finish::kRoot) {
    for (int64_t i = 0; i < count; ++i)
      out[i] = static_cast<T>(std::sqrt(static_cast<double>(out[i])));
  }
}

// X and the result of one run, both with elements of one type.
struct Run {
  const ReduceAxes::Plan* plan;
  const std::byte* x;
  DType dtype;
};

StatusOr<Run> prepare(const KernelContext& ctx, ReduceAxes& axes, const Tensor& x, Tensor& out,
                      DType wanted) {
  MILLRACE_ASSIGN_OR_RETURN(const ReduceAxes::Plan* const plan, axes.plan(ctx, x.dims()));
  if (axes.from_tensors()) MILLRACE_RETURN_IF_ERROR(out.resize(wanted, plan->out_dims));
  if (out.numel() != plan->out_count)
    return ctx.error("the result must have {} elements, found {}", plan->out_count, describe(out));
  const DType dtype = wide_type(out.dtype());
  MILLRACE_ASSIGN_OR_RETURN(const std::byte* const from, elements_as(ctx.device(), x, dtype, 0));
  return Run{plan, from, dtype};
}

template <typename Rule, Finish kFinish = Finish::kNothing, bool kWidens = false>
StatusOr<Kernel> reduction(const KernelSetup& op) {
  const ArgIndex x_arg = op.input("X");
  const ArgIndex out_arg = op.output("Out");
  const auto out_dtype = op.attr<int32_t>("out_dtype");
  return Kernel(
      [=, axes = ReduceAxes(op, "dim", "keep_dim")](const KernelContext& ctx) mutable -> Status {
        const Tensor& x = ctx.in(x_arg);
        Tensor& out = ctx.out(out_arg);
        DType wanted = out_dtype == -1 ? x.dtype() : static_cast<DType>(out_dtype);
        const bool small = wanted == DType::kBool || wanted == DType::kInt32;
        if (kWidens && out_dtype == -1 && small) wanted = DType::kInt64;
        MILLRACE_ASSIGN_OR_RETURN(const Run run, prepare(ctx, axes, x, out, wanted));
        MILLRACE_ASSIGN_OR_RETURN(const WideOutput to,
                                  WideOutput::open(ctx.device(), out, run.dtype, 1));
        Status status = dispatch<NumberTypes>(run.dtype, [&](auto tag) -> Status {
          using T = typename decltype(tag)::type;
          MILLRACE_RETURN_IF_ERROR(
              (reduce<Rule, T>(ctx.device(), run.plan->nest, reinterpret_cast<const T*>(run.x),
                               to.data<T>(), run.plan->out_count)));
          finish<kFinish>(to.data<T>(), run.plan->out_count, run.plan->each());
          return Ok();
        });
        if (!status.ok()) return status;
        return to.finish();
      });
}

struct All : AsIs {
  template <typename T>
  static T start() {
    return T(1);
  }
  template <typename T>
  static T combine(T a, T b) {
    return static_cast<T>(a & b);
  }
};
struct Any : AsIs {
  template <typename T>
  static T start() {
    return T(0);
  }
  template <typename T>
  static T combine(T a, T b) {
    return static_cast<T>(a | b);
  }
};

// A bool is one byte of 0 or 1.
template <typename Rule>
StatusOr<Kernel> test(const KernelSetup& op) {
  const ArgIndex x_arg = op.input("X");
  const ArgIndex out_arg = op.output("Out");
  return Kernel([=, axes = ReduceAxes(op, "dim", "keep_dim")](
                    const KernelContext& ctx) mutable -> Status {
    const Tensor& x = ctx.in(x_arg);
    Tensor& out = ctx.out(out_arg);
    MILLRACE_ASSIGN_OR_RETURN(const ReduceAxes::Plan* const plan, axes.plan(ctx, x.dims()));
    if (axes.from_tensors()) MILLRACE_RETURN_IF_ERROR(out.resize(DType::kBool, plan->out_dims));
    MILLRACE_RETURN_IF_ERROR(ReduceAxes::check_result(ctx, *plan, out));
    MILLRACE_ASSIGN_OR_RETURN(const std::byte* const from,
                              elements_as(ctx.device(), x, DType::kBool, 0));
    return reduce<Rule, uint8_t>(ctx.device(), plan->nest, reinterpret_cast<const uint8_t*>(from),
                                 reinterpret_cast<uint8_t*>(out.raw()), plan->out_count);
  });
}

}  // namespace
}  // namespace reductions

/// reduce_sum, reduce_mean, reduce_max, reduce_min, reduce_prod, reduce_all, reduce_any and
/// frobenius_norm.
void add_reduce_reductions(KernelRegistry& registry) {
  using namespace reductions;
  registry.add("reduce_sum", reduction<Sum, Finish::kNothing, true>);
  registry.add("reduce_mean", reduction<Sum, Finish::kDivide>);
  registry.add("reduce_max", reduction<Max>);
  registry.add("reduce_min", reduction<Min>);
  registry.add("reduce_prod", reduction<Product>);
  registry.add("frobenius_norm", reduction<SumOfSquares, Finish::kRoot>);
  registry.add("reduce_all", test<All>);
  registry.add("reduce_any", test<Any>);
}

}  // namespace millrace::kernels

#include "kernels/cpu/int_list.h"
#include "kernels/gpu/ops/element_types.h"
#include "kernels/gpu/ops/totals.h"
#include "kernels/registry.h"

// Tests of elements and of whole tensors, logsumexp, norms along an axis.
namespace millrace::gpu {
namespace {

using Axes = std::vector<int64_t>;

// isfinite_v2 and the like.
template <ValueTest kTest, bool kNegates>
StatusOr<Kernel> test_values(const KernelSetup& op) {
  return one_operand(op, [](Device& device, const Tensor& from, Tensor& to) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Elements elements, elements_of(from));
    if (to.dtype() != DType::kBool || to.numel() != from.numel())
      return refuse("{} becomes {}", describe(from), describe(to));
    return each(device, TestValues{elements, reinterpret_cast<uint8_t*>(to.raw()), kTest, kNegates},
                to.numel());
  });
}

Status run_test(Device& device, const Tensor& from, llvm::ArrayRef<int64_t> axes, Tensor& to,
                ValueTest test, bool negates) {
  MILLRACE_ASSIGN_OR_RETURN(const Elements elements, elements_of(from));
  MILLRACE_ASSIGN_OR_RETURN(const ReducePlan r, reduction_of(from.dims(), axes));
  if (to.dtype() != DType::kBool || to.numel() != r.count || from.numel() == 0 ||
      to.raw() == from.raw())
    return refuse("{} becomes {}", describe(from), describe(to));
  const TestRows rows_test{
      elements, reinterpret_cast<uint8_t*>(to.raw()), r.kept, r.gone, r.each, test, negates};
  return r.side_by_side ? lanes(device, rows_test, r.count) : rows(device, rows_test, r.count);
}

// isfinite and the like, of a whole tensor or of selected rows.
template <ValueTest kTest, bool kNegates>
StatusOr<Kernel> test_tensor(const KernelSetup& op) {
  return Kernel([&device = device_of(op), x = op.input("X"),
                 out = op.output("Out")](const KernelContext& ctx) -> Status {
    const Value& value = ctx.in_value(x);
    const auto* const some = value.get_if<SelectedRows>();
    const Tensor* const from = some == nullptr ? value.get_if<Tensor>() : &some->value;
    if (from == nullptr || !from->initialized()) return refuse("X {}", describe(value));
    return run_test(device, *from, {}, ctx.out(out), kTest, kNegates);
  });
}

// reduce_all and reduce_any.
template <ValueTest kTest, bool kNegates>
StatusOr<Kernel> test_axes(const KernelSetup& op) {
  if (op.inputs("AxisTensor").count > 0 || op.inputs("AxisTensorList").count > 0)
    return refuse("axes given as tensors are read on the CPU");
  return Kernel([&device = device_of(op), x = op.input("X"), out = op.output("Out"),
                 axes = op.attr<bool>("reduce_all") ? Axes() : op.attr<Axes>("dim")](
                    const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const from, needed_here(ctx, x, "X"));
    return run_test(device, *from, axes, ctx.out(out), kTest, kNegates);
  });
}

// A reduction whose rule has numbers, with the dims that it reduces.
struct AxisTotal {
  Axes axes;  // empty: all
  TotalSettings total;
};

StatusOr<Kernel> norm_forward(const KernelSetup& op, AxisTotal settings) {
  return Kernel([&device = device_of(op), s = std::move(settings), x = op.input("X"),
                 out = op.output("Out")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const from, needed_here(ctx, x, "X"));
    Tensor& to = ctx.out(out);
    MILLRACE_RETURN_IF_ERROR(all_reals({from, &to}));
    MILLRACE_ASSIGN_OR_RETURN(const ReducePlan r, reduction_of(from->dims(), s.axes));
    if (from->numel() == 0 || to.numel() != r.count || from->raw() == to.raw())
      return refuse("X {}", describe(*from));
    return total(device, r, *from, to, s.total);
  });
}

StatusOr<Kernel> norm_backward(const KernelSetup& op, AxisTotal settings) {
  return Kernel([&device = device_of(op), s = std::move(settings), x = op.input("X"),
                 out = op.input("Out"), dout = op.input("Out@GRAD"),
                 dx = op.output("X@GRAD")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const from, needed_here(ctx, x, "X"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const y, needed_here(ctx, out, "Out"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const d, needed_here(ctx, dout, "Out@GRAD"));
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const to, output_like(ctx, dx, *from));
    if (to == nullptr) return Ok();
    MILLRACE_RETURN_IF_ERROR(all_reals({from, y, d, to}));
    MILLRACE_ASSIGN_OR_RETURN(const ReducePlan r, reduction_of(from->dims(), s.axes));
    if (y->numel() != r.count || d->numel() != r.count || to->raw() == d->raw() ||
        from->numel() == 0)
      return refuse("Out@GRAD {}", describe(*d));
    return total_slope(device, r, {from, y, d, to}, s.total);
  });
}

AxisTotal log_sum_settings(const KernelSetup& op) {
  return {op.attr<bool>("reduce_all") ? Axes() : op.attr<Axes>("axis"), {TotalRule::kLogSum}};
}
StatusOr<Kernel> gpu_logsumexp(const KernelSetup& op) {
  return norm_forward(op, log_sum_settings(op));
}
StatusOr<Kernel> gpu_logsumexp_grad(const KernelSetup& op) {
  return norm_backward(op, log_sum_settings(op));
}

AxisTotal p_norm_settings(const KernelSetup& op) {
  return {op.attr<bool>("asvector") ? Axes() : Axes{op.attr<int32_t>("axis")},
          {TotalRule::kNorm, op.attr<float>("porder"), op.attr<float>("epsilon")}};
}
StatusOr<Kernel> gpu_p_norm(const KernelSetup& op) {
  return norm_forward(op, p_norm_settings(op));
}
StatusOr<Kernel> gpu_p_norm_grad(const KernelSetup& op) {
  return norm_backward(op, p_norm_settings(op));
}

// norm: X divided by the root of the sum of squares along an axis.
StatusOr<Kernel> gpu_norm(const KernelSetup& op) {
  return Kernel([&device = device_of(op), x = op.input("X"), norm = op.output("Norm"),
                 out = op.output("Out"), axis = op.attr<int32_t>("axis"),
                 epsilon = op.attr<float>("epsilon")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const from, needed_here(ctx, x, "X"));
    Tensor* const norms = ctx.find_out(norm);
    Tensor& to = ctx.out(out);
    if (norms == nullptr) return refuse("Norm is missing");
    MILLRACE_RETURN_IF_ERROR(all_reals({from, norms, &to}));
    MILLRACE_ASSIGN_OR_RETURN(const ReducePlan r, reduction_of(from->dims(), {axis}));
    if (from->numel() == 0 || norms->numel() != r.count || to.numel() != from->numel())
      return refuse("X {}", describe(*from));
    MILLRACE_RETURN_IF_ERROR(total(device, r, *from, *norms, {TotalRule::kRoot, epsilon}));
    MILLRACE_ASSIGN_OR_RETURN(const Elements elements, elements_of(*from));
    return each(device, DivideByNorm{elements, {norms->raw(), elements.type}, to.raw(), r.results},
                to.numel());
  });
}

StatusOr<Kernel> gpu_norm_grad(const KernelSetup& op) {
  return Kernel([&device = device_of(op), x = op.input("X"), norm = op.input("Norm"),
                 dout = op.input("Out@GRAD"), dx = op.output("X@GRAD"),
                 axis = op.attr<int32_t>("axis")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const from, needed_here(ctx, x, "X"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const norms, needed_here(ctx, norm, "Norm"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const d, needed_here(ctx, dout, "Out@GRAD"));
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const to, output_like(ctx, dx, *from));
    if (to == nullptr) return Ok();
    MILLRACE_RETURN_IF_ERROR(all_reals({from, norms, d, to}));
    MILLRACE_ASSIGN_OR_RETURN(const ReducePlan r, reduction_of(from->dims(), {axis}));
    if (from->numel() == 0 || norms->numel() != r.count || d->numel() != from->numel())
      return refuse("Out@GRAD {}", describe(*d));
    MILLRACE_ASSIGN_OR_RETURN(const Elements elements, elements_of(*from));
    const DivideByNormGradient slope{elements,
                                     {norms->raw(), elements.type},
                                     {d->raw(), elements.type},
                                     to->raw(),
                                     r.kept,
                                     r.gone,
                                     r.each};
    return r.side_by_side ? lanes(device, slope, r.count) : rows(device, slope, r.count);
  });
}

}  // namespace

void add_tests_and_norms(KernelRegistry& registry) {
  registry.add("isfinite_v2", test_values<ValueTest::kNotFinite, true>);
  registry.add("isinf_v2", test_values<ValueTest::kInfinite, false>);
  registry.add("isnan_v2", test_values<ValueTest::kNan, false>);
  registry.add("isfinite", test_tensor<ValueTest::kNotFinite, true>);
  registry.add("isinf", test_tensor<ValueTest::kInfinite, false>);
  registry.add("isnan", test_tensor<ValueTest::kNan, false>);
  registry.add("reduce_all", test_axes<ValueTest::kZero, true>);
  registry.add("reduce_any", test_axes<ValueTest::kNonZero, false>);
  registry.add("logsumexp", gpu_logsumexp);
  registry.add("logsumexp_grad", gpu_logsumexp_grad);
  registry.add("p_norm", gpu_p_norm);
  registry.add("p_norm_grad", gpu_p_norm_grad);
  registry.add("norm", gpu_norm);
  registry.add("norm_grad", gpu_norm_grad);
}

}  // namespace millrace::gpu

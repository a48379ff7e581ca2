#include "kernels/gpu/ops/broadcast.h"
#include "kernels/registry.h"

namespace millrace::gpu {
namespace {

// Ops with integers as well.
template <typename Formula>
concept TakesIntegers = requires {
  Formula::template of<int64_t>(0, 0);
};

template <typename Formula, typename T, typename R>
Status run_binary(Device& device, const Walk<2>& walk, const Tensor& a, const Tensor& b,
                  Tensor& to) {
  return each(device,
              gpu::Binary<Formula, T, R>{reinterpret_cast<const T*>(a.raw()),
                                         reinterpret_cast<const T*>(b.raw()),
                                         reinterpret_cast<R*>(to.raw()), walk},
              to.numel());
}

template <typename Formula>
Status run_types(Device& device, const Walk<2>& walk, const Tensor& a, const Tensor& b,
                 Tensor& to) {
  if constexpr (TakesIntegers<Formula>) {
    if (a.dtype() == DType::kInt64)
      return run_binary<Formula, int64_t, int64_t>(device, walk, a, b, to);
    if (a.dtype() == DType::kInt32)
      return run_binary<Formula, int32_t, int32_t>(device, walk, a, b, to);
  }
  MILLRACE_RETURN_IF_ERROR(all_floats({&a}));
  return run_binary<Formula, float, float>(device, walk, a, b, to);
}

template <typename Formula>
Status run_comparison(Device& device, const Walk<2>& walk, const Tensor& a, const Tensor& b,
                      Tensor& to) {
  switch (a.dtype()) {
    case DType::kFloat32:
      return run_binary<Formula, float, bool>(device, walk, a, b, to);
    case DType::kInt32:
      return run_binary<Formula, int32_t, bool>(device, walk, a, b, to);
    case DType::kInt64:
      return run_binary<Formula, int64_t, bool>(device, walk, a, b, to);
    default:
      return refuse("the GPU kernel compares f32, i32 and i64, found {}", describe(a));
  }
}

template <typename Formula>
Status run_logical(Device& device, const Walk<2>& walk, const Tensor& a, const Tensor& b,
                   Tensor& to) {
  if (a.dtype() != DType::kBool) return refuse("the GPU kernel is for bool, found {}", describe(a));
  return run_binary<Formula, uint8_t, uint8_t>(device, walk, a, b, to);
}

using RunBinary = Status (*)(Device&, const Walk<2>&, const Tensor&, const Tensor&, Tensor&);

// The attribute; -1 if the op lacks it.
int64_t axis_attr(const KernelSetup& op) {
  return op.def().find_attr("axis") == nullptr ? -1 : op.attr<int32_t>("axis");
}

// \param kBool  the result is bool; else it has the type of the operands
template <RunBinary kRun, bool kBool>
StatusOr<Kernel> binary_op(const KernelSetup& op) {
  const int64_t axis = axis_attr(op);
  return Kernel([axis, &device = device_of(op), out = op.output("Out"), x = op.input("X"),
                 y = op.input("Y")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const a, needed_here(ctx, x, "X"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const b, needed_here(ctx, y, "Y"));
    MILLRACE_ASSIGN_OR_RETURN(const Broadcast paired, broadcast_of(a->dims(), b->dims(), axis));
    Tensor& to = ctx.out(out);
    if (a->dtype() != b->dtype() || to.numel() != paired.count() ||
        to.dtype() != (kBool ? DType::kBool : a->dtype()))
      return refuse("{} and {} make {}", describe(*a), describe(*b), describe(to));
    MILLRACE_ASSIGN_OR_RETURN(const Walk<2> walk, paired.walk());
    return kRun(device, walk, *a, *b, to);
  });
}

// The operands of a gradient op; X and Y are null if they are missing.
struct SlopeOperands {
  const Tensor* x;
  const Tensor* y;
  const Tensor* dout;
  Broadcast paired;
};

template <typename Formula, bool kOfY>
Status run_slope(Device& device, const SlopeOperands& on, Tensor* to) {
  if (to == nullptr || to->numel() == 0) return Ok();
  MILLRACE_ASSIGN_OR_RETURN(const Repetitions r, repetitions_of(on.paired, kOfY));
  if (r.each == 1) {
    // also if one of them is dims of 1, the gradient has the order of the result
    MILLRACE_ASSIGN_OR_RETURN(const Walk<2> walk, on.paired.walk());
    return each(
        device,
        BinarySlope<Formula, kOfY>{floats(on.x), floats(on.y), floats(on.dout), floats(to), walk},
        to->numel());
  }
  const BinarySlopeSum<Formula, kOfY> sum{floats(on.x), floats(on.y), floats(on.dout), floats(to),
                                          r.kept,       r.gone,       r.each};
  return r.side_by_side ? lanes(device, sum, to->numel()) : rows(device, sum, to->numel());
}

template <typename Formula>
StatusOr<Kernel> binary_slopes(const KernelSetup& op) {
  const int64_t axis = axis_attr(op);
  return Kernel([&device = device_of(op), x = op.input("X"), y = op.input("Y"),
                 dout = op.input("Out@GRAD"), dx = op.output("X@GRAD"), dy = op.output("Y@GRAD"),
                 axis](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const d, needed_here(ctx, dout, "Out@GRAD"));
    SlopeOperands on{ctx.find_in(x), ctx.find_in(y), d, {}};
    if ((x && on.x == nullptr) || (y && on.y == nullptr)) return refuse("an operand is missing");
    if (Formula::kReads && (on.x == nullptr || on.y == nullptr))
      return refuse("an operand is missing");
    Tensor* const to_x = ctx.find_out(dx);
    Tensor* const to_y = ctx.find_out(dy);
    MILLRACE_RETURN_IF_ERROR(all_floats({on.x, on.y, d, to_x, to_y}));
    const auto dims_x = on.x == nullptr ? d->dims() : on.x->dims();
    const auto dims_y = on.y == nullptr ? d->dims() : on.y->dims();
    if ((to_x != nullptr && to_x->dims() != dims_x) || (to_y != nullptr && to_y->dims() != dims_y))
      return refuse("the gradient of an operand has other dims");
    MILLRACE_ASSIGN_OR_RETURN(on.paired, broadcast_of(dims_x, dims_y, axis));
    if (on.paired.count() != d->numel()) return refuse("Out@GRAD {}", describe(*d));
    for (const bool of_y : {false, true})
      MILLRACE_RETURN_IF_ERROR(repetitions_of(on.paired, of_y).status());
    // Y's gradient first: X's may share memory with the incoming one
    MILLRACE_RETURN_IF_ERROR((run_slope<Formula, true>(device, on, to_y)));
    const bool is_copy = !Formula::kReads && to_x != nullptr && to_x->numel() == d->numel();
    if (is_copy && to_x->raw() == d->raw()) return Ok();
    if (is_copy) return device.copy(d->raw(), to_x->raw(), d->bytes());
    return run_slope<Formula, false>(device, on, to_x);
  });
}

struct ScaleSettings {
  float factor;
  float bias;
  bool after;
};
template <typename T>
Status scale_integers(Device& device, const Tensor& from, Tensor& to, const ScaleSettings& s) {
  return each(
      device,
      ScaleIntegers<T>{reinterpret_cast<const T*>(from.raw()), reinterpret_cast<T*>(to.raw()),
                       static_cast<T>(s.factor), static_cast<T>(s.bias), s.after},
      to.numel());
}

// \param counts  X must have one element
Kernel scale_kernel(const KernelSetup& op, const ScaleSettings& settings, bool counts) {
  return Kernel([&device = device_of(op), x = op.input("X"), out = op.output("Out"), settings,
                 counts](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const from, needed_here(ctx, x, "X"));
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const to, output_like(ctx, out, *from));
    if (to == nullptr || (counts && from->numel() != 1)) return refuse("X {}", describe(*from));
    if (from->dtype() == DType::kInt32)
      return scale_integers<int32_t>(device, *from, *to, settings);
    if (from->dtype() == DType::kInt64)
      return scale_integers<int64_t>(device, *from, *to, settings);
    MILLRACE_RETURN_IF_ERROR(all_floats({from}));
    return each(device,
                Scale{floats(from), floats(to), settings.factor, settings.bias, settings.after},
                from->numel());
  });
}

StatusOr<Kernel> gpu_scale(const KernelSetup& op) {
  if (op.input("ScaleTensor")) return refuse("scale by a tensor runs on the CPU");
  return scale_kernel(
      op, {op.attr<float>("scale"), op.attr<float>("bias"), op.attr<bool>("bias_after_scale")},
      /*counts=*/false);
}
StatusOr<Kernel> gpu_increment(const KernelSetup& op) {
  return scale_kernel(op, {1.0F, op.attr<float>("step"), true}, /*counts=*/true);
}

template <typename Formula>
void add_arithmetic(KernelRegistry& registry, const char* type, const char* grad_type) {
  registry.add(type, binary_op<run_types<Formula>, false>);
  registry.add(grad_type, binary_slopes<Formula>);
}

}  // namespace

void add_elementwise(KernelRegistry& registry) {
  add_arithmetic<Add>(registry, "elementwise_add", "elementwise_add_grad");
  add_arithmetic<Subtract>(registry, "elementwise_sub", "elementwise_sub_grad");
  registry.add("minus", binary_op<run_types<Subtract>, false>);
  add_arithmetic<Multiply>(registry, "elementwise_mul", "elementwise_mul_grad");
  add_arithmetic<Divide>(registry, "elementwise_div", "elementwise_div_grad");
  add_arithmetic<Larger>(registry, "elementwise_max", "elementwise_max_grad");
  add_arithmetic<Smaller>(registry, "elementwise_min", "elementwise_min_grad");
  add_arithmetic<LargerNumber>(registry, "elementwise_fmax", "elementwise_fmax_grad");
  add_arithmetic<SmallerNumber>(registry, "elementwise_fmin", "elementwise_fmin_grad");
  add_arithmetic<RaiseTo>(registry, "elementwise_pow", "elementwise_pow_grad");
  registry.add("equal", binary_op<run_comparison<Equal>, true>);
  registry.add("not_equal", binary_op<run_comparison<NotEqual>, true>);
  registry.add("less_than", binary_op<run_comparison<Less>, true>);
  registry.add("less_equal", binary_op<run_comparison<LessEqual>, true>);
  registry.add("greater_than", binary_op<run_comparison<Greater>, true>);
  registry.add("greater_equal", binary_op<run_comparison<GreaterEqual>, true>);
  registry.add("logical_and", binary_op<run_logical<And>, true>);
  registry.add("logical_or", binary_op<run_logical<Or>, true>);
  registry.add("logical_xor", binary_op<run_logical<Xor>, true>);
  registry.add("scale", gpu_scale);
  registry.add("increment", gpu_increment);
}

}  // namespace millrace::gpu

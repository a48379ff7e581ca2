#include <llvm/ADT/STLExtras.h>

#include "kernels/gpu/ops/broadcast.h"
#include "kernels/gpu/ops/row_groups.h"
#include "kernels/registry.h"

namespace millrace::gpu {
namespace {

// Operands of one type, and the result.
struct BinaryTensors {
  Memory& memory;
  Walk<2> walk;
  const Tensor& a;
  const Tensor& b;
  Tensor& to;
};

template <typename Functor>
Status run_functor(const BinaryTensors& on, Functor functor) {
  functor.x = reinterpret_cast<decltype(functor.x)>(on.a.raw());
  functor.y = reinterpret_cast<decltype(functor.y)>(on.b.raw());
  functor.out = reinterpret_cast<decltype(functor.out)>(on.to.raw());
  functor.walk = on.walk;
  return each(on.memory.device(), functor, on.to.numel());
}
template <typename Formula, typename T, typename R>
Status run_binary(const BinaryTensors& on) {
  return run_functor(on, gpu::Binary<Formula, T, R>{});
}
// The formula is one of a list.
template <typename Formula, typename List, typename T, typename R>
Status run_any(const BinaryTensors& on) {
  constexpr int32_t kNumber = formula_number<Formula>(List{});
  static_assert(kNumber < List::kCount, "add the formula to the list");
  AnyBinary<List, T, R> any{};
  any.number = kNumber;
  return run_functor(on, any);
}

template <typename Formula>
constexpr bool kDivides = std::is_same_v<Formula, Divide> || std::is_same_v<Formula, Modulo> ||
                          std::is_same_v<Formula, FloorDivide>;

// Rejects divisors of 0, which the CPU kernel reports. Waits for the device unless the processor
// has them.
Status check_divisors(Memory& memory, const Tensor& divisors) {
  std::vector<int64_t> numbers;
  MILLRACE_RETURN_IF_ERROR(read_ids(memory, divisors, numbers));
  return llvm::is_contained(numbers, 0) ? refuse("a divisor is 0") : Ok();
}

template <typename Formula, typename T>
Status run_integers(const BinaryTensors& on) {
  if constexpr (formula_number<Formula>(IntegerFormulas{}) == IntegerFormulas::kCount) {
    return run_binary<Formula, T, T>(on);
  } else {
    if constexpr (kDivides<Formula>) MILLRACE_RETURN_IF_ERROR(check_divisors(on.memory, on.b));
    return run_any<Formula, IntegerFormulas, T, T>(on);
  }
}

template <typename Formula>
Status run_types(const BinaryTensors& on) {
  if (on.a.dtype() == DType::kInt64) return run_integers<Formula, int64_t>(on);
  if (on.a.dtype() == DType::kInt32) return run_integers<Formula, int32_t>(on);
  if (on.a.dtype() == DType::kFloat64) return run_any<Formula, WideQuotients, double, double>(on);
  MILLRACE_RETURN_IF_ERROR(all_floats({&on.a}));
  return run_binary<Formula, float, float>(on);
}

template <typename Formula>
Status run_comparison(const BinaryTensors& on) {
  switch (on.a.dtype()) {
    case DType::kFloat32:
      return run_binary<Formula, float, bool>(on);
    case DType::kInt32:
      return run_binary<Formula, int32_t, bool>(on);
    case DType::kInt64:
      return run_binary<Formula, int64_t, bool>(on);
    case DType::kFloat64:
      return run_any<Formula, Comparisons, double, bool>(on);
    case DType::kBool:
    case DType::kUint8:
      return run_any<Formula, Comparisons, uint8_t, bool>(on);
    default:
      return refuse("the GPU kernel does not compare {}", describe(on.a));
  }
}

template <typename Formula>
Status run_logical(const BinaryTensors& on) {
  if (on.a.dtype() != DType::kBool)
    return refuse("the GPU kernel is for bool, found {}", describe(on.a));
  return run_binary<Formula, uint8_t, uint8_t>(on);
}

template <typename Formula>
Status run_bits(const BinaryTensors& on) {
  switch (on.a.dtype()) {
    case DType::kBool:
    case DType::kUint8:
    case DType::kInt8:
      return run_binary<Formula, uint8_t, uint8_t>(on);
    case DType::kInt32:
      return run_any<Formula, IntegerFormulas, int32_t, int32_t>(on);
    case DType::kInt64:
      return run_any<Formula, IntegerFormulas, int64_t, int64_t>(on);
    default:
      return refuse("the GPU kernel does not combine the bits of {}", describe(on.a));
  }
}

using RunBinary = Status (*)(const BinaryTensors&);

// The attribute; -1 if the op lacks it.
int64_t axis_attr(const KernelSetup& op) {
  return op.def().find_attr("axis") == nullptr ? -1 : op.attr<int32_t>("axis");
}

// \param kBool  the result is bool; else it has the type of the operands
template <RunBinary kRun, bool kBool>
StatusOr<Kernel> binary_op(const KernelSetup& op) {
  const int64_t axis = axis_attr(op);
  return Kernel([axis, &memory = memory_of(op), out = op.output("Out"), x = op.input("X"),
                 y = op.input("Y")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const a, needed_here(ctx, x, "X"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const b, needed_here(ctx, y, "Y"));
    MILLRACE_ASSIGN_OR_RETURN(const Broadcast paired, broadcast_of(a->dims(), b->dims(), axis));
    Tensor& to = ctx.out(out);
    if (a->dtype() != b->dtype() || to.numel() != paired.count() ||
        to.dtype() != (kBool ? DType::kBool : a->dtype()))
      return refuse("{} and {} make {}", describe(*a), describe(*b), describe(to));
    MILLRACE_ASSIGN_OR_RETURN(const Walk<2> walk, paired.walk());
    return kRun({memory, walk, *a, *b, to});
  });
}

// The operands of a gradient op; X and Y are null if they are missing.
struct SlopeOperands {
  const Tensor* x;
  const Tensor* y;
  const Tensor* dout;
  Broadcast paired;
};

template <typename Formula>
Status run_wide_slope(Device& device, const SlopeOperands& on, Tensor& to, const Repetitions& r,
                      bool of_y) {
  constexpr int32_t kNumber = formula_number<Formula>(WideBinaryFormulas{});
  static_assert(kNumber < WideBinaryFormulas::kCount, "add the formula to the list");
  const WideSlopeSum<WideBinaryFormulas> sum{
      kNumber,       of_y,          r.each,           r.kept,      r.gone,
      doubles(on.x), doubles(on.y), doubles(on.dout), doubles(&to)};
  if (r.each == 1)
    return each(device, ByOneThread<WideSlopeSum<WideBinaryFormulas>>{sum}, to.numel());
  return r.side_by_side ? lanes(device, sum, to.numel()) : rows(device, sum, to.numel());
}

template <typename Formula, bool kOfY>
Status run_slope(Device& device, const SlopeOperands& on, Tensor* to) {
  if (to == nullptr || to->numel() == 0) return Ok();
  MILLRACE_ASSIGN_OR_RETURN(const Repetitions r, repetitions_of(on.paired, kOfY));
  if (on.dout->dtype() == DType::kFloat64) return run_wide_slope<Formula>(device, on, *to, r, kOfY);
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
    MILLRACE_RETURN_IF_ERROR(all_reals({on.x, on.y, d, to_x, to_y}));
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
    if (from->dtype() == DType::kFloat64)
      return scale_integers<double>(device, *from, *to, settings);
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
  registry.add("elementwise_mod", binary_op<run_types<Modulo>, false>);
  registry.add("elementwise_floordiv", binary_op<run_types<FloorDivide>, false>);
  registry.add("equal", binary_op<run_comparison<Equal>, true>);
  registry.add("not_equal", binary_op<run_comparison<NotEqual>, true>);
  registry.add("less_than", binary_op<run_comparison<Less>, true>);
  registry.add("less_equal", binary_op<run_comparison<LessEqual>, true>);
  registry.add("greater_than", binary_op<run_comparison<Greater>, true>);
  registry.add("greater_equal", binary_op<run_comparison<GreaterEqual>, true>);
  registry.add("logical_and", binary_op<run_logical<And>, true>);
  registry.add("logical_or", binary_op<run_logical<Or>, true>);
  registry.add("logical_xor", binary_op<run_logical<Xor>, true>);
  registry.add("bitwise_and", binary_op<run_bits<And>, false>);
  registry.add("bitwise_or", binary_op<run_bits<Or>, false>);
  registry.add("bitwise_xor", binary_op<run_bits<Xor>, false>);
  registry.add("scale", gpu_scale);
  registry.add("increment", gpu_increment);
}

}  // namespace millrace::gpu

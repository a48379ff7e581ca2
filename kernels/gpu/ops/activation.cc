#include <cstring>

#include "kernels/gpu/ops/args.h"
#include "kernels/registry.h"

// Ops with one operand and a formula for each element.
namespace millrace::gpu {
namespace {

// The f64 kernel of a formula: its number and its attributes, which are floats.
template <typename Formula>
WideUnary<UnaryFormulas> wide_formula(const Formula& formula) {
  constexpr int32_t kNumber = formula_number<Formula>(UnaryFormulas{});
  static_assert(kNumber < UnaryFormulas::kCount, "add the formula to the list");
  WideUnary<UnaryFormulas> wide{};
  wide.number = kNumber;
  if constexpr (!std::is_empty_v<Formula>) {
    static_assert(sizeof(Formula) <= sizeof(wide.attributes));
    std::memcpy(wide.attributes, &formula, sizeof(Formula));
  }
  return wide;
}

template <typename Formula>
Kernel apply_formula(const KernelSetup& op, const Formula& formula) {
  return Kernel([args = FloatArgs(op), formula](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const FloatOperands found, args.find_reals(ctx));
    const auto [from, to] = found;
    if (from->numel() != to->numel())
      return refuse("{} becomes {}", describe(*from), describe(*to));
    if (from->dtype() == DType::kFloat64) {
      WideUnary<UnaryFormulas> wide = wide_formula(formula);
      wide.x = doubles(from);
      wide.y = doubles(to);
      return each(args.device, wide, from->numel());
    }
    return each(args.device, gpu::Unary<Formula>{formula, floats(from), floats(to)}, from->numel());
  });
}

// \param slot  the input that the formula reads in addition to the gradient; null: none
template <typename Formula>
Kernel apply_gradient(const KernelSetup& op, const Formula& formula, const char* slot) {
  const ArgIndex dout = op.input("Out@GRAD");
  return Kernel([&device = device_of(op), formula, slot,
                 v = slot == nullptr ? dout : op.input(slot), dout,
                 dx = op.output("X@GRAD")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const FloatGradient found,
                              real_gradient(ctx, v, slot == nullptr ? "Out@GRAD" : slot, dout, dx));
    const auto [y, dy, to] = found;
    if (to == nullptr) return Ok();
    if (dy->numel() != y->numel())
      return refuse("{} {} and Out@GRAD {} differ", slot, describe(*y), describe(*dy));
    if (y->dtype() == DType::kFloat64) {
      WideUnary<UnaryFormulas> wide = wide_formula(formula);
      wide.x = slot == nullptr ? nullptr : doubles(y);
      wide.dout = doubles(dy);
      wide.y = doubles(to);
      return each(device, wide, y->numel());
    }
    return each(device,
                gpu::Gradient<Formula>{formula, slot == nullptr ? nullptr : floats(y), floats(dy),
                                       floats(to)},
                y->numel());
  });
}

// An attribute of the formulas.
struct GpuNumber {
  const KernelSetup& op;
  float operator()(const char* name) const { return op.attr<float>(name); }
};

// make(number) returns the formula for the attributes of an op.
template <auto kMake>
StatusOr<Kernel> formula_op(const KernelSetup& op) {
  return apply_formula(op, kMake(GpuNumber{op}));
}
enum class Reads : uint8_t { kX, kOut, kNothing };
template <auto kMake, Reads kReads>
StatusOr<Kernel> formula_grad(const KernelSetup& op) {
  const char* const slot = kReads == Reads::kX ? "X" : kReads == Reads::kOut ? "Out" : nullptr;
  if (slot != nullptr && !op.input(slot)) return refuse("{} is missing", slot);
  return apply_gradient(op, kMake(GpuNumber{op}), slot);
}
template <auto kMake, Reads kReads>
void add_formula(KernelRegistry& registry, const char* type, const char* grad_type) {
  registry.add(type, formula_op<kMake>);
  registry.add(grad_type, formula_grad<kMake, kReads>);
}
// For formulas without attributes.
template <typename Formula, Reads kReads>
void add_plain(KernelRegistry& registry, const char* type, const char* grad_type) {
  add_formula<[](const GpuNumber& /*number*/) { return Formula{}; }, kReads>(registry, type,
                                                                             grad_type);
}

StatusOr<Kernel> gpu_gelu(const KernelSetup& op) {
  return op.attr<bool>("approximate") ? apply_formula(op, GeluTanh{}) : apply_formula(op, Gelu{});
}
StatusOr<Kernel> gpu_gelu_grad(const KernelSetup& op) {
  return op.attr<bool>("approximate") ? apply_gradient(op, GeluTanh{}, "X")
                                      : apply_gradient(op, Gelu{}, "X");
}

StatusOr<Kernel> gpu_sign(const KernelSetup& op) {
  return apply_formula(op, gpu::Sign{});
}

StatusOr<gpu::Power> gpu_power(const KernelSetup& op) {
  if (op.input("FactorTensor")) return refuse("the exponent is given by a tensor");
  return gpu::Power{op.attr<float>("factor")};
}
StatusOr<Kernel> gpu_pow(const KernelSetup& op) {
  MILLRACE_ASSIGN_OR_RETURN(const gpu::Power formula, gpu_power(op));
  return apply_formula(op, formula);
}
StatusOr<Kernel> gpu_pow_grad(const KernelSetup& op) {
  MILLRACE_ASSIGN_OR_RETURN(const gpu::Power formula, gpu_power(op));
  return apply_gradient(op, formula, "X");
}

StatusOr<gpu::Clip> gpu_bounds(const KernelSetup& op) {
  if (op.input("Min") || op.input("Max")) return refuse("a bound is given by a tensor");
  const gpu::Clip bounds{op.attr<float>("min"), op.attr<float>("max")};
  if (bounds.low > bounds.high) return refuse("the lower bound is above the upper one");
  return bounds;
}
StatusOr<Kernel> gpu_clip(const KernelSetup& op) {
  MILLRACE_ASSIGN_OR_RETURN(const gpu::Clip formula, gpu_bounds(op));
  return apply_formula(op, formula);
}
StatusOr<Kernel> gpu_clip_grad(const KernelSetup& op) {
  MILLRACE_ASSIGN_OR_RETURN(const gpu::Clip formula, gpu_bounds(op));
  return apply_gradient(op, formula, "X");
}

StatusOr<Kernel> gpu_not(const KernelSetup& op) {
  return one_operand(op, [](Device& device, const Tensor& from, Tensor& to) -> Status {
    if (from.dtype() != DType::kBool || to.dtype() != DType::kBool || from.numel() != to.numel())
      return refuse("the GPU kernel is for bool, found {}", describe(from));
    return each(
        device,
        Not{reinterpret_cast<const uint8_t*>(from.raw()), reinterpret_cast<uint8_t*>(to.raw())},
        to.numel());
  });
}

void add_gpu_rectifiers(KernelRegistry& registry) {
  add_plain<gpu::Relu, Reads::kOut>(registry, "relu", "relu_grad");
  add_formula<[](const GpuNumber& number) { return gpu::Relu6{number("threshold")}; }, Reads::kOut>(
      registry, "relu6", "relu6_grad");
  add_formula<[](const GpuNumber& number) { return gpu::LeakyRelu{number("alpha")}; }, Reads::kX>(
      registry, "leaky_relu", "leaky_relu_grad");
  add_formula<[](const GpuNumber& number) {
    return gpu::Clip{number("t_min"), number("t_max")};
  },
              Reads::kX>(registry, "brelu", "brelu_grad");
  add_formula<[](const GpuNumber& number) { return gpu::ThresholdedRelu{number("threshold")}; },
              Reads::kX>(registry, "thresholded_relu", "thresholded_relu_grad");
  add_formula<[](const GpuNumber& number) { return gpu::HardShrink{number("threshold")}; },
              Reads::kX>(registry, "hard_shrink", "hard_shrink_grad");
  add_formula<[](const GpuNumber& number) { return gpu::SoftShrink{number("lambda")}; }, Reads::kX>(
      registry, "softshrink", "softshrink_grad");
  add_formula<[](const GpuNumber& number) {
    return gpu::HardSigmoid{number("slope"), number("offset")};
  },
              Reads::kOut>(registry, "hard_sigmoid", "hard_sigmoid_grad");
  add_formula<[](const GpuNumber& number) {
    return gpu::HardSwish{number("threshold"), number("scale"), number("offset")};
  },
              Reads::kX>(registry, "hard_swish", "hard_swish_grad");
  add_plain<gpu::Abs, Reads::kX>(registry, "abs", "abs_grad");
  add_plain<gpu::Floor, Reads::kNothing>(registry, "floor", "floor_grad");
  add_plain<gpu::Ceil, Reads::kNothing>(registry, "ceil", "ceil_grad");
  add_plain<gpu::Round, Reads::kNothing>(registry, "round", "round_grad");
  add_plain<gpu::Trunc, Reads::kNothing>(registry, "trunc", "trunc_grad");
}

void add_gpu_smooth(KernelRegistry& registry) {
  add_plain<gpu::Sigmoid, Reads::kOut>(registry, "sigmoid", "sigmoid_grad");
  add_plain<gpu::LogSigmoid, Reads::kX>(registry, "logsigmoid", "logsigmoid_grad");
  add_plain<gpu::Tanh, Reads::kOut>(registry, "tanh", "tanh_grad");
  add_plain<gpu::TanhShrink, Reads::kX>(registry, "tanh_shrink", "tanh_shrink_grad");
  add_formula<[](const GpuNumber& number) {
    return gpu::ScaledTanh{number("scale_a"), number("scale_b")};
  },
              Reads::kX>(registry, "stanh", "stanh_grad");
  add_plain<gpu::SoftSign, Reads::kX>(registry, "softsign", "softsign_grad");
  add_formula<[](const GpuNumber& number) {
    return gpu::Softplus{number("beta"), number("threshold")};
  },
              Reads::kX>(registry, "softplus", "softplus_grad");
  add_formula<[](const GpuNumber& number) { return gpu::SoftRelu{number("threshold")}; },
              Reads::kOut>(registry, "soft_relu", "soft_relu_grad");
  add_formula<[](const GpuNumber& number) { return gpu::Elu{number("alpha")}; }, Reads::kX>(
      registry, "elu", "elu_grad");
  add_formula<[](const GpuNumber& number) { return gpu::Celu{number("alpha")}; }, Reads::kX>(
      registry, "celu", "celu_grad");
  add_formula<[](const GpuNumber& number) {
    return gpu::Selu{number("scale"), number("alpha")};
  },
              Reads::kOut>(registry, "selu", "selu_grad");
  add_plain<gpu::Silu, Reads::kX>(registry, "silu", "silu_grad");
  add_formula<[](const GpuNumber& number) { return gpu::Swish{number("beta")}; }, Reads::kX>(
      registry, "swish", "swish_grad");
  add_formula<[](const GpuNumber& number) { return gpu::Mish{number("threshold")}; }, Reads::kX>(
      registry, "mish", "mish_grad");
  add_plain<gpu::Erf, Reads::kX>(registry, "erf", "erf_grad");
}

void add_gpu_functions(KernelRegistry& registry) {
  add_plain<gpu::Exp, Reads::kOut>(registry, "exp", "exp_grad");
  add_plain<gpu::Expm1, Reads::kOut>(registry, "expm1", "expm1_grad");
  add_plain<gpu::Log, Reads::kX>(registry, "log", "log_grad");
  add_plain<gpu::Log2, Reads::kX>(registry, "log2", "log2_grad");
  add_plain<gpu::Log10, Reads::kX>(registry, "log10", "log10_grad");
  add_plain<gpu::Log1p, Reads::kX>(registry, "log1p", "log1p_grad");
  add_plain<gpu::Sqrt, Reads::kOut>(registry, "sqrt", "sqrt_grad");
  add_plain<gpu::Rsqrt, Reads::kOut>(registry, "rsqrt", "rsqrt_grad");
  add_plain<gpu::Square, Reads::kX>(registry, "square", "square_grad");
  add_plain<gpu::Reciprocal, Reads::kOut>(registry, "reciprocal", "reciprocal_grad");
  add_plain<gpu::Sin, Reads::kX>(registry, "sin", "sin_grad");
  add_plain<gpu::Cos, Reads::kX>(registry, "cos", "cos_grad");
  add_plain<gpu::Tan, Reads::kX>(registry, "tan", "tan_grad");
  add_plain<gpu::Asin, Reads::kX>(registry, "asin", "asin_grad");
  add_plain<gpu::Acos, Reads::kX>(registry, "acos", "acos_grad");
  add_plain<gpu::Atan, Reads::kX>(registry, "atan", "atan_grad");
  add_plain<gpu::Sinh, Reads::kX>(registry, "sinh", "sinh_grad");
  add_plain<gpu::Cosh, Reads::kX>(registry, "cosh", "cosh_grad");
  add_plain<gpu::Asinh, Reads::kX>(registry, "asinh", "asinh_grad");
  add_plain<gpu::Acosh, Reads::kX>(registry, "acosh", "acosh_grad");
  add_plain<gpu::Atanh, Reads::kX>(registry, "atanh", "atanh_grad");
}

}  // namespace

void add_activation(KernelRegistry& registry) {
  add_gpu_rectifiers(registry);
  add_gpu_smooth(registry);
  add_gpu_functions(registry);
  registry.add("gelu", gpu_gelu);
  registry.add("gelu_grad", gpu_gelu_grad);
  registry.add("sign", gpu_sign);
  registry.add("pow", gpu_pow);
  registry.add("pow_grad", gpu_pow_grad);
  registry.add("clip", gpu_clip);
  registry.add("clip_grad", gpu_clip_grad);
  registry.add("logical_not", gpu_not);
}

}  // namespace millrace::gpu

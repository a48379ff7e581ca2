#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cpu/broadcast.h"
#include "kernels/cpu/needed.h"
#include "kernels/cpu/nn/adapted.h"
#include "kernels/cpu/vector_math.h"
#include "kernels/dispatch.h"
#include "kernels/registry.h"

// fused_elemwise_activation: binary(x, unary(y)) or unary(binary(x, y)).
namespace millrace::kernels {
namespace fused_elementwise {
namespace {

enum class Unary { kRelu, kScale, kTanh, kSigmoid, kGelu };
enum class Binary { kAdd, kMul };

struct FusedElementwisePair {
  Unary unary = Unary::kRelu;
  Binary binary = Binary::kAdd;
  bool binary_outside = true;
  double scale = 0;
  int64_t axis = -1;
};

StatusOr<Unary> unary_of(const KernelSetup& op, const std::string& name) {
  if (name == "relu") return Unary::kRelu;
  if (name == "scale") return Unary::kScale;
  if (name == "tanh") return Unary::kTanh;
  if (name == "sigmoid") return Unary::kSigmoid;
  if (name == "gelu") return Unary::kGelu;
  return op.error(
      "attribute 'functor_list' names '{}', expected relu, scale, tanh, sigmoid or gelu", name);
}

// Gradient ops name the gradients of the functions (relu_grad); older millrace programs name the
// functions.
StatusOr<FusedElementwisePair> pair_of(const KernelSetup& op, bool is_gradient = false) {
  auto names = op.attr<std::vector<std::string>>("functor_list");
  for (std::string& name : names) {
    llvm::StringRef function = name;
    if (is_gradient && function.consume_back("_grad")) name = function.str();
  }
  if (names.size() != 2)
    return op.error("attribute 'functor_list' has {} entries, expected 2", names.size());
  FusedElementwisePair pair;
  pair.binary_outside = llvm::StringRef(names[0]).startswith("elementwise_");
  const std::string& binary = names[pair.binary_outside ? 0 : 1];
  if (binary != "elementwise_add" && binary != "elementwise_mul")
    return op.error(
        "attribute 'functor_list' names '{}', expected elementwise_add or elementwise_mul", binary);
  pair.binary = binary == "elementwise_add" ? Binary::kAdd : Binary::kMul;
  MILLRACE_ASSIGN_OR_RETURN(pair.unary, unary_of(op, names[pair.binary_outside ? 1 : 0]));
  pair.scale = op.attr<float>("scale");
  pair.axis = op.attr<int32_t>("axis");
  return pair;
}

template <typename T>
T value_of(const FusedElementwisePair& p, T x) {
  switch (p.unary) {
    case Unary::kRelu:
      return x < T(0) ? T(0) : x;
    case Unary::kScale:
      return x * static_cast<T>(p.scale);
    case Unary::kTanh:
      return vmath::tanh(x);
    case Unary::kSigmoid:
      return vmath::sigmoid(x);
    case Unary::kGelu:
      return T(0.5) * x * (1 + vmath::erf(x * T(0.70710678118654752)));
  }
  return x;
}

template <typename T>
T slope_of(const FusedElementwisePair& p, T x) {
  switch (p.unary) {
    case Unary::kRelu:
      return x > T(0) ? T(1) : T(0);
    case Unary::kScale:
      return static_cast<T>(p.scale);
    case Unary::kTanh: {
      const T y = vmath::tanh(x);
      return 1 - y * y;
    }
    case Unary::kSigmoid: {
      const T y = vmath::sigmoid(x);
      return y * (1 - y);
    }
    case Unary::kGelu:
      return T(0.5) * (1 + vmath::erf(x * T(0.70710678118654752))) +
             x * T(0.39894228040143268) * vmath::exp(T(-0.5) * x * x);
  }
  return T(1);
}

template <typename T>
T combine(const FusedElementwisePair& p, T x, T y) {
  return p.binary == Binary::kAdd ? x + y : x * y;
}

struct FusedElementwiseSlots {
  ArgIndex x;
  ArgIndex y;
};

struct FusedElementwiseOperands {
  const Tensor* x = nullptr;
  const Tensor* y = nullptr;
  const BroadcastNest* nest = nullptr;
};

StatusOr<FusedElementwiseOperands> operands(const KernelContext& ctx,
                                            const FusedElementwiseSlots& slots,
                                            const FusedElementwisePair& pair,
                                            BroadcastCache& cache) {
  FusedElementwiseOperands o;
  MILLRACE_ASSIGN_OR_RETURN(o.x, needed(ctx, slots.x, "X"));
  MILLRACE_ASSIGN_OR_RETURN(o.y, needed(ctx, slots.y, "Y"));
  if (o.x->dtype() != o.y->dtype())
    return ctx.error("X and Y must be of one type, found {} and {}", describe(*o.x),
                     describe(*o.y));
  MILLRACE_ASSIGN_OR_RETURN(o.nest, cache.get(o.x->dims(), o.y->dims(), pair.axis));
  return o;
}

// Calls body(offset in X, in Y, in the result) for every element.
template <typename Body>
void each_element(const BroadcastNest& nest, Body&& body) {
  const auto stride = nest.run_stride();
  nest.each_run([&](const BroadcastNest::Offsets& at, int64_t length) {
    for (int64_t i = 0; i < length; ++i)
      body(at[kOfX] + i * stride[kOfX], at[kOfY] + i * stride[kOfY],
           at[kOfOut] + i * stride[kOfOut]);
  });
}

template <typename T>
void forward(const FusedElementwiseOperands& o, const FusedElementwisePair& p, Tensor& out,
             Tensor* inner) {
  const T* const x = o.x->data<T>();
  const T* const y = o.y->data<T>();
  T* const to = out.data<T>();
  T* const kept = inner == nullptr ? nullptr : inner->data<T>();
  each_element(*o.nest, [&](int64_t ix, int64_t iy, int64_t i) {
    const T between = p.binary_outside ? value_of(p, y[iy]) : combine(p, x[ix], y[iy]);
    to[i] = p.binary_outside ? combine(p, x[ix], between) : value_of(p, between);
    if (kept != nullptr) kept[p.binary_outside ? iy : i] = between;
  });
}

StatusOr<Kernel> fused(const KernelSetup& op) {
  MILLRACE_ASSIGN_OR_RETURN(const FusedElementwisePair pair, pair_of(op));
  const FusedElementwiseSlots slots{op.input("X"), op.input("Y")};
  const ArgIndex out = op.output("Out");
  const ArgIndex inner = op.output("IntermediateOut");
  auto cache = std::make_shared<BroadcastCache>();
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const FusedElementwiseOperands o, operands(ctx, slots, pair, *cache));
    // also without save_intermediate_out: any named var can be fetched
    Tensor* const kept = ctx.find_out(inner);
    if (ctx.out(out).numel() != o.nest->count() ||
        (kept != nullptr &&
         kept->numel() != (pair.binary_outside ? o.y->numel() : o.nest->count())))
      return ctx.error("Out is {}, expected {} elements", describe(ctx.out(out)), o.nest->count());
    return dispatch<FloatTypes>(o.x->dtype(), [&](auto tag) -> Status {
      forward<typename decltype(tag)::type>(o, pair, ctx.out(out), kept);
      return Ok();
    });
  });
}

struct FusedElementwiseGrads {
  const Tensor* dout = nullptr;
  Tensor* dx = nullptr;
  Tensor* dy = nullptr;
  Tensor* dinner = nullptr;
};

template <typename T>
void backward(const FusedElementwiseOperands& o, const FusedElementwisePair& p,
              const FusedElementwiseGrads& g) {
  const T* const x = o.x->data<T>();
  const T* const y = o.y->data<T>();
  const T* const d = g.dout->data<T>();
  T* const dx = g.dx == nullptr ? nullptr : g.dx->data<T>();
  T* const dy = g.dy == nullptr ? nullptr : g.dy->data<T>();
  T* const dinner = g.dinner == nullptr ? nullptr : g.dinner->data<T>();
  if (dinner != nullptr) std::fill_n(dinner, g.dinner->numel(), T(0));
  if (dx != nullptr) std::fill_n(dx, g.dx->numel(), T(0));
  if (dy != nullptr) std::fill_n(dy, g.dy->numel(), T(0));
  const bool product = p.binary == Binary::kMul;
  each_element(*o.nest, [&](int64_t ix, int64_t iy, int64_t i) {
    const T a = x[ix];
    const T b = p.binary_outside ? value_of(p, y[iy]) : y[iy];
    const T through = p.binary_outside ? d[i] : d[i] * slope_of(p, combine(p, a, b));
    const T to_b = product ? through * a : through;
    if (dinner != nullptr) dinner[p.binary_outside ? iy : i] += p.binary_outside ? to_b : through;
    if (dx != nullptr) dx[ix] += product ? through * b : through;
    if (dy != nullptr) dy[iy] += p.binary_outside ? to_b * slope_of(p, y[iy]) : to_b;
  });
}

StatusOr<Kernel> fused_grad(const KernelSetup& op) {
  MILLRACE_ASSIGN_OR_RETURN(const FusedElementwisePair pair, pair_of(op, true));
  const FusedElementwiseSlots slots{op.input("X"), op.input("Y")};
  const ArgIndex dout = op.input("Out@GRAD");
  const ArgIndex dx = op.output("X@GRAD");
  const ArgIndex dy = op.output("Y@GRAD");
  const ArgIndex dinner = op.output("IntermediateOut@GRAD");
  auto cache = std::make_shared<BroadcastCache>();
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const FusedElementwiseOperands o, operands(ctx, slots, pair, *cache));
    FusedElementwiseGrads g;
    MILLRACE_ASSIGN_OR_RETURN(g.dout, needed(ctx, dout, "Out@GRAD"));
    if (g.dout->numel() != o.nest->count() || g.dout->dtype() != o.x->dtype())
      return ctx.error("Out@GRAD must have {} elements, found {}", o.nest->count(),
                       describe(*g.dout));
    MILLRACE_ASSIGN_OR_RETURN(g.dx, result_like(ctx, dx, *o.x));
    MILLRACE_ASSIGN_OR_RETURN(g.dy, result_like(ctx, dy, *o.y));
    MILLRACE_ASSIGN_OR_RETURN(g.dinner,
                              result_like(ctx, dinner, pair.binary_outside ? *o.y : *g.dout));
    return dispatch<FloatTypes>(o.x->dtype(), [&](auto tag) -> Status {
      backward<typename decltype(tag)::type>(o, pair, g);
      return Ok();
    });
  });
}

}  // namespace
}  // namespace fused_elementwise

void add_feature_fused_elementwise(KernelRegistry& registry) {
  using namespace fused_elementwise;
  registry.add("fused_elemwise_activation", in_float<fused>);
  registry.add("fused_elemwise_activation_grad", in_float<fused_grad>);
}

}  // namespace millrace::kernels

#pragma once

#include <concepts>
#include <cstdint>

#include "framework/base/status.h"
#include "kernels/kernel.h"
#include "kernels/registry.h"

/// Kernels of ops that are one formula for each element. A formula is a small struct:
///
///   struct Elu {
///     float alpha;
///     explicit Elu(const KernelSetup& op) : alpha(op.attr<float>("alpha")) {}  // or nothing
///     static constexpr GradSource kFrom = GradSource::kX;
///     template <typename T>
///     T value(T x) const;                // the op
///     template <typename T>
///     T grad(T v, T dout) const;         // its gradient; v is what kFrom says
///   };
///
/// Loops exist for float and double; the 16-bit floats are converted chunk by chunk. Formulas with
/// kIntegers = true also have loops for int32 and int64.
namespace millrace::kernels {

/// What a gradient is computed from, in addition to the incoming one.
enum class GradSource : uint8_t { kX, kOut, kNothing };

namespace detail {

template <typename T>
using UnaryLoop = void (*)(const void* formula, const T* v, const T* dout, T* out, int64_t count);

/// Loops of one formula by element type; the integer loops may be null.
struct UnaryLoops {
  UnaryLoop<float> f32 = nullptr;  ///< f16 and bf16 are converted to f32
  UnaryLoop<double> f64 = nullptr;
  UnaryLoop<int32_t> i32 = nullptr;
  UnaryLoop<int64_t> i64 = nullptr;
};

/// The loops of formula F, by element type: out may be v or dout.
template <typename F, typename T>
void value_loop(const void* formula, const T* v, const T* /*dout*/, T* out, int64_t count) {
  const F f = *static_cast<const F*>(formula);
  for (int64_t i = 0; i < count; ++i) out[i] = f.template value<T>(v[i]);
}
template <typename F, typename T>
void grad_loop(const void* formula, const T* v, const T* dout, T* out, int64_t count) {
  const F f = *static_cast<const F*>(formula);
  if constexpr (F::kFrom == GradSource::kNothing) {
    for (int64_t i = 0; i < count; ++i) out[i] = f.template grad<T>(T(0), dout[i]);
  } else {
    for (int64_t i = 0; i < count; ++i) out[i] = f.template grad<T>(v[i], dout[i]);
  }
}

/// True for formulas with loops for integers as well.
template <typename F>
concept HasIntegers = F::kIntegers;

/// The loops of the op, and of its gradient.
template <typename F>
constexpr UnaryLoops value_loops() {
  UnaryLoops loops{value_loop<F, float>, value_loop<F, double>};
  if constexpr (HasIntegers<F>) {
    loops.i32 = value_loop<F, int32_t>;
    loops.i64 = value_loop<F, int64_t>;
  }
  return loops;
}
template <typename F>
constexpr UnaryLoops grad_loops() {
  UnaryLoops loops{grad_loop<F, float>, grad_loop<F, double>};
  if constexpr (HasIntegers<F>) {
    loops.i32 = grad_loop<F, int32_t>;
    loops.i64 = grad_loop<F, int64_t>;
  }
  return loops;
}
template <typename F>
inline constexpr UnaryLoops kValueLoops = value_loops<F>();
template <typename F>
inline constexpr UnaryLoops kGradLoops = grad_loops<F>();

/// Constructs the formula, from the attributes of the op if it has any.
template <typename F>
F make_formula(const KernelSetup& op) {
  if constexpr (std::constructible_from<F, const KernelSetup&>) {
    return F(op);
  } else {
    return F{};
  }
}

/// Arguments of an elementwise op or of its gradient; absent ones are not read.
struct UnaryArgs {
  ArgIndex v;     ///< X; in gradients what GradSource says
  ArgIndex dout;  ///< absent in forward ops
  ArgIndex out;   ///< may be the memory of v
};
/// Resolves "X" and "Out".
UnaryArgs value_args(const KernelSetup& op);
/// Resolves "Out@GRAD", "X@GRAD" and X or Out. Errors: the op lacks what the formula needs.
StatusOr<UnaryArgs> grad_args(const KernelSetup& op, GradSource from);
/// Runs over dense tensors, or over the values of selected rows. Errors: dtype without a loop,
/// operands of different size.
Status run_unary(const KernelContext& ctx, const UnaryArgs& args, const UnaryLoops& loops,
                 const void* formula);
/// Runs a forward formula over one tensor in place.
Status run_unary_on(const KernelContext& ctx, Tensor& tensor, const UnaryLoops& loops,
                    const void* formula);

}  // namespace detail

/// Maker of the op of formula F.
template <typename F>
StatusOr<Kernel> unary(const KernelSetup& op) {
  return Kernel(
      [f = detail::make_formula<F>(op), args = detail::value_args(op)](const KernelContext& ctx) {
        return detail::run_unary(ctx, args, detail::kValueLoops<F>, &f);
      });
}
/// Maker of its gradient.
template <typename F>
StatusOr<Kernel> unary_grad(const KernelSetup& op) {
  MILLRACE_ASSIGN_OR_RETURN(const detail::UnaryArgs args, detail::grad_args(op, F::kFrom));
  return Kernel([f = detail::make_formula<F>(op), args](const KernelContext& ctx) {
    return args.out ? detail::run_unary(ctx, args, detail::kGradLoops<F>, &f) : Ok();
  });
}

/// Registers both.
template <typename F>
void add_unary(KernelRegistry& registry, llvm::StringRef type, llvm::StringRef grad_type) {
  registry.add(type, unary<F>);
  registry.add(grad_type, unary_grad<F>);
}

}  // namespace millrace::kernels

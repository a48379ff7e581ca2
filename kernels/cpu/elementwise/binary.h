#pragma once

#include <concepts>
#include <cstdint>

#include "kernels/cpu/broadcast.h"
#include "kernels/cpu/convert.h"
#include "kernels/dispatch.h"
#include "kernels/kernel.h"
#include "kernels/registry.h"

/// Kernels of ops that apply one formula to two operands, the smaller of which is broadcast. A
/// formula is an empty struct:
///
///   struct Mul {
///     template <typename T> static T value(T x, T y);
///     template <typename T> static T grad_x(T x, T y, T dout);  // if there is a gradient
///     template <typename T> static T grad_y(T x, T y, T dout);
///   };
///
/// Loops exist for float, double, int32 and int64; other types are converted, see wide_type().
namespace millrace::kernels {

/// x, y and out have count elements, but an operand that is repeated has one.
template <typename T, typename R>
using BinaryLoop = void (*)(const T* x, const T* y, R* out, int64_t count);

/// Loops of one formula: both operands advance, or one of them is a single element.
template <typename T, typename R>
struct BinaryLoops {
  BinaryLoop<T, R> both;    ///< both operands have count elements
  BinaryLoop<T, R> y_once;  ///< y is one element
  BinaryLoop<T, R> x_once;  ///< x is one element
};

/// The gradient of one operand for each element of the result; dout and out have count elements.
template <typename T>
using BinaryGradLoop = void (*)(const T* x, const T* y, const T* dout, T* out, int64_t count);

/// As BinaryLoops, with the gradient of the result as third operand.
template <typename T>
struct BinaryGradLoops {
  BinaryGradLoop<T> both;    ///< one element of X for each of Y
  BinaryGradLoop<T> y_once;  ///< the same element of Y for the whole run
  BinaryGradLoop<T> x_once;  ///< the same element of X for the whole run
};

/// The loops of formula F, which are instantiated once per type and shared by all ops.
template <typename F, typename T, typename R = T>
inline constexpr BinaryLoops<T, R> kBinaryLoops = {
    [](const T* x, const T* y, R* out, int64_t count) {
      for (int64_t i = 0; i < count; ++i) out[i] = F::value(x[i], y[i]);
    },
    [](const T* x, const T* y, R* out, int64_t count) {
      const T once = *y;
      for (int64_t i = 0; i < count; ++i) out[i] = F::value(x[i], once);
    },
    [](const T* x, const T* y, R* out, int64_t count) {
      const T once = *x;
      for (int64_t i = 0; i < count; ++i) out[i] = F::value(once, y[i]);
    }};

/// The loops of a formula of a gradient (F::grad_x or F::grad_y).
template <auto kFormula, typename T>
inline constexpr BinaryGradLoops<T> kBinaryGradLoops = {
    [](const T* x, const T* y, const T* dout, T* out, int64_t count) {
      for (int64_t i = 0; i < count; ++i) out[i] = kFormula(x[i], y[i], dout[i]);
    },
    [](const T* x, const T* y, const T* dout, T* out, int64_t count) {
      const T once = *y;
      for (int64_t i = 0; i < count; ++i) out[i] = kFormula(x[i], once, dout[i]);
    },
    [](const T* x, const T* y, const T* dout, T* out, int64_t count) {
      const T once = *x;
      for (int64_t i = 0; i < count; ++i) out[i] = kFormula(once, y[i], dout[i]);
    }};

/// out = x op y on the threads of the device. out may be x or y if that operand is not broadcast.
/// \param nest  of the operands' dims (broadcast.h)
template <typename T, typename R>
void run_binary(CpuDevice& device, const BroadcastNest& nest, const BinaryLoops<T, R>& loops,
                const T* x, const T* y, R* out) {
  const auto stride = nest.run_stride();
  const BinaryLoop<T, R> loop = stride[kOfX] == 0   ? loops.x_once
                                : stride[kOfY] == 0 ? loops.y_once
                                                    : loops.both;
  nest.parallel_runs(device, kOfOut, [&](const BroadcastNest::Offsets& at, int64_t count) {
    loop(x + at[kOfX], y + at[kOfY], out + at[kOfOut], count);
  });
}

/// Gradient of one operand (kOfX or kOfY): the formula for every element of the result, summed
/// where the operand was repeated. out may be dout if the operand is not broadcast.
/// \param size  number of elements of out, that is, of the operand
template <typename T>
void run_binary_grad(CpuDevice& device, const BroadcastNest& nest, const BinaryGradLoops<T>& loops,
                     size_t operand, const T* x, const T* y, const T* dout, T* out, int64_t size);
/// The same for a formula that is dout or its negative.
template <typename T>
void run_copied_grad(CpuDevice& device, const BroadcastNest& nest, size_t operand, bool negative,
                     const T* dout, T* out, int64_t size);

/// The operands of a forward op: X is a dense tensor, or selected rows if Y is one element.
struct BinaryArgs {
  ArgIndex x;         ///< dense, or selected rows
  ArgIndex y;         ///< dense
  ArgIndex out;       ///< of the kind of X
  int64_t axis = -1;  ///< attribute axis, for broadcast_nest()
  /// Resolves "X", "Y" and "Out".
  explicit BinaryArgs(const KernelSetup& op)
      : x(op.input("X")), y(op.input("Y")), out(op.output("Out")) {
    if (op.def().find_attr("axis") != nullptr) axis = op.attr<int32_t>("axis");
  }
};
/// Operands as dense tensors: for selected rows, the values of all rows.
struct BinaryOperands {
  const Tensor* x;  ///< values of X
  const Tensor* y;  ///< values of Y
  Tensor* out;      ///< resized already
};
/// Finds the operands, and sizes the rows of a sparse result. Errors: types differ, Y is sparse.
StatusOr<BinaryOperands> binary_operands(const KernelContext& ctx, const BinaryArgs& args);

/// A kernel that calls compute(ctx, operands, nest) for each run; it returns a Status.
template <typename Compute>
Kernel broadcast_kernel(const KernelSetup& op, Compute compute) {
  return [args = BinaryArgs(op), cache = BroadcastCache(),
          compute = std::move(compute)](const KernelContext& ctx) mutable -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const BinaryOperands on, binary_operands(ctx, args));
    MILLRACE_ASSIGN_OR_RETURN(const BroadcastNest* const nest,
                              cache.get(on.x->dims(), on.y->dims(), args.axis));
    return compute(ctx, on, *nest);
  };
}

/// The elements of X and Y as one type: their own memory, or scratch slots 0 and 1 of the device.
struct OperandElements {
  const std::byte* x;
  const std::byte* y;
};
/// Errors: kResource, kUnimplemented.
inline StatusOr<OperandElements> operand_elements(const KernelContext& ctx,
                                                  const BinaryOperands& on, DType dtype) {
  MILLRACE_ASSIGN_OR_RETURN(const std::byte* const x, elements_as(ctx.device(), *on.x, dtype, 0));
  MILLRACE_ASSIGN_OR_RETURN(const std::byte* const y, elements_as(ctx.device(), *on.y, dtype, 1));
  return OperandElements{x, y};
}

/// The operands of a gradient op; X and Y may be missing if the formulas do not use them.
struct BinaryGradArgs {
  ArgIndex x;
  ArgIndex y;
  ArgIndex dout;  ///< required
  ArgIndex dx;    ///< absent: not requested; the same for dy
  ArgIndex dy;
  int64_t axis = -1;  ///< where the dims of Y start in X; -1: at the end
  /// Resolves the slots of the gradient op; all of them are optional.
  explicit BinaryGradArgs(const KernelSetup& op)
      : x(op.input("X")),
        y(op.input("Y")),
        dout(op.input("Out@GRAD")),
        dx(op.output("X@GRAD")),
        dy(op.output("Y@GRAD")) {
    if (op.def().find_attr("axis") != nullptr) axis = op.attr<int32_t>("axis");
  }
};
/// Calls body(tag, x, y, dout, nest) with the elements in a float type; x or y is null if missing.
/// Errors: dims or types do not fit, an input is missing.
struct BinaryGradInputs {
  const std::byte* x;
  const std::byte* y;
  const std::byte* dout;
  const BroadcastNest* nest;  ///< owned by the cache
  DType dtype;                ///< of the three operands: f32 or f64
};
StatusOr<BinaryGradInputs> binary_grad_inputs(const KernelContext& ctx, const BinaryGradArgs& args,
                                              BroadcastCache& cache);

/// Computes X op Y if one of them is in a library layout: in that layout if both have the same dims
/// or Y has one element per channel; else converts both to row-major order. Returns true if Out has
/// been computed. Errors: kResource, kExecution.
StatusOr<bool> run_in_layout(const KernelContext& ctx, const BinaryArgs& args,
                             const BinaryLoops<float, float>& loops);

/// Checks that Y has no zero, for integers: their division by zero is not defined.
/// \param y  elements of type dtype; floats are not checked
Status check_divisors(DType dtype, const std::byte* y, int64_t count);

/// True for formulas with a division, which say so by kDivides = true.
template <typename F>
concept Divides = F::kDivides;

/// Maker of the forward op of formula F.
template <typename F>
StatusOr<Kernel> binary(const KernelSetup& op) {
  const BinaryArgs args(op);
  op.accept_layout(args.x);
  op.accept_layout(args.y);
  return Kernel([args, cache = BroadcastCache()](const KernelContext& ctx) mutable -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const BinaryOperands on, binary_operands(ctx, args));
    // images that a convolution left in the layout of its library
    if (on.x->layout() != nullptr || on.y->layout() != nullptr) {
      MILLRACE_ASSIGN_OR_RETURN(const bool done, run_in_layout(ctx, args, kBinaryLoops<F, float>));
      if (done) return Ok();
    }
    MILLRACE_ASSIGN_OR_RETURN(const BroadcastNest* const nest,
                              cache.get(on.x->dims(), on.y->dims(), args.axis));
    const DType dtype = wide_type(on.x->dtype());
    MILLRACE_ASSIGN_OR_RETURN(const OperandElements from, operand_elements(ctx, on, dtype));
    if constexpr (Divides<F>)
      MILLRACE_RETURN_IF_ERROR(check_divisors(dtype, from.y, on.y->numel()));
    MILLRACE_ASSIGN_OR_RETURN(const WideOutput out,
                              WideOutput::open(ctx.device(), *on.out, dtype, 2));
    MILLRACE_RETURN_IF_ERROR(dispatch<NumberTypes>(dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      run_binary(ctx.device(), *nest, kBinaryLoops<F, T>, reinterpret_cast<const T*>(from.x),
                 reinterpret_cast<const T*>(from.y), out.template data<T>());
      return Ok();
    }));
    return out.finish();
  });
}

/// Maker of its gradient.
template <typename F>
StatusOr<Kernel> binary_grad(const KernelSetup& op) {
  const BinaryGradArgs args(op);
  if (!args.x || !args.y) return op.error("inputs 'X' and 'Y' are both needed");
  return Kernel([args, cache = BroadcastCache()](const KernelContext& ctx) mutable -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const BinaryGradInputs in, binary_grad_inputs(ctx, args, cache));
    return dispatch<FloatTypes>(in.dtype, [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      const auto run = [&](const BinaryGradLoops<T>& loops, size_t operand,
                           ArgIndex arg) -> Status {
        Tensor* const grad = ctx.find_out(arg);
        if (grad == nullptr) return Ok();
        MILLRACE_ASSIGN_OR_RETURN(const WideOutput out,
                                  WideOutput::open(ctx.device(), *grad, in.dtype, 3));
        run_binary_grad(ctx.device(), *in.nest, loops, operand, reinterpret_cast<const T*>(in.x),
                        reinterpret_cast<const T*>(in.y), reinterpret_cast<const T*>(in.dout),
                        out.template data<T>(), grad->numel());
        return out.finish();
      };
      // X last: its gradient may share memory with the incoming one.
      MILLRACE_RETURN_IF_ERROR(run(kBinaryGradLoops<F::template grad_y<T>, T>, kOfY, args.dy));
      return run(kBinaryGradLoops<F::template grad_x<T>, T>, kOfX, args.dx);
    });
  });
}

}  // namespace millrace::kernels

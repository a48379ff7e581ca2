#pragma once

#include "kernels/cpu/needed.h"
#include "kernels/cpu/nn/window.h"

namespace millrace::kernels {

/// The arguments of an op with operands X and Y and one result.
struct PairArgs {
  explicit PairArgs(const KernelSetup& op)
      : x(op.input("X")), y(op.input("Y")), out(op.output("Out")) {}

  struct Operands {
    const Tensor* x;
    const Tensor* y;
  };
  /// Errors: X or Y holds no tensor.
  [[nodiscard]] StatusOr<Operands> operands(const KernelContext& ctx) const {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const a, needed(ctx, x, "X"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const b, needed(ctx, y, "Y"));
    return Operands{a, b};
  }

  ArgIndex x;    ///< operand X
  ArgIndex y;    ///< operand Y
  ArgIndex out;  ///< the result
};

/// Operands of the gradient of an op with operands X and Y and one result.
struct PairGrad {
  const Tensor* x = nullptr;     ///< operand X of the forward op
  const Tensor* y = nullptr;     ///< operand Y of the forward op
  const Tensor* dout = nullptr;  ///< null: the program has no gradient of the result
  Tensor* dx = nullptr;          ///< zeros with the dims of X; null: not requested
  Tensor* dy = nullptr;          ///< zeros with the dims of Y; null: not requested
};

/// Their arguments.
struct PairGradArgs {
  /// Resolves X, Y, Out@GRAD, X@GRAD and Y@GRAD.
  explicit PairGradArgs(const KernelSetup& op)
      : x(op.input("X")),
        y(op.input("Y")),
        dout(op.input("Out@GRAD")),
        dx(op.output("X@GRAD")),
        dy(op.output("Y@GRAD")) {}

  /// Errors: X or Y holds no tensor; kResource.
  [[nodiscard]] StatusOr<PairGrad> read(const KernelContext& ctx) const {
    PairGrad grad;
    MILLRACE_ASSIGN_OR_RETURN(grad.x, needed(ctx, x, "X"));
    MILLRACE_ASSIGN_OR_RETURN(grad.y, needed(ctx, y, "Y"));
    MILLRACE_ASSIGN_OR_RETURN(grad.dx, result_like(ctx, dx, *grad.x));
    MILLRACE_ASSIGN_OR_RETURN(grad.dy, result_like(ctx, dy, *grad.y));
    if (grad.dx != nullptr) fill_zero(*grad.dx);
    if (grad.dy != nullptr) fill_zero(*grad.dy);
    grad.dout = ctx.find_in(dout);
    return grad;
  }

  ArgIndex x;
  ArgIndex y;
  ArgIndex dout;
  ArgIndex dx;
  ArgIndex dy;
};

}  // namespace millrace::kernels

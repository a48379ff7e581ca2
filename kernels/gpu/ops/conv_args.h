#pragma once

#include "kernels/gpu/ops/args.h"

namespace millrace::gpu {

/// The tensors of a convolution: what it reads and writes, or its gradient.
struct ConvTensors {
  const Tensor* x = nullptr;   ///< Input
  const Tensor* w = nullptr;   ///< Filter
  const Tensor* dy = nullptr;  ///< gradient of Output; null for the forward op
  Tensor* y = nullptr;         ///< Output; null for the gradient
  Tensor* dx = nullptr;        ///< gradient of Input; null: not wanted
  Tensor* dw = nullptr;        ///< gradient of Filter; null: not wanted
};

/// Their arguments, of a convolution or of its gradient.
class ConvArgs {
 public:
  explicit ConvArgs(const KernelSetup& op)
      : input_(op.input("Input")),
        filter_(op.input("Filter")),
        output_(op.output("Output")),
        output_grad_(op.input("Output@GRAD")),
        input_grad_(op.output("Input@GRAD")),
        filter_grad_(op.output("Filter@GRAD")) {}

  /// Errors: rejects the call if an operand is missing, or a gradient has another type or other
  /// dims than what it is the gradient of.
  [[nodiscard]] StatusOr<ConvTensors> find(const KernelContext& ctx) const {
    ConvTensors t;
    MILLRACE_ASSIGN_OR_RETURN(t.x, needed_here(ctx, input_, "Input"));
    MILLRACE_ASSIGN_OR_RETURN(t.w, needed_here(ctx, filter_, "Filter"));
    t.y = ctx.find_out(output_);
    if (t.y == nullptr) {
      MILLRACE_ASSIGN_OR_RETURN(t.dy, needed_here(ctx, output_grad_, "Output@GRAD"));
    }
    MILLRACE_ASSIGN_OR_RETURN(t.dx, output_like(ctx, input_grad_, *t.x));
    MILLRACE_ASSIGN_OR_RETURN(t.dw, output_like(ctx, filter_grad_, *t.w));
    return t;
  }

 private:
  ArgIndex input_, filter_, output_, output_grad_, input_grad_, filter_grad_;
};

}  // namespace millrace::gpu

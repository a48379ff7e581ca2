#pragma once

#include "kernels/gpu/functors/loss.h"
#include "kernels/gpu/ops/args.h"
#include "kernels/gpu/resident.h"

namespace millrace::gpu {

/// Leaves labels that are no class to the CPU kernel, which reports them. Checked only where they
/// are in process memory; other labels give NaN.
inline Status check_known_labels(Device& device, const Tensor& label, const Labels& labels) {
  const ResidentLayout* const there = resident(label);
  if (there == nullptr || there->host() == nullptr) return Ok();
  device.note_unrepeatable();
  const auto* const from = reinterpret_cast<const int64_t*>(there->host()->raw());
  const Labels here{from, labels.classes, labels.ignored};
  for (int64_t row = 0; row < label.numel(); ++row) {
    if (!here.is_ignored(row) && !here.is_good(row))
      return refuse("label {} is {}, no class", row, from[row]);
  }
  return Ok();
}

/// Labels of `count` rows. Errors: rejects other numbers and types of labels.
inline StatusOr<Labels> class_labels_here(const Tensor& label, int64_t count, int64_t classes,
                                          int64_t ignored) {
  if (label.dtype() != DType::kInt64 || label.numel() != count)
    return refuse("labels {} for {} rows", describe(label), count);
  return Labels{reinterpret_cast<const int64_t*>(label.raw()), classes, ignored};
}

/// The tensors of a loss.
struct LossTensors {
  const Tensor* x;      ///< probabilities or logits; of some gradients the result of softmax
  const Tensor* label;  ///< of any type
  const Tensor* dloss;  ///< gradients only
  Tensor* to;           ///< gradients: dims of x, null if not requested; softmax: its result
  Tensor* loss;         ///< losses; null in gradients
};

/// Arguments of a loss: X and Label, or slots with other names. Errors of all functions: reject
/// calls without one of them, with another type than f32, or with results of other dims.
struct LossArgs {
  LossArgs(const KernelSetup& op, const char* x_slot, const char* loss_slot)
      : x(op.input(x_slot)), label(op.input("Label")), loss(op.output(loss_slot)) {}
  /// X, Label and the losses.
  [[nodiscard]] StatusOr<LossTensors> find(const KernelContext& ctx) const {
    LossTensors t{};
    MILLRACE_ASSIGN_OR_RETURN(t.x, needed_here(ctx, x, "X"));
    MILLRACE_ASSIGN_OR_RETURN(t.label, needed_here(ctx, label, "Label"));
    t.loss = ctx.find_out(loss);
    if (t.loss == nullptr) return refuse("an output is missing");
    MILLRACE_RETURN_IF_ERROR(all_floats({t.x, t.loss}));
    return t;
  }
  /// The same, and an output with the dims of X.
  [[nodiscard]] StatusOr<LossTensors> find_with(const KernelContext& ctx, ArgIndex softmax) const {
    MILLRACE_ASSIGN_OR_RETURN(LossTensors t, find(ctx));
    MILLRACE_ASSIGN_OR_RETURN(t.to, output_like(ctx, softmax, *t.x));
    if (t.to == nullptr) return refuse("an output is missing");
    return t;
  }
  ArgIndex x, label, loss;
};

/// Arguments of the gradient of a loss.
struct LossGradientArgs {
  LossGradientArgs(const KernelSetup& op, const char* x_slot, const char* dloss_slot,
                   const char* dx_slot)
      : x(op.input(x_slot)),
        label(op.input("Label")),
        dloss(op.input(dloss_slot)),
        dx(op.output(dx_slot)) {}
  /// Errors: as LossArgs.
  [[nodiscard]] StatusOr<LossTensors> find(const KernelContext& ctx) const {
    LossTensors t{};
    MILLRACE_ASSIGN_OR_RETURN(t.x, needed_here(ctx, x, "X"));
    MILLRACE_ASSIGN_OR_RETURN(t.label, needed_here(ctx, label, "Label"));
    MILLRACE_ASSIGN_OR_RETURN(t.dloss, needed_here(ctx, dloss, "the gradient of the loss"));
    MILLRACE_ASSIGN_OR_RETURN(t.to, output_like(ctx, dx, *t.x));
    MILLRACE_RETURN_IF_ERROR(all_floats({t.x, t.dloss}));
    return t;
  }
  ArgIndex x, label, dloss, dx;
};

/// softmax_with_cross_entropy with soft labels, or with classes in any dim (row_losses.cc).
Kernel softmax_loss_along(const KernelSetup& op);
/// Its gradient, from the result of softmax.
Kernel softmax_loss_along_grad(const KernelSetup& op);
/// cross_entropy with soft labels: each row of Label has a probability for each class.
Kernel soft_label_loss(const KernelSetup& op);
/// Its gradient.
Kernel soft_label_loss_grad(const KernelSetup& op);
/// sigmoid_cross_entropy_with_logits with weights or normalized (point_losses.cc).
Kernel weighted_logistic_loss(const KernelSetup& op);
/// Its gradient.
Kernel weighted_logistic_loss_grad(const KernelSetup& op);

}  // namespace millrace::gpu

#include "kernels/gpu/ops/loss_forms.h"
#include "kernels/registry.h"

// Losses with one prediction and one label per result.
namespace millrace::gpu {
namespace {

struct PointwiseArgs {
  PointwiseArgs(const KernelSetup& op, const char* x_slot, const char* label_slot)
      : device(&device_of(op)), x(op.input(x_slot)), label(op.input(label_slot)) {}
  struct Found {
    const Tensor* x;
    const Tensor* label;
  };
  [[nodiscard]] StatusOr<Found> find(const KernelContext& ctx) const {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const a, needed_here(ctx, x, "X"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const b, needed_here(ctx, label, "Label"));
    MILLRACE_RETURN_IF_ERROR(all_floats({a, b}));
    if (a->numel() != b->numel()) return refuse("{} and labels {}", describe(*a), describe(*b));
    return Found{a, b};
  }
  Device* device;
  ArgIndex x, label;
};

template <typename Formula>
Kernel pointwise(const PointwiseArgs& args, const Formula& formula, ArgIndex out) {
  return Kernel([args, formula, out](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const PointwiseArgs::Found on, args.find(ctx));
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const to, output_like(ctx, out, *on.x));
    if (to == nullptr) return refuse("the result is missing");
    return each(*args.device,
                PointLoss<Formula>{formula, floats(on.x), floats(on.label), floats(to)},
                to->numel());
  });
}
template <typename Formula>
Kernel pointwise_grad(const PointwiseArgs& args, const Formula& formula, ArgIndex dout,
                      ArgIndex dx) {
  return Kernel([args, formula, dout, dx](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const PointwiseArgs::Found on, args.find(ctx));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const d, needed_here(ctx, dout, "the gradient"));
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const to, output_like(ctx, dx, *on.x));
    if (to == nullptr) return Ok();
    MILLRACE_RETURN_IF_ERROR(all_floats({d}));
    if (d->numel() != to->numel()) return refuse("a gradient is {}", describe(*d));
    return each(
        *args.device,
        PointLossGradient<Formula>{formula, floats(on.x), floats(on.label), floats(d), floats(to)},
        to->numel());
  });
}

StatusOr<Kernel> gpu_log_loss(const KernelSetup& op) {
  return pointwise(PointwiseArgs(op, "Predicted", "Labels"), LogLoss{op.attr<float>("epsilon")},
                   op.output("Loss"));
}
StatusOr<Kernel> gpu_log_loss_grad(const KernelSetup& op) {
  return pointwise_grad(PointwiseArgs(op, "Predicted", "Labels"),
                        LogLoss{op.attr<float>("epsilon")}, op.input("Loss@GRAD"),
                        op.output("Predicted@GRAD"));
}

bool is_weighted(const KernelSetup& op) {
  return op.input("pos_weight") || op.attr<bool>("normalize");
}
LogisticLoss logistic_loss(const KernelSetup& op) {
  return LogisticLoss{static_cast<float>(op.attr<int32_t>("ignore_index"))};
}
StatusOr<Kernel> gpu_logistic_loss(const KernelSetup& op) {
  if (is_weighted(op)) return weighted_logistic_loss(op);
  return pointwise(PointwiseArgs(op, "X", "Label"), logistic_loss(op), op.output("Out"));
}
StatusOr<Kernel> gpu_logistic_loss_grad(const KernelSetup& op) {
  if (is_weighted(op)) return weighted_logistic_loss_grad(op);
  return pointwise_grad(PointwiseArgs(op, "X", "Label"), logistic_loss(op), op.input("Out@GRAD"),
                        op.output("X@GRAD"));
}

}  // namespace

void add_losses(KernelRegistry& registry) {
  registry.add("log_loss", gpu_log_loss);
  registry.add("log_loss_grad", gpu_log_loss_grad);
  registry.add("sigmoid_cross_entropy_with_logits", gpu_logistic_loss);
  registry.add("sigmoid_cross_entropy_with_logits_grad", gpu_logistic_loss_grad);
}

}  // namespace millrace::gpu

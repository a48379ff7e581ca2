#include "kernels/gpu/ops/args.h"
#include "kernels/gpu/ops/loss_forms.h"
#include "kernels/registry.h"

// Cross entropy of hard labels; classes are in the last dim.
namespace millrace::gpu {
namespace {

struct LossSettings {
  int64_t ignored = -100;
};

StatusOr<LossSettings> read_loss_settings(const KernelSetup& op) {
  if (op.def().find_attr("use_softmax") != nullptr && !op.attr<bool>("use_softmax"))
    return refuse("attribute 'use_softmax' is not set");
  return LossSettings{op.attr<int32_t>("ignore_index")};
}

// Labels for the rows of a tensor. Errors: rejects calls that do not fit.
StatusOr<Labels> labels_for(const Tensor& label, const Tensor& x, const LossSettings& settings) {
  if (x.rank() == 0 || x.numel() == 0)
    return refuse("the GPU kernel has rows, found {}", describe(x));
  return class_labels_here(label, x.numel() / x.dim(-1), x.dim(-1), settings.ignored);
}

template <typename Functor>
Kernel hard_label_gradient(const KernelSetup& op, const LossSettings& settings,
                           const LossGradientArgs& args) {
  return [settings, &device = device_of(op), args](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const LossTensors t, args.find(ctx));
    if (t.to == nullptr) return Ok();
    MILLRACE_ASSIGN_OR_RETURN(const Labels labels, labels_for(*t.label, *t.x, settings));
    if (t.dloss->numel() != t.label->numel())
      return refuse("the gradient of the loss is {}", describe(*t.dloss));
    return each(device, Functor{labels, floats(t.x), floats(t.dloss), floats(t.to)}, t.to->numel());
  };
}

StatusOr<Kernel> gpu_entropy(const KernelSetup& op) {
  if (op.attr<bool>("soft_label")) return soft_label_loss(op);
  MILLRACE_ASSIGN_OR_RETURN(const LossSettings settings, read_loss_settings(op));
  return Kernel([settings, &device = device_of(op),
                 args = LossArgs(op, "X", "Y")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const LossTensors t, args.find(ctx));
    MILLRACE_ASSIGN_OR_RETURN(const Labels labels, labels_for(*t.label, *t.x, settings));
    MILLRACE_RETURN_IF_ERROR(check_known_labels(device, *t.label, labels));
    return rows(device, Entropy{labels, floats(t.x), floats(t.loss)}, t.label->numel());
  });
}

StatusOr<Kernel> entropy_grad(const KernelSetup& op) {
  if (op.attr<bool>("soft_label")) return soft_label_loss_grad(op);
  MILLRACE_ASSIGN_OR_RETURN(const LossSettings settings, read_loss_settings(op));
  return hard_label_gradient<EntropyGradient>(op, settings,
                                              LossGradientArgs(op, "X", "Y@GRAD", "X@GRAD"));
}

StatusOr<Kernel> softmax_entropy(const KernelSetup& op) {
  MILLRACE_ASSIGN_OR_RETURN(const LossSettings settings, read_loss_settings(op));
  if (op.attr<bool>("soft_label") || op.attr<int32_t>("axis") != -1) return softmax_loss_along(op);
  return Kernel([settings, &device = device_of(op), args = LossArgs(op, "Logits", "Loss"),
                 softmax = op.output("Softmax")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const LossTensors t, args.find_with(ctx, softmax));
    MILLRACE_ASSIGN_OR_RETURN(const Labels labels, labels_for(*t.label, *t.x, settings));
    if (t.loss->numel() != t.label->numel()) return refuse("Loss {}", describe(*t.loss));
    MILLRACE_RETURN_IF_ERROR(check_known_labels(device, *t.label, labels));
    return rows(device, SoftmaxEntropy{labels, floats(t.x), floats(t.to), floats(t.loss)},
                t.label->numel());
  });
}

StatusOr<Kernel> softmax_entropy_grad(const KernelSetup& op) {
  MILLRACE_ASSIGN_OR_RETURN(const LossSettings settings, read_loss_settings(op));
  if (op.attr<bool>("soft_label") || op.attr<int32_t>("axis") != -1)
    return softmax_loss_along_grad(op);
  return hard_label_gradient<SoftmaxEntropyGradient>(
      op, settings, LossGradientArgs(op, "Softmax", "Loss@GRAD", "Logits@GRAD"));
}

}  // namespace

void add_loss(KernelRegistry& registry) {
  registry.add("cross_entropy", gpu_entropy);
  registry.add("cross_entropy_grad", entropy_grad);
  registry.add("softmax_with_cross_entropy", softmax_entropy);
  registry.add("softmax_with_cross_entropy_grad", softmax_entropy_grad);
}

}  // namespace millrace::gpu

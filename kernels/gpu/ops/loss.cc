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
StatusOr<Labels> labels_for(const Tensor& label, const Tensor& x, const LossSettings& settings,
                            int64_t axis = -1) {
  const auto rank = static_cast<int64_t>(x.rank());
  if (rank == 0 || x.numel() == 0 || (axis != -1 && axis != rank - 1))
    return refuse("the GPU kernel has classes in the last dim, found {}", describe(x));
  if (label.dtype() != DType::kInt64 || label.numel() * x.dim(-1) != x.numel())
    return refuse("labels {} for {}", describe(label), describe(x));
  return Labels{reinterpret_cast<const int64_t*>(label.raw()), x.dim(-1), settings.ignored};
}

StatusOr<Kernel> gpu_entropy(const KernelSetup& op) {
  if (op.attr<bool>("soft_label")) return soft_label_loss(op);
  MILLRACE_ASSIGN_OR_RETURN(const LossSettings settings, read_loss_settings(op));
  return Kernel([settings, &device = device_of(op), x = op.input("X"), label = op.input("Label"),
                 y = op.output("Y")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const from, needed_here(ctx, x, "X"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const given, needed_here(ctx, label, "Label"));
    Tensor& to = ctx.out(y);
    MILLRACE_RETURN_IF_ERROR(all_floats({from, &to}));
    MILLRACE_ASSIGN_OR_RETURN(const Labels labels, labels_for(*given, *from, settings));
    MILLRACE_RETURN_IF_ERROR(check_known_labels(device, *given, labels));
    return rows(device, Entropy{labels, floats(from), floats(to)}, given->numel());
  });
}

StatusOr<Kernel> entropy_grad(const KernelSetup& op) {
  if (op.attr<bool>("soft_label")) return soft_label_loss_grad(op);
  MILLRACE_ASSIGN_OR_RETURN(const LossSettings settings, read_loss_settings(op));
  return Kernel([settings, &device = device_of(op), x = op.input("X"), label = op.input("Label"),
                 dy = op.input("Y@GRAD"),
                 dx = op.output("X@GRAD")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const from, needed_here(ctx, x, "X"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const given, needed_here(ctx, label, "Label"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const d, needed_here(ctx, dy, "Y@GRAD"));
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const to, output_like(ctx, dx, *from));
    if (to == nullptr) return Ok();
    MILLRACE_RETURN_IF_ERROR(all_floats({from, d}));
    MILLRACE_ASSIGN_OR_RETURN(const Labels labels, labels_for(*given, *from, settings));
    if (d->numel() != given->numel()) return refuse("Y@GRAD {}", describe(*d));
    return each(device, EntropyGradient{labels, floats(from), floats(d), floats(to)}, to->numel());
  });
}

StatusOr<Kernel> softmax_entropy(const KernelSetup& op) {
  MILLRACE_ASSIGN_OR_RETURN(const LossSettings settings, read_loss_settings(op));
  if (op.attr<bool>("soft_label") || op.attr<int32_t>("axis") != -1) return softmax_loss_along(op);
  return Kernel([settings, &device = device_of(op), logits = op.input("Logits"),
                 label = op.input("Label"), softmax = op.output("Softmax"),
                 loss = op.output("Loss"),
                 axis = op.attr<int32_t>("axis")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const from, needed_here(ctx, logits, "Logits"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const given, needed_here(ctx, label, "Label"));
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const to, output_like(ctx, softmax, *from));
    Tensor* const sums = ctx.find_out(loss);
    if (to == nullptr || sums == nullptr) return refuse("an output is missing");
    MILLRACE_RETURN_IF_ERROR(all_floats({from, sums}));
    MILLRACE_ASSIGN_OR_RETURN(const Labels labels, labels_for(*given, *from, settings, axis));
    if (sums->numel() != given->numel()) return refuse("Loss {}", describe(*sums));
    MILLRACE_RETURN_IF_ERROR(check_known_labels(device, *given, labels));
    return rows(device, SoftmaxEntropy{labels, floats(from), floats(to), floats(sums)},
                given->numel());
  });
}

StatusOr<Kernel> softmax_entropy_grad(const KernelSetup& op) {
  MILLRACE_ASSIGN_OR_RETURN(const LossSettings settings, read_loss_settings(op));
  if (op.attr<bool>("soft_label") || op.attr<int32_t>("axis") != -1)
    return softmax_loss_along_grad(op);
  return Kernel([settings, &device = device_of(op), softmax = op.input("Softmax"),
                 label = op.input("Label"), dloss = op.input("Loss@GRAD"),
                 dlogits = op.output("Logits@GRAD"),
                 axis = op.attr<int32_t>("axis")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const y, needed_here(ctx, softmax, "Softmax"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const given, needed_here(ctx, label, "Label"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const d, needed_here(ctx, dloss, "Loss@GRAD"));
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const to, output_like(ctx, dlogits, *y));
    if (to == nullptr) return Ok();
    MILLRACE_RETURN_IF_ERROR(all_floats({y, d}));
    MILLRACE_ASSIGN_OR_RETURN(const Labels labels, labels_for(*given, *y, settings, axis));
    if (d->numel() != given->numel()) return refuse("Loss@GRAD {}", describe(*d));
    return each(device, SoftmaxEntropyGradient{labels, floats(y), floats(d), floats(to)},
                to->numel());
  });
}

}  // namespace

void add_loss(KernelRegistry& registry) {
  registry.add("cross_entropy", gpu_entropy);
  registry.add("cross_entropy_grad", entropy_grad);
  registry.add("softmax_with_cross_entropy", softmax_entropy);
  registry.add("softmax_with_cross_entropy_grad", softmax_entropy_grad);
}

}  // namespace millrace::gpu

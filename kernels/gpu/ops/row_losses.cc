#include "kernels/gpu/functors/row_losses.h"

#include "kernels/cpu/merge_rows.h"
#include "kernels/gpu/ops/loss_forms.h"
#include "kernels/registry.h"

// Losses with one value per row: soft labels, classes in any dim, cross_entropy2, smooth_l1_loss.
namespace millrace::gpu {
namespace row_loss_ops {
namespace {

// Classes of a row are `inner` elements apart.
struct RowExtent {
  int64_t rows = 1;
  int64_t classes = 1;
  int64_t inner = 1;
};
StatusOr<RowExtent> extent_here(const Tensor& x, int64_t axis) {
  const auto rank = static_cast<int64_t>(x.rank());
  if (axis < -rank || axis >= rank || x.numel() == 0 || x.numel() >= int64_t{1} << 31)
    return refuse("axis {} of {}", axis, describe(x));
  if (axis < 0) axis += rank;
  RowExtent e;
  e.classes = x.dim(axis);
  for (int64_t i = axis + 1; i < rank; ++i) e.inner *= x.dim(i);
  e.rows = x.numel() / e.classes;
  return e;
}

struct SoftmaxLossSettings {
  explicit SoftmaxLossSettings(const KernelSetup& op)
      : axis(op.attr<int32_t>("axis")),
        ignored(op.attr<int32_t>("ignore_index")),
        soft(op.attr<bool>("soft_label")) {}
  int64_t axis;
  int64_t ignored;
  bool soft;

  // Errors: rejects labels that do not fit.
  [[nodiscard]] StatusOr<RowLabels> labels(Device& device, const Tensor& label, const Tensor& x,
                                           const RowExtent& e) const {
    RowLabels made{{nullptr, e.classes, ignored}, nullptr, e.inner};
    if (soft) {
      MILLRACE_RETURN_IF_ERROR(all_floats({&label}));
      if (label.numel() != x.numel()) return refuse("soft labels {}", describe(label));
      made.soft = floats(label);
      return made;
    }
    MILLRACE_ASSIGN_OR_RETURN(made.hard, class_labels_here(label, e.rows, e.classes, ignored));
    MILLRACE_RETURN_IF_ERROR(check_known_labels(device, label, made.hard));
    return made;
  }
};

Kernel make_softmax_loss(const KernelSetup& op) {
  return [settings = SoftmaxLossSettings(op), &device = device_of(op),
          args = LossArgs(op, "Logits", "Loss"),
          softmax = op.output("Softmax")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const LossTensors t, args.find_with(ctx, softmax));
    MILLRACE_ASSIGN_OR_RETURN(const RowExtent e, extent_here(*t.x, settings.axis));
    if (t.loss->numel() != e.rows) return refuse("Loss {}", describe(*t.loss));
    MILLRACE_ASSIGN_OR_RETURN(const RowLabels labels, settings.labels(device, *t.label, *t.x, e));
    return rows(device, SoftmaxEntropyAlong{labels, floats(t.x), floats(t.to), floats(t.loss)},
                e.rows);
  };
}

Kernel make_softmax_loss_grad(const KernelSetup& op) {
  return [settings = SoftmaxLossSettings(op), &device = device_of(op),
          args = LossGradientArgs(op, "Softmax", "Loss@GRAD", "Logits@GRAD")](
             const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const LossTensors t, args.find(ctx));
    if (t.to == nullptr) return Ok();
    MILLRACE_ASSIGN_OR_RETURN(const RowExtent e, extent_here(*t.x, settings.axis));
    if (t.dloss->numel() != e.rows || t.dloss->raw() == t.to->raw())
      return refuse("Loss@GRAD {}", describe(*t.dloss));
    MILLRACE_ASSIGN_OR_RETURN(const RowLabels labels, settings.labels(device, *t.label, *t.x, e));
    return each(device,
                SoftmaxEntropyAlongGradient{labels, floats(t.x), floats(t.dloss), floats(t.to),
                                            Divider(e.inner), Divider(e.classes)},
                t.to->numel());
  };
}

Kernel make_soft_loss(const KernelSetup& op) {
  return
      [&device = device_of(op), args = LossArgs(op, "X", "Y")](const KernelContext& ctx) -> Status {
        MILLRACE_ASSIGN_OR_RETURN(const LossTensors t, args.find(ctx));
        MILLRACE_RETURN_IF_ERROR(all_floats({t.label}));
        MILLRACE_ASSIGN_OR_RETURN(const RowExtent e, extent_here(*t.x, -1));
        if (t.label->numel() != t.x->numel() || t.loss->numel() != e.rows ||
            t.loss->raw() == t.x->raw())
          return refuse("labels {} for {}", describe(*t.label), describe(*t.x));
        return rows(device, SoftEntropy{floats(t.x), floats(t.label), floats(t.loss), e.classes},
                    e.rows);
      };
}

Kernel make_soft_loss_grad(const KernelSetup& op) {
  return [&device = device_of(op), args = LossGradientArgs(op, "X", "Y@GRAD", "X@GRAD")](
             const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const LossTensors t, args.find(ctx));
    if (t.to == nullptr) return Ok();
    MILLRACE_RETURN_IF_ERROR(all_floats({t.label}));
    MILLRACE_ASSIGN_OR_RETURN(const RowExtent e, extent_here(*t.x, -1));
    if (t.label->numel() != t.x->numel() || t.dloss->numel() != e.rows ||
        t.dloss->raw() == t.to->raw())
      return refuse("Y@GRAD {}", describe(*t.dloss));
    return each(device,
                SoftEntropyGradient{floats(t.x), floats(t.label), floats(t.dloss), floats(t.to),
                                    Divider(e.classes)},
                t.to->numel());
  };
}

StatusOr<Kernel> gpu_match_loss(const KernelSetup& op) {
  return Kernel([&device = device_of(op), x = op.input("X"), label = op.input("Label"),
                 y = op.output("Y"), match = op.output("MatchX"),
                 ignored = int64_t{op.attr<int32_t>("ignore_index")}](
                    const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const from, needed_here(ctx, x, "X"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const given, needed_here(ctx, label, "Label"));
    Tensor& to = ctx.out(y);
    Tensor* const to_match = ctx.find_out(match);
    MILLRACE_RETURN_IF_ERROR(all_floats({from, &to, to_match}));
    MILLRACE_ASSIGN_OR_RETURN(const RowExtent e, extent_here(*from, -1));
    MILLRACE_ASSIGN_OR_RETURN(const Labels labels,
                              class_labels_here(*given, e.rows, e.classes, ignored));
    if (to.numel() != e.rows || (to_match != nullptr && to_match->numel() != e.rows) ||
        to.raw() == from->raw())
      return refuse("Y {}", describe(to));
    MILLRACE_RETURN_IF_ERROR(check_known_labels(device, *given, labels));
    return each(device, MatchEntropy{labels, floats(from), floats(to), floats(to_match)}, e.rows);
  });
}

StatusOr<Kernel> gpu_match_loss_grad(const KernelSetup& op) {
  return Kernel([&device = device_of(op), match = op.input("MatchX"), label = op.input("Label"),
                 dy = op.input("Y@GRAD"), dx = op.output("X@GRAD"),
                 ignored = int64_t{op.attr<int32_t>("ignore_index")}](
                    const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const p, needed_here(ctx, match, "MatchX"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const given, needed_here(ctx, label, "Label"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const d, needed_here(ctx, dy, "Y@GRAD"));
    Tensor* const to = ctx.find_out(dx);
    if (to == nullptr) return Ok();
    if (!to->initialized()) return refuse("X@GRAD has no shape");
    MILLRACE_RETURN_IF_ERROR(all_floats({p, d, to}));
    MILLRACE_ASSIGN_OR_RETURN(const RowExtent e, extent_here(*to, -1));
    MILLRACE_ASSIGN_OR_RETURN(const Labels labels,
                              class_labels_here(*given, e.rows, e.classes, ignored));
    if (p->numel() != e.rows || d->numel() != e.rows || d->raw() == to->raw() ||
        p->raw() == to->raw())
      return refuse("MatchX {} and Y@GRAD {}", describe(*p), describe(*d));
    MILLRACE_RETURN_IF_ERROR(check_known_labels(device, *given, labels));
    return each(device,
                MatchEntropyGradient{labels, floats(p), floats(d), floats(to), Divider(e.classes)},
                to->numel());
  });
}

// Weights of smooth_l1_loss; null where there are none.
struct SmoothWeights {
  const Tensor* inside;
  const Tensor* outside;
};
StatusOr<SmoothWeights> smooth_weights(const KernelContext& ctx, ArgIndex inside, ArgIndex outside,
                                       int64_t count) {
  const SmoothWeights w{ctx.find_in(inside), ctx.find_in(outside)};
  MILLRACE_RETURN_IF_ERROR(all_floats({w.inside, w.outside}));
  for (const Tensor* const one : {w.inside, w.outside}) {
    if (one != nullptr && one->numel() != count) return refuse("weights {}", describe(*one));
  }
  return w;
}

StatusOr<Kernel> gpu_smooth_loss(const KernelSetup& op) {
  return Kernel([&device = device_of(op), x = op.input("X"), y = op.input("Y"),
                 inside = op.input("InsideWeight"), outside = op.input("OutsideWeight"),
                 diff = op.output("Diff"), out = op.output("Out"),
                 sigma = op.attr<float>("sigma")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const a, needed_here(ctx, x, "X"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const b, needed_here(ctx, y, "Y"));
    MILLRACE_ASSIGN_OR_RETURN(const SmoothWeights w,
                              smooth_weights(ctx, inside, outside, a->numel()));
    Tensor* const saved = ctx.find_out(diff);
    Tensor& to = ctx.out(out);
    MILLRACE_RETURN_IF_ERROR(all_floats({a, b, saved, &to}));
    if (a->rank() == 0 || b->numel() != a->numel() || to.numel() != a->dim(0) ||
        (saved != nullptr && saved->numel() != a->numel()))
      return refuse("X {} and Y {}", describe(*a), describe(*b));
    return rows(device,
                SmoothRow{floats(a), floats(b), floats(w.inside), floats(w.outside), floats(saved),
                          floats(to), kernels::row_width(*a), sigma * sigma},
                to.numel());
  });
}

StatusOr<Kernel> gpu_smooth_loss_grad(const KernelSetup& op) {
  return Kernel([&device = device_of(op), diff = op.input("Diff"),
                 inside = op.input("InsideWeight"), outside = op.input("OutsideWeight"),
                 dout = op.input("Out@GRAD"), dx = op.output("X@GRAD"), dy = op.output("Y@GRAD"),
                 sigma = op.attr<float>("sigma")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const d, needed_here(ctx, diff, "Diff"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const g, needed_here(ctx, dout, "Out@GRAD"));
    MILLRACE_ASSIGN_OR_RETURN(const SmoothWeights w,
                              smooth_weights(ctx, inside, outside, d->numel()));
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const to_x, output_like(ctx, dx, *d));
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const to_y, output_like(ctx, dy, *d));
    MILLRACE_RETURN_IF_ERROR(all_floats({d, g}));
    if (d->rank() == 0 || d->numel() == 0 || g->numel() != d->dim(0) ||
        d->numel() >= int64_t{1} << 31)
      return refuse("Diff {}", describe(*d));
    return each(
        device,
        SmoothRowGradient{floats(d), floats(w.inside), floats(w.outside), floats(g), floats(to_x),
                          floats(to_y), Divider(kernels::row_width(*d)), sigma * sigma},
        d->numel());
  });
}

}  // namespace
}  // namespace row_loss_ops

Kernel softmax_loss_along(const KernelSetup& op) {
  return row_loss_ops::make_softmax_loss(op);
}
Kernel softmax_loss_along_grad(const KernelSetup& op) {
  return row_loss_ops::make_softmax_loss_grad(op);
}
Kernel soft_label_loss(const KernelSetup& op) {
  return row_loss_ops::make_soft_loss(op);
}
Kernel soft_label_loss_grad(const KernelSetup& op) {
  return row_loss_ops::make_soft_loss_grad(op);
}

void add_row_losses(KernelRegistry& registry) {
  using namespace row_loss_ops;
  registry.add("cross_entropy2", gpu_match_loss);
  registry.add("cross_entropy_grad2", gpu_match_loss_grad);
  registry.add("smooth_l1_loss", gpu_smooth_loss);
  registry.add("smooth_l1_loss_grad", gpu_smooth_loss_grad);
}

}  // namespace millrace::gpu

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "kernels/cpu/needed.h"
#include "kernels/cpu/nn/window.h"
#include "kernels/dispatch.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace yolov3_loss_kernels {
namespace {

struct Yolov3LossAttrs {
  std::vector<int64_t> anchors;
  std::vector<int64_t> mask;
  int64_t classes;
  float ignore;
  int64_t downsample;
  bool smooth;
  float scale;
};

Yolov3LossAttrs read_attrs(const KernelSetup& op) {
  return {op.attr<std::vector<int64_t>>("anchors"),
          op.attr<std::vector<int64_t>>("anchor_mask"),
          op.attr<int64_t>("class_num"),
          op.attr<float>("ignore_thresh"),
          op.attr<int64_t>("downsample_ratio"),
          op.attr<bool>("use_label_smooth"),
          op.attr<float>("scale_x_y")};
}

StatusOr<Yolov3LossAttrs> checked_attrs(const KernelSetup& op) {
  Yolov3LossAttrs attrs = read_attrs(op);
  for (const int64_t anchor : attrs.mask) {
    if (anchor < 0 || 2 * anchor + 1 >= static_cast<int64_t>(attrs.anchors.size()))
      return op.error("attribute 'anchor_mask' has {}, but there are {} anchors", anchor,
                      attrs.anchors.size() / 2);
  }
  return attrs;
}

struct Yolov3LossShape {
  int64_t batch, masks, height, width, boxes, each;
  [[nodiscard]] int64_t cells() const { return height * width; }
  // Index of an element of X: number k of the prediction of a mask in a cell.
  [[nodiscard]] int64_t at(int64_t n, int64_t mask, int64_t k, int64_t cell) const {
    return ((n * masks + mask) * each + k) * cells() + cell;
  }
};

struct Yolov3LossOperands {
  const Tensor* x;
  const Tensor* box;
  const Tensor* label;
  const Tensor* score;  // null: every box has weight 1
};

StatusOr<Yolov3LossShape> shape_of(const KernelContext& ctx, const Yolov3LossAttrs& attrs,
                                   const Yolov3LossOperands& o) {
  const auto masks = static_cast<int64_t>(attrs.mask.size());
  const int64_t each = attrs.classes + 5;
  bool fits = o.x->rank() == 4 && o.x->dim(1) == masks * each && o.box->rank() == 3 &&
              o.box->dim(2) == 4 && o.box->dim(0) == o.x->dim(0) &&
              o.box->dtype() == o.x->dtype() && o.label->dtype() == DType::kInt32 &&
              o.label->numel() * 4 == o.box->numel();
  if (fits && o.score != nullptr)
    fits = o.score->dtype() == o.x->dtype() && o.score->numel() == o.label->numel();
  if (!fits) {
    return ctx.error("X {}, GTBox {}, GTLabel {} and GTScore {} do not match", describe(*o.x),
                     describe(*o.box), describe(*o.label),
                     o.score == nullptr ? "(none)" : describe(*o.score));
  }
  const auto* const labels = o.label->data<int32_t>();
  for (int64_t i = 0; i < o.label->numel(); ++i) {
    if (labels[i] < 0 || labels[i] >= attrs.classes)
      return ctx.error("GTLabel has class {}, but there are {} classes", labels[i], attrs.classes);
  }
  return Yolov3LossShape{o.x->dim(0), masks, o.x->dim(2), o.x->dim(3), o.box->dim(1), each};
}

template <typename T>
T sigmoid(T x) {
  return T{1} / (T{1} + std::exp(-x));
}
// Cross entropy of sigmoid(x), and its derivative.
template <typename T>
T entropy(T x, T label) {
  return std::max(x, T{0}) - x * label + std::log1p(std::exp(-std::fabs(x)));
}
template <typename T>
T entropy_slope(T x, T label) {
  return sigmoid(x) - label;
}

// Centre and size as fractions of the image.
template <typename T>
struct Box {
  T x, y, w, h;
};

template <typename T>
T overlap(const Box<T>& a, const Box<T>& b) {
  const auto common = [](T p, T half_p, T q, T half_q) {
    return std::min(p + half_p, q + half_q) - std::max(p - half_p, q - half_q);
  };
  const T width = common(a.x, a.w / 2, b.x, b.w / 2);
  const T height = common(a.y, a.h / 2, b.y, b.h / 2);
  const T area = width < 0 || height < 0 ? T{0} : width * height;
  return area / (a.w * a.h + b.w * b.h - area);
}

template <typename T>
struct Yolov3LossProblem {
  const Yolov3LossAttrs& attrs;
  const Yolov3LossShape& s;
  const T* x;
  const T* box;
  const int32_t* label;
  const T* score;
  T positive;  // label of the class that is present, and of the others
  T negative;

  Yolov3LossProblem(const Yolov3LossAttrs& a, const Yolov3LossShape& shape,
                    const Yolov3LossOperands& o)
      : attrs(a),
        s(shape),
        x(o.x->data<T>()),
        box(o.box->data<T>()),
        label(o.label->data<int32_t>()),
        score(o.score == nullptr ? nullptr : o.score->data<T>()) {
    const T smoothing =
        attrs.smooth ? std::min(T{1} / static_cast<T>(attrs.classes), T{1} / T{40}) : T{0};
    positive = 1 - smoothing;
    negative = smoothing;
  }

  // Box t of image n; small boxes are ignored.
  Box<T> truth(int64_t n, int64_t t) const {
    const T* const b = box + (n * s.boxes + t) * 4;
    return {b[0], b[1], b[2], b[3]};
  }
  static bool counts(const Box<T>& b) {
    return b.w > static_cast<T>(1e-6) && b.h > static_cast<T>(1e-6);
  }
  T weight(int64_t n, int64_t t) const { return score == nullptr ? T{1} : score[n * s.boxes + t]; }
  T size() const { return static_cast<T>(attrs.downsample * s.height); }
  T anchor(int64_t index, int64_t k) const {
    return static_cast<T>(attrs.anchors[static_cast<size_t>(2 * index + k)]);
  }

  Box<T> prediction(int64_t n, int64_t mask, int64_t cell) const {
    const T scale = static_cast<T>(attrs.scale);
    const T bias = T{-0.5} * (scale - 1);
    const int64_t index = attrs.mask[static_cast<size_t>(mask)];
    return {(static_cast<T>(cell % s.width) + sigmoid(x[s.at(n, mask, 0, cell)]) * scale + bias) /
                static_cast<T>(s.width),
            (static_cast<T>(cell / s.width) + sigmoid(x[s.at(n, mask, 1, cell)]) * scale + bias) /
                static_cast<T>(s.height),
            std::exp(x[s.at(n, mask, 2, cell)]) * anchor(index, 0) / size(),
            std::exp(x[s.at(n, mask, 3, cell)]) * anchor(index, 1) / size()};
  }

  // The mask whose anchor is closest to the shape of the box; -1 if that anchor belongs to another
  // head.
  int64_t matching_mask(const Box<T>& truth_box) const {
    int64_t best = 0;
    T best_overlap = 0;
    for (int64_t a = 0; a < static_cast<int64_t>(attrs.anchors.size()) / 2; ++a) {
      const T value = overlap<T>({0, 0, anchor(a, 0) / size(), anchor(a, 1) / size()},
                                 {0, 0, truth_box.w, truth_box.h});
      if (value > best_overlap) {
        best_overlap = value;
        best = a;
      }
    }
    const auto found = std::find(attrs.mask.begin(), attrs.mask.end(), best);
    return found == attrs.mask.end() ? -1 : found - attrs.mask.begin();
  }

  // The cell that contains the centre of a box; -1 outside of the image.
  int64_t cell_of(const Box<T>& b) const {
    const T column = b.x * static_cast<T>(s.width);
    const T row = b.y * static_cast<T>(s.height);
    if (!(column >= 0 && column < static_cast<T>(s.width) && row >= 0 &&
          row < static_cast<T>(s.height)))
      return -1;
    return static_cast<int64_t>(row) * s.width + static_cast<int64_t>(column);
  }

  // Targets of the four location outputs of a cell for a box, and their weight.
  std::array<T, 5> wanted(const Box<T>& b, int64_t mask, int64_t cell, T box_weight) const {
    const int64_t index = attrs.mask[static_cast<size_t>(mask)];
    return {b.x * static_cast<T>(s.width) - static_cast<T>(cell % s.width),
            b.y * static_cast<T>(s.height) - static_cast<T>(cell / s.width),
            std::log(b.w * size() / anchor(index, 0)), std::log(b.h * size() / anchor(index, 1)),
            (2 - b.w * b.h) * box_weight};
  }
};

// -1 for predictions that overlap a box too much to be penalized; 0 for the others.
template <typename T>
void mark_ignored(const Yolov3LossProblem<T>& p, int64_t n, T* objectness) {
  for (int64_t mask = 0; mask < p.s.masks; ++mask) {
    for (int64_t cell = 0; cell < p.s.cells(); ++cell) {
      const Box<T> predicted = p.prediction(n, mask, cell);
      T best = 0;
      for (int64_t t = 0; t < p.s.boxes; ++t) {
        const Box<T> b = p.truth(n, t);
        if (Yolov3LossProblem<T>::counts(b)) best = std::max(best, overlap(predicted, b));
      }
      objectness[mask * p.s.cells() + cell] = best > static_cast<T>(p.attrs.ignore) ? T{-1} : T{0};
    }
  }
}

// Loss of location and class of one box.
template <typename T>
T box_loss(const Yolov3LossProblem<T>& p, int64_t n, int64_t t, const Box<T>& b, int64_t mask,
           int64_t cell) {
  const std::array<T, 5> wanted = p.wanted(b, mask, cell, p.weight(n, t));
  const auto x = [&](int64_t k) { return p.x[p.s.at(n, mask, k, cell)]; };
  T loss = (entropy(x(0), wanted[0]) + entropy(x(1), wanted[1]) + std::fabs(x(2) - wanted[2]) +
            std::fabs(x(3) - wanted[3])) *
           wanted[4];
  for (int64_t c = 0; c < p.attrs.classes; ++c) {
    const bool there = c == p.label[n * p.s.boxes + t];
    loss += entropy(x(5 + c), there ? p.positive : p.negative) * p.weight(n, t);
  }
  return loss;
}

template <typename T>
Status forward(const KernelContext& ctx, const Yolov3LossProblem<T>& p, T* loss, T* objectness,
               int32_t* match) {
  const int64_t image = p.s.masks * p.s.cells();
  for (int64_t n = 0; n < p.s.batch; ++n) {
    T* const objects = objectness + n * image;
    loss[n] = 0;
    mark_ignored(p, n, objects);
    for (int64_t t = 0; t < p.s.boxes; ++t) {
      const Box<T> b = p.truth(n, t);
      int32_t& matched = match[n * p.s.boxes + t];
      matched = -1;
      if (!Yolov3LossProblem<T>::counts(b)) continue;
      const int64_t mask = p.matching_mask(b);
      const int64_t cell = p.cell_of(b);
      if (cell < 0)
        return ctx.error("GTBox {} of image {} has its middle outside of the image", t, n);
      matched = static_cast<int32_t>(mask);
      if (mask < 0) continue;
      loss[n] += box_loss(p, n, t, b, mask, cell);
      objects[mask * p.s.cells() + cell] = p.weight(n, t);
    }
    for (int64_t i = 0; i < image; ++i) {
      const T x = p.x[p.s.at(n, i / p.s.cells(), 4, i % p.s.cells())];
      if (objects[i] > static_cast<T>(1e-5)) loss[n] += entropy(x, T{1}) * objects[i];
      if (objects[i] <= static_cast<T>(1e-5) && objects[i] > T{-0.5}) loss[n] += entropy(x, T{0});
    }
  }
  return Ok();
}

// If two boxes fall on one cell, the later one is used.
template <typename T>
void box_gradient(const Yolov3LossProblem<T>& p, int64_t n, int64_t t, int64_t mask, T dloss,
                  T* dx) {
  const Box<T> b = p.truth(n, t);
  const int64_t cell = p.cell_of(b);
  if (cell < 0) return;
  const std::array<T, 5> wanted = p.wanted(b, mask, cell, p.weight(n, t));
  for (int64_t k = 0; k < 4; ++k) {
    const int64_t at = p.s.at(n, mask, k, cell);
    const T goal = wanted[static_cast<size_t>(k)];
    const T slope = k < 2 ? entropy_slope(p.x[at], goal) : (p.x[at] > goal ? T{1} : T{-1});
    dx[at] = slope * wanted[4] * dloss;
  }
  for (int64_t c = 0; c < p.attrs.classes; ++c) {
    const int64_t at = p.s.at(n, mask, 5 + c, cell);
    const bool there = c == p.label[n * p.s.boxes + t];
    dx[at] = entropy_slope(p.x[at], there ? p.positive : p.negative) * p.weight(n, t) * dloss;
  }
}

template <typename T>
void backward(const Yolov3LossProblem<T>& p, const T* dloss, const T* objectness,
              const int32_t* match, T* dx) {
  const int64_t image = p.s.masks * p.s.cells();
  for (int64_t n = 0; n < p.s.batch; ++n) {
    for (int64_t t = 0; t < p.s.boxes; ++t) {
      const int32_t mask = match[n * p.s.boxes + t];
      if (mask >= 0 && mask < p.s.masks) box_gradient(p, n, t, mask, dloss[n], dx);
    }
    for (int64_t i = 0; i < image; ++i) {
      const int64_t at = p.s.at(n, i / p.s.cells(), 4, i % p.s.cells());
      const T object = objectness[n * image + i];
      if (object > static_cast<T>(1e-5)) {
        dx[at] = entropy_slope(p.x[at], T{1}) * object * dloss[n];
      } else if (object > T{-0.5}) {
        dx[at] = entropy_slope(p.x[at], T{0}) * dloss[n];
      }
    }
  }
}

struct Yolov3LossArgs {
  ArgIndex x, box, label, score;
};

StatusOr<Yolov3LossOperands> operands_of(const KernelContext& ctx, const Yolov3LossArgs& args) {
  Yolov3LossOperands o{};
  MILLRACE_ASSIGN_OR_RETURN(o.x, needed(ctx, args.x, "X"));
  MILLRACE_ASSIGN_OR_RETURN(o.box, needed(ctx, args.box, "GTBox"));
  MILLRACE_ASSIGN_OR_RETURN(o.label, needed(ctx, args.label, "GTLabel"));
  o.score = ctx.find_in(args.score);
  return o;
}

StatusOr<Kernel> yolov3_loss(const KernelSetup& op) {
  const Yolov3LossArgs args{op.input("X"), op.input("GTBox"), op.input("GTLabel"),
                            op.input("GTScore")};
  const ArgIndex loss = op.output("Loss");
  const ArgIndex objectness = op.output("ObjectnessMask");
  const ArgIndex match = op.output("GTMatchMask");
  MILLRACE_ASSIGN_OR_RETURN(const Yolov3LossAttrs attrs, checked_attrs(op));
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Yolov3LossOperands o, operands_of(ctx, args));
    MILLRACE_ASSIGN_OR_RETURN(const Yolov3LossShape s, shape_of(ctx, attrs, o));
    return dispatch<FloatTypes>(o.x->dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      const auto objects = static_cast<size_t>(s.batch * s.masks * s.cells()) * sizeof(T);
      const auto matches = static_cast<size_t>(s.batch * s.boxes) * sizeof(int32_t);
      MILLRACE_ASSIGN_OR_RETURN(std::byte* const memory, ctx.device().scratch(objects + matches));
      Tensor* const kept_objects = ctx.find_out(objectness);
      Tensor* const kept_matches = ctx.find_out(match);
      return forward(
          ctx, Yolov3LossProblem<T>(attrs, s, o), ctx.out(loss).data<T>(),
          kept_objects != nullptr ? kept_objects->data<T>() : reinterpret_cast<T*>(memory),
          kept_matches != nullptr ? kept_matches->data<int32_t>()
                                  : reinterpret_cast<int32_t*>(memory + objects));
    });
  });
}

StatusOr<Kernel> yolov3_loss_grad(const KernelSetup& op) {
  const Yolov3LossArgs args{op.input("X"), op.input("GTBox"), op.input("GTLabel"),
                            op.input("GTScore")};
  const ArgIndex loss_grad = op.input("Loss@GRAD");
  const ArgIndex objectness = op.input("ObjectnessMask");
  const ArgIndex match = op.input("GTMatchMask");
  const ArgIndex x_grad = op.output("X@GRAD");
  const ArgIndex box_grad = op.output("GTBox@GRAD");
  const ArgIndex score_grad = op.output("GTScore@GRAD");
  MILLRACE_ASSIGN_OR_RETURN(const Yolov3LossAttrs attrs, checked_attrs(op));
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Yolov3LossOperands o, operands_of(ctx, args));
    MILLRACE_ASSIGN_OR_RETURN(const Yolov3LossShape s, shape_of(ctx, attrs, o));
    // boxes and their scores are inputs that get no gradient
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const dbox, result_like(ctx, box_grad, *o.box));
    if (dbox != nullptr) fill_zero(*dbox);
    if (Tensor* const dscore = ctx.find_out(score_grad)) fill_zero(*dscore);
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const dx, result_like(ctx, x_grad, *o.x));
    if (dx == nullptr) return Ok();
    fill_zero(*dx);
    const Tensor* const dloss = ctx.find_in(loss_grad);
    if (dloss == nullptr) return Ok();
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const objects,
                              needed(ctx, objectness, "ObjectnessMask"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const matches, needed(ctx, match, "GTMatchMask"));
    if (dloss->dtype() != o.x->dtype() || dloss->numel() != s.batch ||
        objects->dtype() != o.x->dtype() || objects->numel() != s.batch * s.masks * s.cells() ||
        matches->dtype() != DType::kInt32 || matches->numel() != s.batch * s.boxes) {
      return ctx.error("Loss@GRAD {}, ObjectnessMask {} and GTMatchMask {} do not match",
                       describe(*dloss), describe(*objects), describe(*matches));
    }
    return dispatch<FloatTypes>(o.x->dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      backward(Yolov3LossProblem<T>(attrs, s, o), dloss->data<T>(), objects->data<T>(),
               matches->data<int32_t>(), dx->data<T>());
      return Ok();
    });
  });
}

}  // namespace
}  // namespace yolov3_loss_kernels

void add_detection_yolov3_loss(KernelRegistry& registry) {
  using namespace yolov3_loss_kernels;
  registry.add("yolov3_loss", yolov3_loss);
  registry.add("yolov3_loss_grad", yolov3_loss_grad);
}

}  // namespace millrace::kernels

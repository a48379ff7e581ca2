#include <limits>
#include <optional>

#include "kernels/cpu/detection/boxes.h"
#include "kernels/cpu/detection/targets.h"
#include "kernels/cpu/needed.h"
#include "kernels/dispatch.h"
#include "kernels/registry.h"

// rpn_target_assign and retinanet_target_assign: select which anchors are compared with which box.
namespace millrace::kernels {
namespace {

// Overlaps that differ by less are considered equal.
constexpr double kSameOverlap = 1e-5;

struct AnchorRules {
  float positive = 0;
  float negative = 0;
  float straddle = -1;  // pixels by which an anchor may extend past the image; below 0: any number
  int64_t batch = -1;   // anchors per image; if it or the fraction is 0 or less: all
  float fraction = -1;
  bool random = false;
  [[nodiscard]] bool samples() const { return fraction > 0 && batch > 0; }
};

struct AnchorSlots {
  ArgIndex anchors, boxes, labels, crowd, image;
  ArgIndex locations, scores, targets, classes, weights, foreground;
};

struct AnchorOperands {
  const Tensor* anchors;
  const Tensor* boxes;
  const Tensor* image;
  std::vector<int64_t> offsets;  // box offsets per image
  std::vector<int64_t> crowd;
  std::vector<int64_t> labels;  // empty: none
};

StatusOr<AnchorOperands> read_anchor_operands(const KernelContext& ctx, const AnchorSlots& slots) {
  AnchorOperands o{};
  MILLRACE_ASSIGN_OR_RETURN(o.anchors, needed(ctx, slots.anchors, "Anchor"));
  MILLRACE_ASSIGN_OR_RETURN(o.boxes, needed(ctx, slots.boxes, "GtBoxes"));
  MILLRACE_ASSIGN_OR_RETURN(o.image, needed(ctx, slots.image, "ImInfo"));
  MILLRACE_ASSIGN_OR_RETURN(const Tensor* const crowd, needed(ctx, slots.crowd, "IsCrowd"));
  MILLRACE_RETURN_IF_ERROR(check_rows(*o.anchors, 4, *o.anchors, "Anchor"));
  MILLRACE_RETURN_IF_ERROR(check_rows(*o.boxes, 4, *o.anchors, "GtBoxes"));
  MILLRACE_RETURN_IF_ERROR(check_rows(*o.image, 3, *o.anchors, "ImInfo"));
  MILLRACE_ASSIGN_OR_RETURN(o.offsets, image_offsets(*o.boxes, o.image->dim(0), "GtBoxes"));
  MILLRACE_ASSIGN_OR_RETURN(o.crowd, integers_of(*crowd, o.boxes->dim(0), "IsCrowd"));
  const Tensor* const labels = ctx.find_in(slots.labels);
  if (labels != nullptr) {
    MILLRACE_ASSIGN_OR_RETURN(o.labels, integers_of(*labels, o.boxes->dim(0), "GtLabels"));
  }
  return o;
}

// The anchors selected in one image; indices count the anchors inside the image only.
struct AnchorChoice {
  std::vector<int64_t> located;     // have a box as regression target
  std::vector<int64_t> foreground;  // are scored as objects
  std::vector<int64_t> background;
  int64_t fakes = 0;  // number of leading entries of `located` with weight 0
};

// Overlaps of anchors with boxes, and the best overlap of each anchor and box.
template <typename T>
struct AnchorOverlaps {
  std::vector<const T*> anchors;
  std::vector<std::array<T, 4>> boxes;
  std::vector<BestOverlap<T>> of_anchor;
  std::vector<T> of_box;

  void measure() {
    of_anchor.assign(anchors.size(), {});
    of_box.assign(boxes.size(), std::numeric_limits<T>::lowest());
    for (size_t i = 0; i < anchors.size(); ++i) {
      for (size_t k = 0; k < boxes.size(); ++k) {
        const T overlap = pixel_overlap(anchors[i], boxes[k].data());
        of_box[k] = std::max(of_box[k], overlap);
        if (overlap > of_anchor[i].overlap) of_anchor[i] = {overlap, static_cast<int64_t>(k)};
      }
    }
  }

  // True if for some box no other anchor has a larger overlap.
  [[nodiscard]] bool is_best(size_t i) const {
    for (size_t k = 0; k < boxes.size(); ++k) {
      const T overlap = pixel_overlap(anchors[i], boxes[k].data());
      if (std::abs(overlap - of_box[k]) < static_cast<T>(kSameOverlap)) return true;
    }
    return false;
  }
};

// An anchor may be selected as foreground because it is the best of a box, and as background
// because its overlap is small. It is then background, and the first foreground anchor takes its
// position with weight 0.
template <typename T>
AnchorChoice choose_anchors(const AnchorOverlaps<T>& o, const AnchorRules& rules, Draws* draws) {
  std::vector<int64_t> first;
  std::vector<int64_t> second;
  const auto count = static_cast<int64_t>(o.anchors.size());
  for (int64_t i = 0; i < count; ++i) {
    const T overlap = o.of_anchor[static_cast<size_t>(i)].overlap;
    if (o.is_best(static_cast<size_t>(i)) || overlap >= static_cast<T>(rules.positive))
      first.push_back(i);
    if (overlap < static_cast<T>(rules.negative)) second.push_back(i);
  }
  if (rules.samples()) {
    keep_some(first, static_cast<int64_t>(rules.fraction * static_cast<float>(rules.batch)), draws);
    keep_some(second, rules.batch - static_cast<int64_t>(first.size()), draws);
  }
  std::vector<int8_t> label(o.anchors.size(), -1);
  for (const int64_t i : first) label[static_cast<size_t>(i)] = 1;
  AnchorChoice choice;
  for (const int64_t i : second) {
    int8_t& known = label[static_cast<size_t>(i)];
    if (known == 1) choice.located.push_back(first.front());
    known = 0;
  }
  choice.fakes = static_cast<int64_t>(choice.located.size());
  for (int64_t i = 0; i < count; ++i) {
    if (label[static_cast<size_t>(i)] == 1) choice.foreground.push_back(i);
    if (label[static_cast<size_t>(i)] == 0) choice.background.push_back(i);
  }
  choice.located.insert(choice.located.end(), choice.foreground.begin(), choice.foreground.end());
  return choice;
}

template <typename T>
struct AnchorResults {
  std::vector<int64_t> locations, scores, classes, foreground;
  std::vector<T> targets, weights;
  LodLevel location_offsets = {0};
  LodLevel score_offsets = {0};
  LodLevel image_offsets = {0};
};

template <typename T>
void assign_anchors(const AnchorOperands& o, const AnchorRules& rules, int64_t n, Draws* draws,
                    AnchorResults<T>& to) {
  const T* const image = o.image->data<T>() + 3 * n;
  const int64_t anchors = o.anchors->dim(0);
  AnchorOverlaps<T> overlaps;
  std::vector<int64_t> number;  // index among the anchors inside
  for (int64_t i = 0; i < anchors; ++i) {
    const T* const a = o.anchors->data<T>() + 4 * i;
    const T out = static_cast<T>(rules.straddle);
    if (out >= 0 &&
        !(a[0] >= -out && a[1] >= -out && a[2] < image[1] + out && a[3] < image[0] + out))
      continue;
    overlaps.anchors.push_back(a);
    number.push_back(i);
  }
  std::vector<int64_t> labels;
  for (int64_t k = o.offsets[static_cast<size_t>(n)]; k < o.offsets[static_cast<size_t>(n) + 1];
       ++k) {
    if (o.crowd[static_cast<size_t>(k)] != 0) continue;
    const T* const b = o.boxes->data<T>() + 4 * k;
    overlaps.boxes.push_back({b[0] * image[2], b[1] * image[2], b[2] * image[2], b[3] * image[2]});
    if (!o.labels.empty()) labels.push_back(o.labels[static_cast<size_t>(k)]);
  }
  overlaps.measure();
  const AnchorChoice choice = choose_anchors(overlaps, rules, draws);
  for (size_t i = 0; i < choice.located.size(); ++i) {
    const auto at = static_cast<size_t>(choice.located[i]);
    to.locations.push_back(number[at] + n * anchors);
    const auto box = static_cast<size_t>(overlaps.of_anchor[at].place);
    const auto target = offsets_to(overlaps.anchors[at], overlaps.boxes[box].data());
    to.targets.insert(to.targets.end(), target.begin(), target.end());
    to.weights.insert(to.weights.end(), 4, static_cast<int64_t>(i) < choice.fakes ? T{0} : T{1});
  }
  for (const int64_t i : choice.foreground) {
    const auto at = static_cast<size_t>(i);
    to.scores.push_back(number[at] + n * anchors);
    const auto box = static_cast<size_t>(overlaps.of_anchor[at].place);
    to.classes.push_back(labels.empty() ? 1 : labels[box]);
  }
  for (const int64_t i : choice.background) {
    to.scores.push_back(number[static_cast<size_t>(i)] + n * anchors);
    to.classes.push_back(0);
  }
  to.foreground.push_back(static_cast<int64_t>(choice.located.size()) + 1);
  to.location_offsets.push_back(static_cast<int64_t>(to.locations.size()));
  to.score_offsets.push_back(static_cast<int64_t>(to.scores.size()));
  to.image_offsets.push_back(n + 1);
}

template <typename T>
Status run_anchor_targets(const KernelContext& ctx, const AnchorSlots& slots,
                          const AnchorRules& rules) {
  MILLRACE_ASSIGN_OR_RETURN(const AnchorOperands o, read_anchor_operands(ctx, slots));
  std::optional<Draws> draws;
  if (rules.random) draws.emplace(ctx.device());
  AnchorResults<T> found;
  for (int64_t n = 0; n < o.image->dim(0); ++n)
    assign_anchors(o, rules, n, draws ? &*draws : nullptr, found);
  MILLRACE_RETURN_IF_ERROR(put_numbers(ctx.find_out(slots.locations), found.locations,
                                       /*column=*/false, found.location_offsets));
  MILLRACE_RETURN_IF_ERROR(
      put_numbers(ctx.find_out(slots.scores), found.scores, /*column=*/false, found.score_offsets));
  MILLRACE_RETURN_IF_ERROR(
      put_rows(ctx.find_out(slots.targets), found.targets, 4, found.location_offsets));
  MILLRACE_RETURN_IF_ERROR(put_numbers(ctx.find_out(slots.classes), found.classes, /*column=*/true,
                                       found.score_offsets));
  MILLRACE_RETURN_IF_ERROR(
      put_rows(ctx.find_out(slots.weights), found.weights, 4, found.location_offsets));
  return put_numbers(ctx.find_out(slots.foreground), found.foreground, /*column=*/true,
                     found.image_offsets);
}

AnchorSlots anchor_slots(const KernelSetup& op) {
  return {op.input("Anchor"),           op.input("GtBoxes"),
          op.input("GtLabels"),         op.input("IsCrowd"),
          op.input("ImInfo"),           op.output("LocationIndex"),
          op.output("ScoreIndex"),      op.output("TargetBBox"),
          op.output("TargetLabel"),     op.output("BBoxInsideWeight"),
          op.output("ForegroundNumber")};
}

Kernel anchor_kernel(const AnchorSlots& slots, const AnchorRules& rules) {
  return [slots, rules](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const anchors, needed(ctx, slots.anchors, "Anchor"));
    return dispatch<FloatTypes>(anchors->dtype(), [&](auto tag) {
      return run_anchor_targets<typename decltype(tag)::type>(ctx, slots, rules);
    });
  };
}

StatusOr<Kernel> rpn_target_assign(const KernelSetup& op) {
  AnchorRules rules;
  rules.positive = op.attr<float>("rpn_positive_overlap");
  rules.negative = op.attr<float>("rpn_negative_overlap");
  rules.straddle = op.attr<float>("rpn_straddle_thresh");
  rules.batch = op.attr<int64_t>("rpn_batch_size_per_im");
  rules.fraction = op.attr<float>("rpn_fg_fraction");
  rules.random = op.attr<bool>("use_random");
  return anchor_kernel(anchor_slots(op), rules);
}

StatusOr<Kernel> retinanet_target_assign(const KernelSetup& op) {
  AnchorRules rules;
  rules.positive = op.attr<float>("positive_overlap");
  rules.negative = op.attr<float>("negative_overlap");
  return anchor_kernel(anchor_slots(op), rules);
}

}  // namespace

void add_detection_rpn_target_assign(KernelRegistry& registry) {
  registry.add("rpn_target_assign", rpn_target_assign);
  registry.add("retinanet_target_assign", retinanet_target_assign);
}

}  // namespace millrace::kernels

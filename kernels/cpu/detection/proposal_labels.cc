#include <limits>
#include <optional>

#include "kernels/cpu/detection/boxes.h"
#include "kernels/cpu/detection/targets.h"
#include "kernels/cpu/needed.h"
#include "kernels/dispatch.h"
#include "kernels/registry.h"

// generate_proposal_labels: regions for training the second stage of a detector.
namespace millrace::kernels {
namespace proposal_labels {
namespace {

// Overlaps that differ by less are considered equal.
constexpr double kSameProposalOverlap = 1e-5;

struct ProposalRules {
  int64_t batch = 0;
  float fraction = 0;
  float foreground = 0;
  float background_high = 0;
  float background_low = 0;
  std::vector<float> weights;
  int64_t classes = 0;
  bool random = false;
  bool cascade = false;
  bool agnostic = false;
};

struct ProposalSlots {
  ArgIndex rois, classes, crowd, boxes, image, overlaps;
  ArgIndex out_rois, labels, targets, inside, outside, out_overlaps;
};

struct ProposalOperands {
  const Tensor* rois;
  const Tensor* boxes;
  const Tensor* image;
  const Tensor* overlaps;  // null without cascade
  std::vector<int64_t> roi_offsets;
  std::vector<int64_t> box_offsets;
  std::vector<int64_t> classes;
  std::vector<int64_t> crowd;
};

StatusOr<ProposalOperands> read_proposal_operands(const KernelContext& ctx,
                                                  const ProposalSlots& slots, bool cascade) {
  ProposalOperands o{};
  MILLRACE_ASSIGN_OR_RETURN(o.rois, needed(ctx, slots.rois, "RpnRois"));
  MILLRACE_ASSIGN_OR_RETURN(o.boxes, needed(ctx, slots.boxes, "GtBoxes"));
  MILLRACE_ASSIGN_OR_RETURN(o.image, needed(ctx, slots.image, "ImInfo"));
  MILLRACE_ASSIGN_OR_RETURN(const Tensor* const classes, needed(ctx, slots.classes, "GtClasses"));
  MILLRACE_ASSIGN_OR_RETURN(const Tensor* const crowd, needed(ctx, slots.crowd, "IsCrowd"));
  MILLRACE_RETURN_IF_ERROR(check_rows(*o.rois, 4, *o.rois, "RpnRois"));
  MILLRACE_RETURN_IF_ERROR(check_rows(*o.boxes, 4, *o.rois, "GtBoxes"));
  MILLRACE_RETURN_IF_ERROR(check_rows(*o.image, 3, *o.rois, "ImInfo"));
  const int64_t images = o.image->dim(0);
  MILLRACE_ASSIGN_OR_RETURN(o.roi_offsets, image_offsets(*o.rois, images, "RpnRois"));
  MILLRACE_ASSIGN_OR_RETURN(o.box_offsets, image_offsets(*o.boxes, images, "GtBoxes"));
  MILLRACE_ASSIGN_OR_RETURN(o.classes, integers_of(*classes, o.boxes->dim(0), "GtClasses"));
  MILLRACE_ASSIGN_OR_RETURN(o.crowd, integers_of(*crowd, o.boxes->dim(0), "IsCrowd"));
  if (!cascade) return o;
  MILLRACE_ASSIGN_OR_RETURN(o.overlaps, needed(ctx, slots.overlaps, "MaxOverlap"));
  if (o.overlaps->numel() == o.rois->dim(0) && o.overlaps->dtype() == o.rois->dtype()) return o;
  return ctx.error("MaxOverlap must have a number for each of the {} rows of RpnRois, found {}",
                   o.rois->dim(0), describe(*o.overlaps));
}

// The boxes of one image, in unscaled coordinates: ground-truth boxes, then proposed ones.
template <typename T>
struct ProposalBoxes {
  std::vector<std::array<T, 4>> all;
  int64_t truths = 0;
};

template <typename T>
ProposalBoxes<T> boxes_of_image(const ProposalOperands& o, const ProposalRules& rules, int64_t n) {
  const auto image = static_cast<size_t>(n);
  const T scale = o.image->data<T>()[3 * n + 2];
  ProposalBoxes<T> boxes;
  boxes.truths = o.box_offsets[image + 1] - o.box_offsets[image];
  for (int64_t i = o.box_offsets[image]; i < o.box_offsets[image + 1]; ++i) {
    const T* const b = o.boxes->data<T>() + 4 * i;
    boxes.all.push_back({b[0], b[1], b[2], b[3]});
  }
  for (int64_t i = o.roi_offsets[image]; i < o.roi_offsets[image + 1]; ++i) {
    const T* const r = o.rois->data<T>() + 4 * i;
    const std::array<T, 4> box = {r[0] / scale, r[1] / scale, r[2] / scale, r[3] / scale};
    // The boxes of the previous stage include the ground-truth boxes, which are already present.
    if (rules.cascade &&
        !(box[2] - box[0] + 1 > 0 && box[3] - box[1] + 1 > 0 && o.overlaps->data<T>()[i] < 1))
      continue;
    boxes.all.push_back(box);
  }
  if (rules.cascade && static_cast<int64_t>(boxes.all.size()) == boxes.truths)
    boxes.all.push_back({});
  return boxes;
}

struct Proposed {
  size_t box;
  int64_t truth;  // -1: background
};

template <typename T>
std::vector<Proposed> choose_proposals(const ProposalBoxes<T>& boxes, const ProposalOperands& o,
                                       const ProposalRules& rules, int64_t n, Draws* draws,
                                       std::vector<T>& best) {
  std::vector<Proposed> found;
  std::vector<Proposed> background;
  const int64_t first = o.box_offsets[static_cast<size_t>(n)];
  for (size_t i = 0; i < boxes.all.size(); ++i) {
    const auto overlap_with = [&](int64_t k) {
      return pixel_overlap(boxes.all[i].data(), boxes.all[static_cast<size_t>(k)].data());
    };
    T overlap = 0;  // an image without objects is background
    for (int64_t k = 0; k < boxes.truths; ++k)
      overlap = k == 0 ? overlap_with(k) : std::max(overlap, overlap_with(k));
    best.push_back(overlap);
    const bool crowd =
        static_cast<int64_t>(i) < boxes.truths && o.crowd[static_cast<size_t>(first) + i] != 0;
    if (crowd) overlap = -1;
    if (boxes.truths > 0 && overlap >= static_cast<T>(rules.foreground)) {
      int64_t truth = 0;
      while (truth < boxes.truths &&
             !(std::abs(overlap - overlap_with(truth)) < static_cast<T>(kSameProposalOverlap)))
        ++truth;
      if (truth < boxes.truths) found.push_back({i, truth});
    } else if (overlap >= static_cast<T>(rules.background_low) &&
               overlap < static_cast<T>(rules.background_high)) {
      background.push_back({i, -1});
    }
  }
  if (!rules.cascade) {
    const float wanted = std::floor(static_cast<float>(rules.batch) * rules.fraction);
    keep_some(found, static_cast<int64_t>(wanted), draws);
    keep_some(background, rules.batch - static_cast<int64_t>(found.size()), draws);
  }
  found.insert(found.end(), background.begin(), background.end());
  return found;
}

template <typename T>
struct ProposalResults {
  std::vector<T> rois, targets, inside, overlaps;
  std::vector<int64_t> labels;
  LodLevel offsets = {0};
};

template <typename T>
Status label_proposals(const ProposalOperands& o, const ProposalRules& rules, int64_t n,
                       Draws* draws, ProposalResults<T>& to) {
  const ProposalBoxes<T> boxes = boxes_of_image<T>(o, rules, n);
  const T scale = o.image->data<T>()[3 * n + 2];
  std::vector<T> best;
  for (const Proposed& p : choose_proposals(boxes, o, rules, n, draws, best)) {
    const std::array<T, 4>& box = boxes.all[p.box];
    for (const T side : box) to.rois.push_back(side * scale);
    to.overlaps.push_back(best[p.box]);
    const auto row = static_cast<std::ptrdiff_t>(to.targets.size());
    to.targets.resize(to.targets.size() + static_cast<size_t>(4 * rules.classes), T{0});
    to.inside.resize(to.targets.size(), T{0});
    int64_t label = 0;
    if (p.truth >= 0)
      label = o.classes[static_cast<size_t>(o.box_offsets[static_cast<size_t>(n)] + p.truth)];
    to.labels.push_back(label);
    if (label <= 0) continue;
    const int64_t place = rules.agnostic ? 1 : label;
    if (place >= rules.classes) {
      return KernelContext::error("GtClasses has class {}, expected less than 'class_nums' {}",
                                  place, rules.classes);
    }
    const auto offsets = offsets_to(box.data(), boxes.all[static_cast<size_t>(p.truth)].data());
    for (size_t k = 0; k < 4; ++k) {
      const auto at = static_cast<size_t>(row + 4 * place) + k;
      to.targets[at] = offsets[k] / static_cast<T>(rules.weights[k]);
      to.inside[at] = 1;
    }
  }
  to.offsets.push_back(static_cast<int64_t>(to.labels.size()));
  return Ok();
}

template <typename T>
Status run(const KernelContext& ctx, const ProposalSlots& slots, const ProposalRules& rules) {
  MILLRACE_ASSIGN_OR_RETURN(const ProposalOperands o,
                            read_proposal_operands(ctx, slots, rules.cascade));
  std::optional<Draws> draws;
  if (rules.random && !rules.cascade) draws.emplace(ctx.device());
  ProposalResults<T> found;
  for (int64_t n = 0; n < o.image->dim(0); ++n)
    MILLRACE_RETURN_IF_ERROR(label_proposals(o, rules, n, draws ? &*draws : nullptr, found));
  const int64_t columns = 4 * rules.classes;
  MILLRACE_RETURN_IF_ERROR(put_rows(ctx.find_out(slots.out_rois), found.rois, 4, found.offsets));
  MILLRACE_RETURN_IF_ERROR(
      put_numbers(ctx.find_out(slots.labels), found.labels, /*column=*/true, found.offsets));
  MILLRACE_RETURN_IF_ERROR(
      put_rows(ctx.find_out(slots.targets), found.targets, columns, found.offsets));
  for (const ArgIndex out : {slots.inside, slots.outside})
    MILLRACE_RETURN_IF_ERROR(put_rows(ctx.find_out(out), found.inside, columns, found.offsets));
  Tensor* const overlaps = ctx.find_out(slots.out_overlaps);
  if (overlaps == nullptr) return Ok();
  MILLRACE_RETURN_IF_ERROR(put_rows(overlaps, found.overlaps, 1, found.offsets));
  return overlaps->resize(kDTypeOf<T>, {overlaps->numel()});
}

StatusOr<Kernel> generate_proposal_labels(const KernelSetup& op) {
  const ProposalSlots slots{op.input("RpnRois"),
                            op.input("GtClasses"),
                            op.input("IsCrowd"),
                            op.input("GtBoxes"),
                            op.input("ImInfo"),
                            op.input("MaxOverlap"),
                            op.output("Rois"),
                            op.output("LabelsInt32"),
                            op.output("BboxTargets"),
                            op.output("BboxInsideWeights"),
                            op.output("BboxOutsideWeights"),
                            op.output("MaxOverlapWithGT")};
  ProposalRules rules;
  rules.batch = op.attr<int64_t>("batch_size_per_im");
  rules.fraction = op.attr<float>("fg_fraction");
  rules.foreground = op.attr<float>("fg_thresh");
  rules.background_high = op.attr<float>("bg_thresh_hi");
  rules.background_low = op.attr<float>("bg_thresh_lo");
  rules.weights = op.attr<std::vector<float>>("bbox_reg_weights");
  rules.classes = op.attr<int64_t>("class_nums");
  rules.random = op.attr<bool>("use_random");
  rules.cascade = op.attr<bool>("is_cascade_rcnn");
  rules.agnostic = op.attr<bool>("is_cls_agnostic");
  if (rules.weights.size() != 4)
    return op.error("attribute 'bbox_reg_weights' must have 4 entries, found {}",
                    rules.weights.size());
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const rois, needed(ctx, slots.rois, "RpnRois"));
    return dispatch<FloatTypes>(rois->dtype(), [&](auto tag) {
      return run<typename decltype(tag)::type>(ctx, slots, rules);
    });
  });
}

}  // namespace
}  // namespace proposal_labels

void add_detection_proposal_labels(KernelRegistry& registry) {
  registry.add("generate_proposal_labels", proposal_labels::generate_proposal_labels);
}

}  // namespace millrace::kernels

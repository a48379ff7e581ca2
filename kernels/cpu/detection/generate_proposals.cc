#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <vector>

#include "kernels/cpu/detection/boxes.h"
#include "kernels/cpu/needed.h"
#include "kernels/dispatch.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace generate_proposals_kernels {
namespace {

struct GenerateProposalsAttrs {
  int64_t before;  // number of boxes passed to the suppression; 0 or less: all
  int64_t after;
  float threshold;
  float min_size;
  float eta;
  bool pixels;  // corners are pixels
  bool scaled;  // the first version: sizes refer to the image before it was scaled
};

struct GenerateProposalsArgs {
  ArgIndex scores, deltas, image, anchors, variances;
  ArgIndex rois, probs, counts;
};

struct GenerateProposalsOperands {
  const Tensor* scores;
  const Tensor* deltas;
  const Tensor* image;
  const Tensor* anchors;
  const Tensor* variances;
};

StatusOr<GenerateProposalsOperands> read_operands(const KernelContext& ctx,
                                                  const GenerateProposalsArgs& args,
                                                  const GenerateProposalsAttrs& attrs) {
  GenerateProposalsOperands o{};
  MILLRACE_ASSIGN_OR_RETURN(o.scores, needed(ctx, args.scores, "Scores"));
  MILLRACE_ASSIGN_OR_RETURN(o.deltas, needed(ctx, args.deltas, "BboxDeltas"));
  MILLRACE_ASSIGN_OR_RETURN(o.image, needed(ctx, args.image, attrs.scaled ? "ImInfo" : "ImShape"));
  MILLRACE_ASSIGN_OR_RETURN(o.anchors, needed(ctx, args.anchors, "Anchors"));
  MILLRACE_ASSIGN_OR_RETURN(o.variances, needed(ctx, args.variances, "Variances"));
  bool fits = o.scores->rank() == 4 && o.deltas->rank() == 4;
  for (const Tensor* const tensor : {o.deltas, o.image, o.anchors, o.variances})
    fits = fits && tensor->dtype() == o.scores->dtype();
  if (fits) {
    const auto s = o.scores->dims();
    const Dims deltas = {s[0], 4 * s[1], s[2], s[3]};
    const int64_t boxes = s[1] * s[2] * s[3];
    fits = o.deltas->dims() == llvm::ArrayRef<int64_t>(deltas) && o.anchors->numel() == 4 * boxes &&
           o.variances->numel() == 4 * boxes && o.image->numel() == s[0] * (attrs.scaled ? 3 : 2);
  }
  if (fits) return o;
  return ctx.error(
      "Scores {}, BboxDeltas {}, Anchors {}, Variances {} and the sizes of the images "
      "{} do not match",
      describe(*o.scores), describe(*o.deltas), describe(*o.anchors), describe(*o.variances),
      describe(*o.image));
}

template <typename T>
struct Proposal {
  std::array<T, 4> box;
  T score;
};

// An anchor moved and scaled; the scale factor is at most 1000 / 16.
template <typename T>
std::array<T, 4> decode(const T* anchor, const T* variance, const std::array<T, 4>& delta,
                        T extra) {
  const T limit = static_cast<T>(std::log(1000.0 / 16.0));
  const T width = anchor[2] - anchor[0] + extra;
  const T height = anchor[3] - anchor[1] + extra;
  const T x = variance[0] * delta[0] * width + anchor[0] + width / 2;
  const T y = variance[1] * delta[1] * height + anchor[1] + height / 2;
  const T w = std::exp(std::min(variance[2] * delta[2], limit)) * width;
  const T h = std::exp(std::min(variance[3] * delta[3], limit)) * height;
  return {x - w / 2, y - h / 2, x + w / 2 - extra, y + h / 2 - extra};
}

// The best boxes of one image, decoded and clipped to the image.
template <typename T>
std::vector<Proposal<T>> best_boxes(const GenerateProposalsAttrs& attrs,
                                    const GenerateProposalsOperands& o, int64_t n) {
  const int64_t anchors = o.scores->dim(1);
  const int64_t cells = o.scores->dim(2) * o.scores->dim(3);
  const T* const scores = o.scores->data<T>() + n * anchors * cells;
  const T* const deltas = o.deltas->data<T>() + n * 4 * anchors * cells;
  const T* const image = o.image->data<T>() + n * (attrs.scaled ? 3 : 2);
  const T extra = attrs.pixels ? T{1} : T{0};
  // Boxes are ordered cell by cell, like anchors; scores are ordered anchor by anchor.
  const auto score = [&](int64_t i) { return scores[i % anchors * cells + i / anchors]; };
  std::vector<int64_t> order(static_cast<size_t>(anchors * cells));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return score(a) > score(b); });
  if (attrs.before > 0 && static_cast<int64_t>(order.size()) > attrs.before)
    order.resize(static_cast<size_t>(attrs.before));
  std::vector<Proposal<T>> found;
  for (const int64_t i : order) {
    std::array<T, 4> delta{};
    for (size_t k = 0; k < 4; ++k)
      delta[k] = deltas[(i % anchors * 4 + static_cast<int64_t>(k)) * cells + i / anchors];
    std::array<T, 4> box =
        decode(o.anchors->data<T>() + 4 * i, o.variances->data<T>() + 4 * i, delta, extra);
    for (size_t k = 0; k < 4; ++k)
      box[k] = std::max(std::min(box[k], image[k % 2 == 0 ? 1 : 0] - extra), T{0});
    found.push_back({box, score(i)});
  }
  return found;
}

template <typename T>
bool large_enough(const GenerateProposalsAttrs& attrs, const std::array<T, 4>& box,
                  const T* image) {
  const T least = std::max(static_cast<T>(attrs.min_size), T{1});
  const T extra = attrs.pixels ? T{1} : T{0};
  T width = box[2] - box[0] + extra;
  T height = box[3] - box[1] + extra;
  const T x = box[0] + width / 2;
  const T y = box[1] + height / 2;
  if (attrs.scaled) {
    width = (box[2] - box[0]) / image[2] + extra;
    height = (box[3] - box[1]) / image[2] + extra;
  }
  if (!(width >= least && height >= least)) return false;
  return !attrs.pixels || (x <= image[1] && y <= image[0]);
}

template <typename T>
std::vector<Proposal<T>> propose(const GenerateProposalsAttrs& attrs,
                                 const GenerateProposalsOperands& o, int64_t n) {
  std::vector<Proposal<T>> found = best_boxes<T>(attrs, o, n);
  const T* const image = o.image->data<T>() + n * (attrs.scaled ? 3 : 2);
  const auto small = [&](const Proposal<T>& p) { return !large_enough(attrs, p.box, image); };
  found.erase(std::remove_if(found.begin(), found.end(), small), found.end());
  if (found.empty()) return {{{}, T{0}}};
  if (attrs.threshold <= 0) return found;
  std::vector<int64_t> order(found.size());
  std::iota(order.begin(), order.end(), 0);
  const auto box = [&](int64_t i) { return found[static_cast<size_t>(i)].box.data(); };
  std::vector<int64_t> kept = suppress(
      llvm::ArrayRef<int64_t>(order), static_cast<T>(attrs.threshold), static_cast<T>(attrs.eta),
      [&](int64_t a, int64_t b) { return box_overlap(box(a), box(b), !attrs.pixels); });
  if (attrs.after > 0 && static_cast<int64_t>(kept.size()) > attrs.after)
    kept.resize(static_cast<size_t>(attrs.after));
  std::vector<Proposal<T>> result;
  for (const int64_t i : kept) result.push_back(found[static_cast<size_t>(i)]);
  return result;
}

template <typename T>
Status run(const KernelContext& ctx, const GenerateProposalsArgs& args,
           const GenerateProposalsAttrs& attrs) {
  MILLRACE_ASSIGN_OR_RETURN(const GenerateProposalsOperands o, read_operands(ctx, args, attrs));
  std::vector<Proposal<T>> all;
  std::vector<int64_t> counts;
  LodLevel offsets = {0};
  for (int64_t n = 0; n < o.scores->dim(0); ++n) {
    const std::vector<Proposal<T>> found = propose<T>(attrs, o, n);
    all.insert(all.end(), found.begin(), found.end());
    counts.push_back(static_cast<int64_t>(found.size()));
    offsets.push_back(static_cast<int64_t>(all.size()));
  }
  Tensor& rois = ctx.out(args.rois);
  Tensor& probs = ctx.out(args.probs);
  const auto count = static_cast<int64_t>(all.size());
  MILLRACE_RETURN_IF_ERROR(rois.resize(kDTypeOf<T>, {count, 4}));
  MILLRACE_RETURN_IF_ERROR(probs.resize(kDTypeOf<T>, {count, 1}));
  for (size_t i = 0; i < all.size(); ++i) {
    std::copy_n(all[i].box.data(), 4, rois.data<T>() + 4 * i);
    probs.data<T>()[i] = all[i].score;
  }
  // The first version also reports by LoD which boxes belong to which image.
  if (attrs.scaled) {
    rois.set_lod(Lod({offsets}));
    probs.set_lod(Lod({offsets}));
  }
  return put_int32(ctx.find_out(args.counts), counts);
}

template <bool kFirst>
StatusOr<Kernel> generate_proposals(const KernelSetup& op) {
  const GenerateProposalsArgs args{
      op.input("Scores"),       op.input("BboxDeltas"), op.input(kFirst ? "ImInfo" : "ImShape"),
      op.input("Anchors"),      op.input("Variances"),  op.output("RpnRois"),
      op.output("RpnRoiProbs"), op.output("RpnRoisNum")};
  GenerateProposalsAttrs attrs{op.attr<int64_t>("pre_nms_topN"),
                               op.attr<int64_t>("post_nms_topN"),
                               op.attr<float>("nms_thresh"),
                               op.attr<float>("min_size"),
                               op.attr<float>("eta"),
                               true,
                               kFirst};
  if (!kFirst) attrs.pixels = op.attr<bool>("pixel_offset");
  return Kernel([args, attrs](const KernelContext& ctx) -> Status {
    return dispatch<FloatTypes>(ctx.in(args.scores).dtype(), [&](auto tag) {
      return run<typename decltype(tag)::type>(ctx, args, attrs);
    });
  });
}

}  // namespace
}  // namespace generate_proposals_kernels

void add_detection_generate_proposals(KernelRegistry& registry) {
  using namespace generate_proposals_kernels;
  registry.add("generate_proposals", generate_proposals<true>);
  registry.add("generate_proposals_v2", generate_proposals<false>);
}

}  // namespace millrace::kernels

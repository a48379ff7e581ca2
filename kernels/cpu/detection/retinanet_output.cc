#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <vector>

#include "kernels/cpu/detection/boxes.h"
#include "kernels/cpu/detection/targets.h"
#include "kernels/cpu/needed.h"
#include "kernels/dispatch.h"
#include "kernels/registry.h"

// retinanet_detection_output: boxes from the scores and offsets of several feature maps.
namespace millrace::kernels {
namespace retinanet_output {
namespace {

struct RetinanetRules {
  float score_threshold;
  int64_t nms_top_k;  // number of best scores kept per level; -1: all
  float nms_threshold;
  float eta;
  int64_t keep_top_k;  // number of boxes per image; -1: all
};

struct RetinanetSlots {
  ArgRange boxes, scores, anchors;
  ArgIndex image, out;
};

// Offsets [batch, boxes, 4], scores [batch, boxes, classes] and anchors [boxes, 4] of a level.
struct RetinanetLevel {
  const Tensor* offsets;
  const Tensor* scores;
  const Tensor* anchors;
};

struct RetinanetInput {
  std::vector<RetinanetLevel> levels;
  const Tensor* image;
  int64_t images;
  int64_t classes;
};

StatusOr<RetinanetInput> read_retinanet_input(const KernelContext& ctx,
                                              const RetinanetSlots& slots) {
  if (slots.boxes.count != slots.scores.count || slots.boxes.count != slots.anchors.count ||
      slots.boxes.count < 1) {
    return ctx.error("BBoxes, Scores and Anchors must have a var for each level, found {}, {}, {}",
                     slots.boxes.count, slots.scores.count, slots.anchors.count);
  }
  RetinanetInput input{};
  MILLRACE_ASSIGN_OR_RETURN(input.image, needed(ctx, slots.image, "ImInfo"));
  const Tensor& first = ctx.in(slots.scores, 0);
  if (first.rank() != 3)
    return ctx.error("Scores must be [batch, boxes, classes], found {}", describe(first));
  input.images = first.dim(0);
  input.classes = first.dim(2);
  MILLRACE_RETURN_IF_ERROR(check_rows(*input.image, 3, first, "ImInfo"));
  bool fits = input.image->dim(0) == input.images && input.classes > 0;
  for (int32_t l = 0; fits && l < slots.boxes.count; ++l) {
    const RetinanetLevel level{&ctx.in(slots.boxes, l), &ctx.in(slots.scores, l),
                               &ctx.in(slots.anchors, l)};
    fits = level.offsets->rank() == 3 && level.scores->rank() == 3 && level.anchors->rank() == 2;
    if (!fits) break;
    const int64_t boxes = level.scores->dim(1);
    fits = level.scores->dim(0) == input.images && level.scores->dim(2) == input.classes &&
           level.offsets->dim(0) == input.images && level.offsets->dim(1) == boxes &&
           level.offsets->dim(2) == 4 && level.anchors->dim(0) == boxes &&
           level.anchors->dim(1) == 4;
    for (const Tensor* const tensor : {level.offsets, level.scores, level.anchors})
      fits = fits && tensor->dtype() == first.dtype();
    input.levels.push_back(level);
  }
  if (fits) return input;
  return ctx.error(
      "every level must have BBoxes [{}, boxes, 4], Scores [{}, boxes, {}] and Anchors [boxes, 4] "
      "of one type, and ImInfo a row for each image",
      input.images, input.images, input.classes);
}

template <typename T>
struct RetinanetBox {
  int64_t klass;
  T score;
  std::array<T, 4> box;
};

// An anchor moved and scaled, in the coordinates of the unscaled image, clipped to the image.
template <typename T>
std::array<T, 4> decode_retinanet(const T* anchor, const T* offset, const T* image) {
  const T width = anchor[2] - anchor[0] + 1;
  const T height = anchor[3] - anchor[1] + 1;
  const T x = offset[0] * width + anchor[0] + width / 2;
  const T y = offset[1] * height + anchor[1] + height / 2;
  const T half_width = std::exp(offset[2]) * width / 2;
  const T half_height = std::exp(offset[3]) * height / 2;
  std::array<T, 4> box = {x - half_width, y - half_height, x + half_width - 1, y + half_height - 1};
  const std::array<T, 2> last = {std::round(image[1] / image[2]) - 1,
                                 std::round(image[0] / image[2]) - 1};
  for (size_t k = 0; k < 4; ++k) box[k] = std::max(std::min(box[k] / image[2], last[k % 2]), T{0});
  return box;
}

// The boxes of a level with the best scores. The last level accepts every positive score, so that
// the result is not empty.
template <typename T>
void take_level(const RetinanetInput& input, const RetinanetRules& rules, size_t l, int64_t n,
                std::vector<RetinanetBox<T>>& found) {
  const RetinanetLevel& level = input.levels[l];
  const int64_t boxes = level.scores->dim(1);
  const T* const scores = level.scores->data<T>() + n * boxes * input.classes;
  const T threshold = l + 1 < input.levels.size() ? static_cast<T>(rules.score_threshold) : T{0};
  std::vector<int64_t> order;
  for (int64_t i = 0; i < boxes * input.classes; ++i) {
    if (scores[i] > threshold) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return scores[a] > scores[b]; });
  if (rules.nms_top_k > -1) keep_some(order, rules.nms_top_k, nullptr);
  for (const int64_t i : order) {
    const int64_t box = i / input.classes;
    found.push_back({i % input.classes, scores[i],
                     decode_retinanet(level.anchors->data<T>() + 4 * box,
                                      level.offsets->data<T>() + (n * boxes + box) * 4,
                                      input.image->data<T>() + 3 * n)});
  }
}

// The remaining boxes of an image, by falling score; ties by class.
template <typename T>
std::vector<RetinanetBox<T>> thin_out(const RetinanetInput& input, const RetinanetRules& rules,
                                      const std::vector<RetinanetBox<T>>& all) {
  std::vector<RetinanetBox<T>> left;
  for (int64_t klass = 0; klass < input.classes; ++klass) {
    std::vector<int64_t> order;
    for (size_t i = 0; i < all.size(); ++i) {
      if (all[i].klass == klass) order.push_back(static_cast<int64_t>(i));
    }
    const auto of = [&](int64_t i) -> const RetinanetBox<T>& {
      return all[static_cast<size_t>(i)];
    };
    std::stable_sort(order.begin(), order.end(),
                     [&](int64_t a, int64_t b) { return of(a).score > of(b).score; });
    const std::vector<int64_t> kept =
        suppress(llvm::ArrayRef<int64_t>(order), static_cast<T>(rules.nms_threshold),
                 static_cast<T>(rules.eta), [&](int64_t a, int64_t b) {
                   return box_overlap(of(a).box.data(), of(b).box.data(), /*normalized=*/false);
                 });
    for (const int64_t i : kept) left.push_back(of(i));
  }
  std::stable_sort(
      left.begin(), left.end(),
      [](const RetinanetBox<T>& a, const RetinanetBox<T>& b) { return a.score > b.score; });
  if (rules.keep_top_k > -1) keep_some(left, rules.keep_top_k, nullptr);
  return left;
}

template <typename T>
Status run(const KernelContext& ctx, const RetinanetSlots& slots, const RetinanetRules& rules) {
  MILLRACE_ASSIGN_OR_RETURN(const RetinanetInput input, read_retinanet_input(ctx, slots));
  std::vector<T> rows;
  LodLevel offsets = {0};
  for (int64_t n = 0; n < input.images; ++n) {
    std::vector<RetinanetBox<T>> found;
    for (size_t l = 0; l < input.levels.size(); ++l) take_level(input, rules, l, n, found);
    for (const RetinanetBox<T>& d : thin_out(input, rules, found)) {
      rows.insert(rows.end(), {static_cast<T>(d.klass + 1), d.score});
      rows.insert(rows.end(), d.box.begin(), d.box.end());
    }
    offsets.push_back(static_cast<int64_t>(rows.size()) / 6);
  }
  return put_rows(&ctx.out(slots.out), rows, 6, offsets);
}

StatusOr<Kernel> retinanet_detection_output(const KernelSetup& op) {
  const RetinanetSlots slots{op.inputs("BBoxes"), op.inputs("Scores"), op.inputs("Anchors"),
                             op.input("ImInfo"), op.output("Out")};
  const RetinanetRules rules{op.attr<float>("score_threshold"), op.attr<int64_t>("nms_top_k"),
                             op.attr<float>("nms_threshold"), op.attr<float>("nms_eta"),
                             op.attr<int64_t>("keep_top_k")};
  return Kernel([=](const KernelContext& ctx) -> Status {
    return dispatch<FloatTypes>(ctx.in(slots.scores, 0).dtype(), [&](auto tag) {
      return run<typename decltype(tag)::type>(ctx, slots, rules);
    });
  });
}

}  // namespace
}  // namespace retinanet_output

void add_detection_retinanet_output(KernelRegistry& registry) {
  registry.add("retinanet_detection_output", retinanet_output::retinanet_detection_output);
}

}  // namespace millrace::kernels

#include <algorithm>
#include <numeric>
#include <vector>

#include "kernels/cpu/detection/boxes.h"
#include "kernels/cpu/detection/nms_input.h"
#include "kernels/cpu/detection/polygons.h"
#include "kernels/cpu/needed.h"
#include "kernels/dispatch.h"
#include "kernels/registry.h"

// locality_aware_nms: merges adjacent boxes in the list that overlap, then continues as
// multiclass_nms.
namespace millrace::kernels {
namespace {

// Boxes of one image, which change when they are merged, and the scores of one class.
template <typename T>
struct LocalBoxes {
  T* boxes;
  T* scores;
  int64_t count;
  int64_t width;
  bool normalized;

  [[nodiscard]] T overlap(int64_t a, int64_t b) const {
    const T* const first = boxes + a * width;
    const T* const second = boxes + b * width;
    return width == 4 ? box_overlap(first, second, normalized)
                      : polygon_overlap(first, second, width);
  }
  // Replaces box `into` by the score-weighted mean of both boxes, and its score by the sum of both
  // scores.
  void merge(int64_t box, int64_t into) const {
    const T a = scores[box];
    const T b = scores[into];
    for (int64_t k = 0; k < width; ++k) {
      T& to = boxes[into * width + k];
      to = (boxes[box * width + k] * a + to * b) / (a + b);
    }
    scores[into] += a;
  }
};

// Merges each box into the previous one while they overlap. Returns the remaining boxes by falling
// score.
template <typename T>
std::vector<int64_t> merged(const LocalBoxes<T>& b, const NmsAttrs& attrs) {
  std::vector<int64_t> left;
  for (int64_t i = 0; i < b.count; ++i) {
    if (!left.empty() && b.overlap(i, left.back()) > static_cast<T>(attrs.nms_threshold)) {
      b.merge(i, left.back());
    } else {
      left.push_back(i);
    }
  }
  const auto poor = [&](int64_t i) {
    return !(b.scores[i] > static_cast<T>(attrs.score_threshold));
  };
  left.erase(std::remove_if(left.begin(), left.end(), poor), left.end());
  std::stable_sort(left.begin(), left.end(),
                   [&](int64_t x, int64_t y) { return b.scores[x] > b.scores[y]; });
  if (attrs.nms_top_k > -1 && static_cast<int64_t>(left.size()) > attrs.nms_top_k)
    left.resize(static_cast<size_t>(attrs.nms_top_k));
  return left;
}

// Detections of one image by class, within a class by falling score. Each class starts from the
// boxes as merged for the classes before it.
template <typename T>
void detect_merged(const NmsInput& input, const NmsAttrs& attrs, int64_t image, T* boxes, T* scores,
                   std::vector<Detection<T>>& all) {
  std::vector<Detection<T>> found;
  for (int64_t klass = 0; klass < input.classes; ++klass) {
    if (klass == attrs.background) continue;
    const LocalBoxes<T> b{boxes + input.box_at(image, klass, 0) * input.width,
                          scores + input.score_at(image, klass, 0), input.boxes_of(image),
                          input.width, attrs.normalized};
    const std::vector<int64_t> candidates = merged(b, attrs);
    const std::vector<int64_t> kept =
        suppress(llvm::ArrayRef<int64_t>(candidates), static_cast<T>(attrs.nms_threshold),
                 static_cast<T>(attrs.eta), [&](int64_t x, int64_t y) { return b.overlap(x, y); });
    for (const int64_t box : kept)
      found.push_back({image, klass, b.scores[box], input.box_at(image, klass, box)});
  }
  if (keep_best(found, attrs.keep_top_k)) {
    std::stable_sort(found.begin(), found.end(), [](const Detection<T>& a, const Detection<T>& b) {
      return a.klass < b.klass;
    });
  }
  all.insert(all.end(), found.begin(), found.end());
}

template <typename T>
Status copy_of(const Tensor& from, Tensor& to) {
  MILLRACE_RETURN_IF_ERROR(to.resize(from.dtype(), from.dims()));
  std::copy_n(from.data<T>(), from.numel(), to.data<T>());
  return Ok();
}

StatusOr<Kernel> locality_aware_nms(const KernelSetup& op) {
  const ArgIndex box_arg = op.input("BBoxes");
  const ArgIndex score_arg = op.input("Scores");
  NmsOutputs outputs;
  outputs.out = op.output("Out");
  outputs.minus_one_if_empty = true;
  const NmsAttrs attrs(op);
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const boxes, needed(ctx, box_arg, "BBoxes"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const scores, needed(ctx, score_arg, "Scores"));
    if (scores->rank() != 3)
      return ctx.error("Scores must be [batch, classes, boxes], found {}", describe(*scores));
    MILLRACE_ASSIGN_OR_RETURN(const NmsInput input,
                              read_nms_input(*boxes, *scores, nullptr, /*takes_polygons=*/true));
    return dispatch<FloatTypes>(boxes->dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      Tensor own_boxes;
      Tensor own_scores;
      MILLRACE_RETURN_IF_ERROR(copy_of<T>(*boxes, own_boxes));
      MILLRACE_RETURN_IF_ERROR(copy_of<T>(*scores, own_scores));
      std::vector<Detection<T>> kept;
      for (int64_t n = 0; n < input.images; ++n)
        detect_merged(input, attrs, n, own_boxes.data<T>(), own_scores.data<T>(), kept);
      return put_detections(ctx, outputs, input, own_boxes, kept);
    });
  });
}

}  // namespace

void add_detection_locality_aware_nms(KernelRegistry& registry) {
  registry.add("locality_aware_nms", locality_aware_nms);
}

}  // namespace millrace::kernels

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/cpu/detection/boxes.h"
#include "kernels/cpu/detection/nms_input.h"
#include "kernels/cpu/needed.h"
#include "kernels/dispatch.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace matrix_nms_kernels {
namespace {

struct MatrixNmsAttrs {
  int64_t background;
  float score_threshold;
  float post_threshold;
  int64_t nms_top_k;
  int64_t keep_top_k;
  bool gaussian;
  float sigma;
  bool normalized;
};

// Lowers the score of each box by its overlap with better boxes. The reduction is smaller if those
// boxes overlap even better ones.
template <typename T>
void decay(const NmsInput& input, const MatrixNmsAttrs& attrs, const T* boxes,
           std::vector<Detection<T>>& found) {
  const size_t count = found.size();
  std::vector<T> largest(count, T{0});  // overlap of box i with the boxes before it
  std::vector<T> row(count, T{0});
  for (size_t i = 1; i < count; ++i) {
    T factor = 1;
    for (size_t k = 0; k < i; ++k) {
      row[k] = box_overlap(boxes + found[i].box * input.width, boxes + found[k].box * input.width,
                           attrs.normalized);
      largest[i] = std::max(largest[i], row[k]);
      const T value =
          attrs.gaussian
              ? std::exp((largest[k] * largest[k] - row[k] * row[k]) * static_cast<T>(attrs.sigma))
              : (1 - row[k]) / (1 - largest[k]);
      factor = std::min(factor, value);
    }
    found[i].score *= factor;
  }
  const auto low = [&](const Detection<T>& d) {
    return !(d.score > static_cast<T>(attrs.post_threshold));
  };
  found.erase(std::remove_if(found.begin(), found.end(), low), found.end());
}

template <typename T>
void sort_by_score(std::vector<Detection<T>>& found, int64_t top) {
  std::stable_sort(found.begin(), found.end(),
                   [](const Detection<T>& a, const Detection<T>& b) { return a.score > b.score; });
  if (top > -1 && static_cast<int64_t>(found.size()) > top) found.resize(static_cast<size_t>(top));
}

template <typename T>
void detect_decayed(const NmsInput& input, const MatrixNmsAttrs& attrs, const T* boxes,
                    const T* scores, int64_t image, std::vector<Detection<T>>& all) {
  std::vector<Detection<T>> found;
  for_foreground(input, attrs.background, [&](int64_t klass) {
    std::vector<Detection<T>> of_class;
    for (int64_t box = 0; box < input.boxes_of(image); ++box) {
      const T score = scores[input.score_at(image, klass, box)];
      if (score > static_cast<T>(attrs.score_threshold))
        of_class.push_back({image, klass, score, input.box_at(image, klass, box)});
    }
    sort_by_score(of_class, attrs.nms_top_k);
    decay(input, attrs, boxes, of_class);
    found.insert(found.end(), of_class.begin(), of_class.end());
  });
  sort_by_score(found, attrs.keep_top_k);
  all.insert(all.end(), found.begin(), found.end());
}

StatusOr<Kernel> matrix_nms(const KernelSetup& op) {
  const NmsSlots inputs{op.input("BBoxes"), op.input("Scores"), {}, false};
  NmsOutputs outputs;
  outputs.out = op.output("Out");
  outputs.index = op.output("Index");
  outputs.counts = op.output("RoisNum");
  outputs.with_lod = !outputs.counts;
  const MatrixNmsAttrs attrs{
      op.attr<int64_t>("background_label"), op.attr<float>("score_threshold"),
      op.attr<float>("post_threshold"),     op.attr<int64_t>("nms_top_k"),
      op.attr<int64_t>("keep_top_k"),       op.attr<bool>("use_gaussian"),
      op.attr<float>("gaussian_sigma"),     op.attr<bool>("normalized")};
  return Kernel([=](const KernelContext& ctx) -> Status {
    return detect_images(
        ctx, inputs, outputs,
        [&](const NmsInput& input, const auto* at, const auto* score, int64_t image, auto& kept) {
          detect_decayed(input, attrs, at, score, image, kept);
        });
  });
}

}  // namespace
}  // namespace matrix_nms_kernels

void add_detection_matrix_nms(KernelRegistry& registry) {
  registry.add("matrix_nms", matrix_nms_kernels::matrix_nms);
}

}  // namespace millrace::kernels

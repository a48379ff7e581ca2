#include <algorithm>
#include <vector>

#include "kernels/cpu/detection/boxes.h"
#include "kernels/cpu/detection/nms_input.h"
#include "kernels/cpu/detection/polygons.h"
#include "kernels/cpu/needed.h"
#include "kernels/dispatch.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace multiclass_nms_kernels {
namespace {

// The boxes of a class by falling score, limited to the configured number.
template <typename T>
std::vector<int64_t> candidates_of(const NmsInput& input, const NmsAttrs& attrs, const T* scores,
                                   int64_t image, int64_t klass) {
  std::vector<int64_t> found;
  const auto score = [&](int64_t box) { return scores[input.score_at(image, klass, box)]; };
  for (int64_t box = 0; box < input.boxes_of(image); ++box) {
    if (score(box) > static_cast<T>(attrs.score_threshold)) found.push_back(box);
  }
  std::stable_sort(found.begin(), found.end(),
                   [&](int64_t a, int64_t b) { return score(a) > score(b); });
  if (attrs.nms_top_k > -1 && static_cast<int64_t>(found.size()) > attrs.nms_top_k)
    found.resize(static_cast<size_t>(attrs.nms_top_k));
  return found;
}

// Detections of one image by class. Within a class they are ordered by falling score, or by
// position if images differ in size.
template <typename T>
void detect(const NmsInput& input, const NmsAttrs& attrs, const T* boxes, const T* scores,
            int64_t image, std::vector<Detection<T>>& all) {
  std::vector<Detection<T>> found;
  for (int64_t klass = 0; klass < input.classes; ++klass) {
    if (klass == attrs.background) continue;
    const std::vector<int64_t> candidates = candidates_of(input, attrs, scores, image, klass);
    const std::vector<int64_t> kept =
        suppress(llvm::ArrayRef<int64_t>(candidates), static_cast<T>(attrs.nms_threshold),
                 static_cast<T>(attrs.eta), [&](int64_t a, int64_t b) {
                   const T* const first = boxes + input.box_at(image, klass, a) * input.width;
                   const T* const second = boxes + input.box_at(image, klass, b) * input.width;
                   return input.width == 4 ? box_overlap(first, second, attrs.normalized)
                                           : polygon_overlap(first, second, input.width);
                 });
    for (const int64_t box : kept) {
      found.push_back({image, klass, scores[input.score_at(image, klass, box)],
                       input.box_at(image, klass, box)});
    }
  }
  keep_best(found, attrs.keep_top_k);
  std::stable_sort(found.begin(), found.end(), [&](const Detection<T>& a, const Detection<T>& b) {
    if (a.klass != b.klass) return a.klass < b.klass;
    return !input.by_image && a.box < b.box;
  });
  all.insert(all.end(), found.begin(), found.end());
}

enum class Version : uint8_t { kFirst, kSecond, kThird };

template <Version kVersion>
StatusOr<Kernel> multiclass_nms(const KernelSetup& op) {
  constexpr bool kThird = kVersion == Version::kThird;
  const NmsSlots inputs{op.input("BBoxes"), op.input("Scores"),
                        kThird ? op.input("RoisNum") : ArgIndex{}, true};
  NmsOutputs outputs;
  outputs.out = op.output("Out");
  if (kVersion != Version::kFirst) outputs.index = op.output("Index");
  if (kThird) outputs.counts = op.output("NmsRoisNum");
  outputs.with_lod = !outputs.counts;
  outputs.minus_one_if_empty = kVersion == Version::kFirst;
  const NmsAttrs attrs(op);
  return Kernel([=](const KernelContext& ctx) -> Status {
    return detect_images(
        ctx, inputs, outputs,
        [&](const NmsInput& input, const auto* at, const auto* score, int64_t image, auto& kept) {
          detect(input, attrs, at, score, image, kept);
        });
  });
}

}  // namespace
}  // namespace multiclass_nms_kernels

void add_detection_multiclass_nms(KernelRegistry& registry) {
  using namespace multiclass_nms_kernels;
  registry.add("multiclass_nms", multiclass_nms<Version::kFirst>);
  registry.add("multiclass_nms2", multiclass_nms<Version::kSecond>);
  registry.add("multiclass_nms3", multiclass_nms<Version::kThird>);
}

}  // namespace millrace::kernels

#pragma once

#include <algorithm>
#include <vector>

#include "kernels/cpu/needed.h"
#include "kernels/dispatch.h"
#include "kernels/kernel.h"

namespace millrace::kernels {

/// Boxes and scores of ops of the multiclass_nms family.
///
/// Either [batch, boxes, 4] with scores [batch, classes, boxes], or the boxes of all images one
/// after the other, [boxes, classes, 4] with scores [boxes, classes] and LoD or counts.
struct NmsInput {
  bool by_image = true;  ///< the first of the two forms
  int64_t images = 0;
  int64_t classes = 0;           ///< including the background
  int64_t width = 4;             ///< numbers per box
  std::vector<int64_t> offsets;  ///< first box of each image, then the end

  /// Number of boxes of an image.
  [[nodiscard]] int64_t boxes_of(int64_t image) const {
    return offsets[static_cast<size_t>(image) + 1] - offsets[static_cast<size_t>(image)];
  }
  /// Index of an element of Scores.
  [[nodiscard]] int64_t score_at(int64_t image, int64_t klass, int64_t box) const {
    const int64_t first = offsets[static_cast<size_t>(image)];
    return by_image ? first * classes + klass * boxes_of(image) + box
                    : (first + box) * classes + klass;
  }
  /// Index of the box of a class in the flattened BBoxes.
  [[nodiscard]] int64_t box_at(int64_t image, int64_t klass, int64_t box) const {
    const int64_t row = offsets[static_cast<size_t>(image)] + box;
    return by_image ? row : row * classes + klass;
  }
};
/// Errors: shapes or element types that do not fit; boxes with other than 4 numbers.
/// \param counts          number of boxes of each image in the second form; null: LoD
/// \param takes_polygons  allows boxes of 4, 8, 12 or 16 corners in the first form
StatusOr<NmsInput> read_nms_input(const Tensor& boxes, const Tensor& scores, const Tensor* counts,
                                  bool takes_polygons = false);

/// Attributes that multiclass_nms and locality_aware_nms share.
struct NmsAttrs {
  /// Reads the attributes, whose names are those of the op.
  explicit NmsAttrs(const KernelSetup& op);

  int64_t background;     ///< class without detections; -1: none
  float score_threshold;  ///< boxes need a score above it
  int64_t nms_top_k;      ///< boxes of a class that are compared; -1: all
  int64_t keep_top_k;     ///< detections of an image; -1: all
  float nms_threshold;    ///< a box that overlaps a kept one more is dropped
  float eta;              ///< factor of the threshold after each kept box
  bool normalized;        ///< false: coordinates are pixels, and a box includes its last one
};

/// A box that is kept.
template <typename T>
struct Detection {
  int64_t image;  ///< index in the batch
  int64_t klass;  ///< index of the class
  T score;        ///< as in Scores
  int64_t box;    ///< index in the flattened BBoxes
};

/// Keeps the `most` detections with the highest scores, in that order, equal ones in the given
/// order; -1: all. Does nothing if there are no more than that. \returns whether some were dropped
template <typename T>
bool keep_best(std::vector<Detection<T>>& found, int64_t most) {
  if (most < 0 || static_cast<int64_t>(found.size()) <= most) return false;
  std::stable_sort(found.begin(), found.end(),
                   [](const Detection<T>& a, const Detection<T>& b) { return a.score > b.score; });
  found.resize(static_cast<size_t>(most));
  return true;
}

/// Calls body(class) for all classes but the background.
template <typename Body>
void for_foreground(const NmsInput& input, int64_t background, Body&& body) {
  for (int64_t klass = 0; klass < input.classes; ++klass) {
    if (klass != background) body(klass);
  }
}

/// Output slots of the results; absent ones are not set.
struct NmsOutputs {
  ArgIndex out;          ///< [detections, 2 + width]: class, score, coordinates
  ArgIndex index;        ///< i32 [detections, 1]: Detection::box
  ArgIndex counts;       ///< i32 [images]: detections of each image
  bool with_lod = true;  ///< the outputs have one sequence per image
  /// If nothing is kept, the result is one row with a single -1.
  bool minus_one_if_empty = false;
};
/// Writes class, score and coordinates of each detection. `kept` is ordered by image.
template <typename T>
Status put_detections(const KernelContext& ctx, const NmsOutputs& to, const NmsInput& input,
                      const Tensor& boxes, const std::vector<Detection<T>>& kept);

/// Input slots of the family.
struct NmsSlots {
  ArgIndex boxes;               ///< BBoxes
  ArgIndex scores;              ///< Scores
  ArgIndex counts;              ///< boxes of each image; absent: LoD
  bool takes_polygons = false;  ///< see read_nms_input()
};
/// Reads the inputs, calls detect(input, elements of boxes, elements of scores, image, detections
/// so far) for all images and writes the detections. Boxes and scores have the same float type.
/// Errors: BBoxes or Scores holds no tensor; those of read_nms_input() and put_detections().
template <typename Detect>
Status detect_images(const KernelContext& ctx, const NmsSlots& from, const NmsOutputs& to,
                     Detect&& detect) {
  MILLRACE_ASSIGN_OR_RETURN(const Tensor* const boxes, needed(ctx, from.boxes, "BBoxes"));
  MILLRACE_ASSIGN_OR_RETURN(const Tensor* const scores, needed(ctx, from.scores, "Scores"));
  MILLRACE_ASSIGN_OR_RETURN(
      const NmsInput input,
      read_nms_input(*boxes, *scores, ctx.find_in(from.counts), from.takes_polygons));
  return dispatch<FloatTypes>(boxes->dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    std::vector<Detection<T>> kept;
    for (int64_t n = 0; n < input.images; ++n)
      detect(input, boxes->data<T>(), scores->data<T>(), n, kept);
    return put_detections(ctx, to, input, *boxes, kept);
  });
}

}  // namespace millrace::kernels

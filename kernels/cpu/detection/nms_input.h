#pragma once

#include <vector>

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

}  // namespace millrace::kernels

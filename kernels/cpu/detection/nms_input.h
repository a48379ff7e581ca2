#pragma once

#include <vector>

#include "kernels/kernel.h"

namespace millrace::kernels {

/// Boxes and scores of ops of the multiclass_nms family.
///
/// Either [batch, boxes, 4] with scores [batch, classes, boxes], or all boxes of all images in a
/// row, [boxes, classes, 4] with scores [boxes, classes] and LoD or counts.
struct NmsInput {
  bool by_image = true;
  int64_t images = 0;
  int64_t classes = 0;
  int64_t width = 4;             ///< numbers of a box
  std::vector<int64_t> offsets;  ///< first box of each image, and the end

  [[nodiscard]] int64_t boxes_of(int64_t image) const {
    return offsets[static_cast<size_t>(image) + 1] - offsets[static_cast<size_t>(image)];
  }
  /// Element of Scores.
  [[nodiscard]] int64_t score_at(int64_t image, int64_t klass, int64_t box) const {
    const int64_t first = offsets[static_cast<size_t>(image)];
    return by_image ? first * classes + klass * boxes_of(image) + box
                    : (first + box) * classes + klass;
  }
  /// Number of the box of a class in the flat BBoxes.
  [[nodiscard]] int64_t box_at(int64_t image, int64_t klass, int64_t box) const {
    const int64_t row = offsets[static_cast<size_t>(image)] + box;
    return by_image ? row : row * classes + klass;
  }
};
/// Errors: shapes or element types that do not fit; boxes with other than 4 numbers.
/// \param counts          boxes of each image in the second form; null: LoD
/// \param takes_polygons  in the first form boxes may have 4, 8, 12 or 16 corners instead
StatusOr<NmsInput> read_nms_input(const Tensor& boxes, const Tensor& scores, const Tensor* counts,
                                  bool takes_polygons = false);

/// A box that is kept.
template <typename T>
struct Detection {
  int64_t image;
  int64_t klass;
  T score;
  int64_t box;  ///< in the flat BBoxes
};

/// Where results go; absent ones are not set.
struct NmsOutputs {
  ArgIndex out;
  ArgIndex index;
  ArgIndex counts;
  bool with_lod = true;
  /// Nothing kept gives one row of a single -1.
  bool minus_one_if_empty = false;
};
/// Writes class, score and coordinates of each detection. `kept` is ordered by image.
template <typename T>
Status put_detections(const KernelContext& ctx, const NmsOutputs& to, const NmsInput& input,
                      const Tensor& boxes, const std::vector<Detection<T>>& kept);

}  // namespace millrace::kernels

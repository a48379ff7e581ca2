#pragma once

#include <cmath>
#include <cstdint>

// Functors of ops on boxes (left, top, right, bottom) of object detectors. All numbers are f32
// unless they are documented otherwise.
namespace millrace::gpu {

/// The larger and the smaller of two numbers; the first one if they cannot be compared, as
/// std::max and std::min.
constexpr float larger_of(float a, float b) {
  return a < b ? b : a;
}
constexpr float smaller_of(float a, float b) {
  return b < a ? b : a;
}

/// Sizes of a box that surrounds a cell, and the offset of its center from that of the cell.
struct BoxShape {
  double width;   ///< in pixels, as all of these
  double height;  ///< in pixels
  double right;   ///< of its center
  double down;    ///< of its center
};

/// Box i of prior_box, density_prior_box or anchor_generator: `shapes` boxes around each cell of a
/// map, and the variances of its four numbers.
struct BoxesOfCells {
  static constexpr int32_t kMost = 96;  ///< shapes of one call
  BoxShape shapes[kMost];
  int32_t count;      ///< shapes in use
  int64_t columns;    ///< cells of a row of the map
  double shift;       ///< added to numbers of columns and rows
  double step[2];     ///< distance of the cells: x, y
  double start[2];    ///< added to their centers
  double size[2];     ///< that coordinates are divided by
  double less;        ///< that sizes are reduced by: 1 where corners are pixels
  bool cut_all;       ///< all edges are moved into [0, 1]
  bool cut_outer;     ///< left and top edges up to 0, right and bottom edges down to 1
  float variance[4];  ///< of the four numbers of each box
  float* boxes;       ///< [cells, shapes, 4]
  float* variances;   ///< [cells, shapes, 4]
  /// An edge after cutting.
  [[nodiscard]] constexpr double edge(double at, bool is_end) const {
    if ((cut_all || (cut_outer && !is_end)) && at < 0.0) return 0.0;
    if ((cut_all || (cut_outer && is_end)) && at > 1.0) return 1.0;
    return at;
  }
  constexpr void operator()(int64_t i) const {
    const BoxShape& shape = shapes[i % count];
    const int64_t cell = i / count;
    const double w = static_cast<double>(cell % columns) + shift;
    const double h = static_cast<double>(cell / columns) + shift;
    const double x = w * step[0] + start[0] + shape.right;
    const double y = h * step[1] + start[1] + shape.down;
    const double half[2] = {(shape.width - less) / 2, (shape.height - less) / 2};
    const double edges[4] = {(x - half[0]) / size[0], (y - half[1]) / size[1],
                             (x + half[0]) / size[0], (y + half[1]) / size[1]};
    for (int k = 0; k < 4; ++k) {
      boxes[i * 4 + k] = static_cast<float>(edge(edges[k], k >= 2));
      variances[i * 4 + k] = variance[k];
    }
  }
};

/// Box i of box_coder: a target relative to a prior box, or the inverse. Encoded, there is a row
/// for each target and a column for each prior box; decoded, the priors belong to rows or columns.
struct CodeBox {
  const float* prior;     ///< [priors, 4]
  const float* variance;  ///< [priors, 4]; null: the same for all
  const float* target;    ///< [targets, 4] to encode; [rows, columns, 4] to decode
  float* out;             ///< [rows, columns, 4]
  float fixed[4];         ///< variance of all priors
  int64_t columns;        ///< results of a row
  bool encode;            ///< else decode
  bool by_row;            ///< rows belong to priors, else columns
  float extra;            ///< 1 where corners are pixels of the box
  /// The variance of number k of a prior box.
  [[nodiscard]] constexpr float scale(int64_t p, int k) const {
    return variance != nullptr ? variance[4 * p + k] : fixed[k];
  }
  constexpr void operator()(int64_t i) const {
    const int64_t p = by_row ? i / columns : i % columns;
    const float* const box = prior + 4 * p;
    const float* const t = target + 4 * (encode ? i / columns : i);
    const float width = box[2] - box[0] + extra;
    const float height = box[3] - box[1] + extra;
    const float x = box[0] + width / 2;
    const float y = box[1] + height / 2;
    float* const to = out + 4 * i;
    if (encode) {
      // the center of a target is its geometric center, whether or not corners are pixels
      to[0] = ((t[0] + t[2]) / 2 - x) / width / scale(p, 0);
      to[1] = ((t[1] + t[3]) / 2 - y) / height / scale(p, 1);
      to[2] = std::log(std::fabs((t[2] - t[0] + extra) / width)) / scale(p, 2);
      to[3] = std::log(std::fabs((t[3] - t[1] + extra) / height)) / scale(p, 3);
      return;
    }
    const float at_x = scale(p, 0) * t[0] * width + x;
    const float at_y = scale(p, 1) * t[1] * height + y;
    const float half_width = std::exp(scale(p, 2) * t[2]) * width / 2;
    const float half_height = std::exp(scale(p, 3) * t[3]) * height / 2;
    to[0] = at_x - half_width;
    to[1] = at_y - half_height;
    to[2] = at_x + half_width - extra;
    to[3] = at_y + half_height - extra;
  }
};

/// Op iou_similarity: intersection over union of box i / columns of x and box i % columns of y.
/// Boxes without an area give what the division gives, as on the processor.
struct OverlapOfBoxes {
  const float* x;   ///< [rows, 4]
  const float* y;   ///< [columns, 4]
  float* out;       ///< [rows, columns]
  int64_t columns;  ///< boxes of y
  float extra;      ///< 1 where corners are pixels of the box
  constexpr void operator()(int64_t i) const {
    const float* const p = x + 4 * (i / columns);
    const float* const q = y + 4 * (i % columns);
    const float left = larger_of(p[0], q[0]);
    const float top = larger_of(p[1], q[1]);
    const float width = larger_of(smaller_of(p[2], q[2]) - left + extra, 0.0F);
    const float height = larger_of(smaller_of(p[3], q[3]) - top + extra, 0.0F);
    const float area = (p[2] - p[0] + extra) * (p[3] - p[1] + extra);
    const float other = (q[2] - q[0] + extra) * (q[3] - q[1] + extra);
    out[i] = width * height / (area + other - width * height);
  }
};

/// Op polygon_box_transform: offsets of corners become coordinates; a pixel is a square of four by
/// four.
struct PlaceCorners {
  const float* x;    ///< [batch, channels, height, width]
  float* out;        ///< with the same dims
  int64_t channels;  ///< even ones hold offsets to the left, odd ones upwards
  int64_t height;    ///< pixels
  int64_t width;     ///< pixels
  constexpr void operator()(int64_t i) const {
    const bool is_column = i / (width * height) % channels % 2 == 0;
    const int64_t at = is_column ? i % width : i / width % height;
    out[i] = static_cast<float>(4 * at) - x[i];
  }
};

/// Box i of yolo_box, and its scores; zeros where the confidence is below the threshold.
struct PredictBox {
  static constexpr int32_t kMost = 32;  ///< anchors
  const float* x;                       ///< [batch, channels, height, width]
  const int32_t* sizes;                 ///< [batch, 2]: height and width of the images
  float* boxes;                         ///< [batch, anchors * height * width, 4]
  float* scores;                        ///< [batch, anchors * height * width, classes]
  int64_t anchors;                      ///< of a cell
  int64_t classes;                      ///< scores of a box
  int64_t height;                       ///< cells of a column
  int64_t width;                        ///< cells of a row
  float anchor[2 * kMost];              ///< width and height of each anchor
  int64_t downsample;                   ///< pixels of the input of the network for each cell
  float threshold;                      ///< of the confidence
  float scale;                          ///< of the offsets within a cell
  float iou_factor;                     ///< below 0: the network predicts no overlap
  bool clip;                            ///< boxes are cut at the borders of the image

  /// The logistic function.
  [[nodiscard]] static constexpr float sigmoid(float v) { return 1.0F / (1.0F + std::exp(-v)); }
  /// The corners, in pixels of the image.
  constexpr void put(const float* entry, int64_t a, int64_t cell, const int32_t* size,
                     float* box) const {
    const int64_t cells = height * width;
    const auto image_h = static_cast<float>(size[0]);
    const auto image_w = static_cast<float>(size[1]);
    const float bias = -0.5F * (scale - 1.0F);
    const float at_x = (static_cast<float>(cell % width) + sigmoid(entry[0]) * scale + bias) *
                       image_w / static_cast<float>(width);
    const float at_y = (static_cast<float>(cell / width) + sigmoid(entry[cells]) * scale + bias) *
                       image_h / static_cast<float>(height);
    const float box_w = std::exp(entry[2 * cells]) * anchor[2 * a] * image_w /
                        static_cast<float>(downsample * width);
    const float box_h = std::exp(entry[3 * cells]) * anchor[2 * a + 1] * image_h /
                        static_cast<float>(downsample * height);
    box[0] = at_x - box_w / 2;
    box[1] = at_y - box_h / 2;
    box[2] = at_x + box_w / 2;
    box[3] = at_y + box_h / 2;
    if (!clip) return;
    box[0] = larger_of(box[0], 0.0F);
    box[1] = larger_of(box[1], 0.0F);
    box[2] = smaller_of(box[2], image_w - 1);
    box[3] = smaller_of(box[3], image_h - 1);
  }
  constexpr void operator()(int64_t i) const {
    const int64_t cells = height * width;
    const int64_t cell = i % cells;
    const int64_t a = i / cells % anchors;
    const int64_t n = i / (cells * anchors);
    const int64_t overlaps = iou_factor < 0 ? 0 : anchors;
    const float* const image = x + n * (anchors * (classes + 5) + overlaps) * cells;
    const float* const entry = image + (overlaps + a * (classes + 5)) * cells + cell;
    float confidence = sigmoid(entry[4 * cells]);
    if (overlaps > 0)
      confidence = std::pow(confidence, 1.0F - iou_factor) *
                   std::pow(sigmoid(image[a * cells + cell]), iou_factor);
    const bool drops = confidence < threshold;
    float* const box = boxes + 4 * i;
    for (int k = 0; k < 4; ++k) box[k] = 0.0F;
    if (!drops) put(entry, a, cell, sizes + 2 * n, box);
    for (int64_t k = 0; k < classes; ++k)
      scores[i * classes + k] = drops ? 0.0F : confidence * sigmoid(entry[(5 + k) * cells]);
  }
};

}  // namespace millrace::gpu

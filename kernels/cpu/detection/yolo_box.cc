#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/cpu/needed.h"
#include "kernels/dispatch.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace yolo_box_kernels {
namespace {

struct YoloBoxAttrs {
  std::vector<int64_t> anchors;
  int64_t classes;
  float threshold;
  int64_t downsample;
  bool clip;
  float scale;
  bool iou_aware;
  float iou_factor;
};

template <typename T>
T sigmoid(T x) {
  return T{1} / (T{1} + std::exp(-x));
}

struct YoloBoxShape {
  int64_t batch, anchors, height, width;
  [[nodiscard]] int64_t cells() const { return height * width; }
};

StatusOr<YoloBoxShape> shape_of(const KernelContext& ctx, const YoloBoxAttrs& attrs,
                                const Tensor& x, const Tensor& sizes) {
  const auto anchors = static_cast<int64_t>(attrs.anchors.size()) / 2;
  const int64_t wanted = anchors * (attrs.classes + (attrs.iou_aware ? 6 : 5));
  if (x.rank() != 4 || x.dim(1) != wanted || sizes.rank() != 2 || sizes.dim(1) != 2 ||
      sizes.dim(0) != x.dim(0) || sizes.dtype() != DType::kInt32) {
    return ctx.error("X must have {} channels and ImgSize be i32 [batch, 2], found {} and {}",
                     wanted, describe(x), describe(sizes));
  }
  return YoloBoxShape{x.dim(0), anchors, x.dim(2), x.dim(3)};
}

// Corners of a predicted box, in pixels of the image.
template <typename T>
void put_box(const YoloBoxAttrs& attrs, const YoloBoxShape& s, const T* entry, int64_t anchor,
             int64_t h, int64_t w, const int32_t* size, T* box) {
  const T image_h = static_cast<T>(size[0]);
  const T image_w = static_cast<T>(size[1]);
  const T scale = static_cast<T>(attrs.scale);
  const T bias = T{-0.5} * (scale - 1);
  const auto value = [&](int64_t k) { return entry[k * s.cells()]; };
  const T x =
      (static_cast<T>(w) + sigmoid(value(0)) * scale + bias) * image_w / static_cast<T>(s.width);
  const T y =
      (static_cast<T>(h) + sigmoid(value(1)) * scale + bias) * image_h / static_cast<T>(s.height);
  const auto side = [&](int64_t k, int64_t cells, T image) {
    return std::exp(value(2 + k)) *
           static_cast<T>(attrs.anchors[static_cast<size_t>(2 * anchor + k)]) * image /
           static_cast<T>(attrs.downsample * cells);
  };
  const T width = side(0, s.width, image_w);
  const T height = side(1, s.height, image_h);
  box[0] = x - width / 2;
  box[1] = y - height / 2;
  box[2] = x + width / 2;
  box[3] = y + height / 2;
  if (!attrs.clip) return;
  box[0] = std::max(box[0], T{0});
  box[1] = std::max(box[1], T{0});
  box[2] = std::min(box[2], image_w - 1);
  box[3] = std::min(box[3], image_h - 1);
}

template <typename T>
void run(const YoloBoxAttrs& attrs, const YoloBoxShape& s, const T* x, const int32_t* sizes,
         T* boxes, T* scores) {
  const int64_t each = attrs.classes + 5;
  const int64_t image = s.anchors * (each + (attrs.iou_aware ? 1 : 0)) * s.cells();
  std::fill_n(boxes, s.batch * s.anchors * s.cells() * 4, T{0});
  std::fill_n(scores, s.batch * s.anchors * s.cells() * attrs.classes, T{0});
  for (int64_t n = 0; n < s.batch; ++n) {
    for (int64_t a = 0; a < s.anchors; ++a) {
      for (int64_t cell = 0; cell < s.cells(); ++cell) {
        const T* const first = x + n * image;
        const T* const entry =
            first + ((attrs.iou_aware ? s.anchors : 0) + a * each) * s.cells() + cell;
        T confidence = sigmoid(entry[4 * s.cells()]);
        if (attrs.iou_aware) {
          const T factor = static_cast<T>(attrs.iou_factor);
          confidence = std::pow(confidence, 1 - factor) *
                       std::pow(sigmoid(first[a * s.cells() + cell]), factor);
        }
        if (confidence < static_cast<T>(attrs.threshold)) continue;
        const int64_t row = (n * s.anchors + a) * s.cells() + cell;
        put_box(attrs, s, entry, a, cell / s.width, cell % s.width, sizes + 2 * n, boxes + 4 * row);
        for (int64_t k = 0; k < attrs.classes; ++k)
          scores[row * attrs.classes + k] = confidence * sigmoid(entry[(5 + k) * s.cells()]);
      }
    }
  }
}

StatusOr<Kernel> yolo_box(const KernelSetup& op) {
  const ArgIndex x = op.input("X");
  const ArgIndex img_size = op.input("ImgSize");
  const ArgIndex boxes = op.output("Boxes");
  const ArgIndex scores = op.output("Scores");
  const YoloBoxAttrs attrs{op.attr<std::vector<int64_t>>("anchors"),
                           op.attr<int64_t>("class_num"),
                           op.attr<float>("conf_thresh"),
                           op.attr<int64_t>("downsample_ratio"),
                           op.attr<bool>("clip_bbox"),
                           op.attr<float>("scale_x_y"),
                           op.attr<bool>("iou_aware"),
                           op.attr<float>("iou_aware_factor")};
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const in, needed(ctx, x, "X"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const sizes, needed(ctx, img_size, "ImgSize"));
    MILLRACE_ASSIGN_OR_RETURN(const YoloBoxShape s, shape_of(ctx, attrs, *in, *sizes));
    return dispatch<FloatTypes>(in->dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      run(attrs, s, in->data<T>(), sizes->data<int32_t>(), ctx.out(boxes).data<T>(),
          ctx.out(scores).data<T>());
      return Ok();
    });
  });
}

}  // namespace
}  // namespace yolo_box_kernels

void add_detection_yolo_box(KernelRegistry& registry) {
  registry.add("yolo_box", yolo_box_kernels::yolo_box);
}

}  // namespace millrace::kernels

#include <cmath>
#include <string>

#include "kernels/cpu/detection/boxes.h"
#include "kernels/cpu/needed.h"
#include "kernels/dispatch.h"
#include "kernels/registry.h"

// iou_similarity, box_clip and polygon_box_transform.
namespace millrace::kernels {
namespace {

StatusOr<Kernel> iou_similarity(const KernelSetup& op) {
  const ArgIndex x = op.input("X");
  const ArgIndex y = op.input("Y");
  const ArgIndex out = op.output("Out");
  return Kernel([=,
                 normalized = op.attr<bool>("box_normalized")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const a, needed(ctx, x, "X"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const b, needed(ctx, y, "Y"));
    if (a->dims().back() != 4 || b->dims().back() != 4 || a->dtype() != b->dtype())
      return ctx.error("X and Y must be [boxes, 4], found {} and {}", describe(*a), describe(*b));
    return dispatch<FloatTypes>(a->dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      T* to = ctx.out(out).data<T>();
      const T extra = normalized ? T{0} : T{1};
      for (int64_t i = 0; i < a->dim(0); ++i) {
        const T* const p = a->data<T>() + 4 * i;
        const T area = (p[2] - p[0] + extra) * (p[3] - p[1] + extra);
        for (int64_t k = 0; k < b->dim(0); ++k) {
          const T* const q = b->data<T>() + 4 * k;
          const T width = std::max(std::min(p[2], q[2]) - std::max(p[0], q[0]) + extra, T{0});
          const T height = std::max(std::min(p[3], q[3]) - std::max(p[1], q[1]) + extra, T{0});
          const T other = (q[2] - q[0] + extra) * (q[3] - q[1] + extra);
          *to++ = width * height / (area + other - width * height);
        }
      }
      return Ok();
    });
  });
}

// Each image has its boxes (by LoD), height, width and scale.
StatusOr<Kernel> box_clip(const KernelSetup& op) {
  const ArgIndex input = op.input("Input");
  const ArgIndex im_info = op.input("ImInfo");
  const ArgIndex output = op.output("Output");
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const boxes, needed(ctx, input, "Input"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const info, needed(ctx, im_info, "ImInfo"));
    MILLRACE_ASSIGN_OR_RETURN(const std::vector<int64_t> offsets,
                              part_offsets(*boxes, nullptr, "Input"));
    const auto images = static_cast<int64_t>(offsets.size()) - 1;
    if (info->numel() != 3 * images || info->dtype() != boxes->dtype() ||
        boxes->dims().back() != 4) {
      return ctx.error("ImInfo must be [{}, 3] and Input have a last dim of 4, found {} and {}",
                       images, describe(*info), describe(*boxes));
    }
    return dispatch<FloatTypes>(boxes->dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      const int64_t row = boxes->dim(0) == 0 ? 0 : boxes->numel() / boxes->dim(0);
      T* const to = ctx.out(output).data<T>();
      for (int64_t n = 0; n < images; ++n) {
        const T* const of_image = info->data<T>() + 3 * n;
        const T bottom = std::round(of_image[0] / of_image[2]) - 1;
        const T right = std::round(of_image[1] / of_image[2]) - 1;
        const int64_t end = offsets[static_cast<size_t>(n) + 1] * row;
        for (int64_t i = offsets[static_cast<size_t>(n)] * row; i < end; ++i)
          to[i] = std::max(std::min(boxes->data<T>()[i], i % 2 == 0 ? right : bottom), T{0});
      }
      return Ok();
    });
  });
}

// Each input pixel represents a square of four by four pixels. Even channels hold offsets to the
// left, odd channels offsets upwards.
StatusOr<Kernel> polygon_box_transform(const KernelSetup& op) {
  const ArgIndex input = op.input("Input");
  const ArgIndex output = op.output("Output");
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const in, needed(ctx, input, "Input"));
    return dispatch<FloatTypes>(in->dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      const T* from = in->data<T>();
      T* to = ctx.out(output).data<T>();
      for (int64_t plane = 0; plane < in->dim(0) * in->dim(1); ++plane) {
        for (int64_t h = 0; h < in->dim(2); ++h) {
          for (int64_t w = 0; w < in->dim(3); ++w)
            *to++ = static_cast<T>(4 * (plane % in->dim(1) % 2 == 0 ? w : h)) - *from++;
        }
      }
      return Ok();
    });
  });
}

}  // namespace

void add_detection_box_ops(KernelRegistry& registry) {
  registry.add("iou_similarity", iou_similarity);
  registry.add("box_clip", box_clip);
  registry.add("polygon_box_transform", polygon_box_transform);
}

}  // namespace millrace::kernels

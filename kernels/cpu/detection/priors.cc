#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/cpu/detection/prior_shapes.h"
#include "kernels/cpu/needed.h"
#include "kernels/dispatch.h"
#include "kernels/registry.h"

// prior_box, density_prior_box and anchor_generator: boxes for every cell of a feature map.
namespace millrace::kernels {
namespace priors {
namespace {

struct Grid {
  int64_t height, width;
  double image_height, image_width;
  double step_height, step_width;
};

struct PriorsAttrs {
  float step_h, step_w, offset;
  bool clip;
  std::vector<float> variances;
};

PriorsAttrs read_attrs(const KernelSetup& op) {
  return {op.attr<float>("step_h"), op.attr<float>("step_w"), op.attr<float>("offset"),
          op.attr<bool>("clip"), op.attr<std::vector<float>>("variances")};
}

struct PriorsArgs {
  ArgIndex input, image, boxes, variances;
};

StatusOr<Grid> grid_of(const KernelContext& ctx, const PriorsArgs& args, const PriorsAttrs& attrs) {
  MILLRACE_ASSIGN_OR_RETURN(const Tensor* const input, needed(ctx, args.input, "Input"));
  MILLRACE_ASSIGN_OR_RETURN(const Tensor* const image, needed(ctx, args.image, "Image"));
  if (attrs.variances.size() != 4)
    return ctx.error("attribute 'variances' must have 4 entries, found {}", attrs.variances.size());
  Grid grid{input->dim(2),
            input->dim(3),
            static_cast<double>(image->dim(2)),
            static_cast<double>(image->dim(3)),
            attrs.step_h,
            attrs.step_w};
  if (attrs.step_h == 0 || attrs.step_w == 0) {
    grid.step_height = grid.image_height / static_cast<double>(grid.height);
    grid.step_width = grid.image_width / static_cast<double>(grid.width);
  }
  return grid;
}

// Which edges of boxes are moved into the image.
enum class Cut {
  kNone,
  kOuter,  // left and top edges that are too small, right and bottom edges that are too large
  kAll
};

double cut_edge(double edge, bool is_end, Cut cut) {
  if (cut == Cut::kNone) return edge;
  if (cut == Cut::kAll) return std::clamp(edge, 0.0, 1.0);
  return is_end ? std::min(edge, 1.0) : std::max(edge, 0.0);
}

// Writes the shapes around all cells, as fractions of the image size, and the variances.
template <typename T>
Status put_boxes(const KernelContext& ctx, const PriorsArgs& args, const PriorsAttrs& attrs,
                 const Grid& grid, const std::vector<PriorShape>& shapes, Cut without_clip) {
  Tensor& boxes = ctx.out(args.boxes);
  Tensor& variances = ctx.out(args.variances);
  const int64_t count = grid.height * grid.width * static_cast<int64_t>(shapes.size());
  if (boxes.numel() != 4 * count || variances.numel() != 4 * count)
    return ctx.error("Boxes must have {} boxes, found {}", count, describe(boxes));
  const Cut cut = attrs.clip ? Cut::kAll : without_clip;
  T* to = boxes.data<T>();
  for (int64_t h = 0; h < grid.height; ++h) {
    for (int64_t w = 0; w < grid.width; ++w) {
      const double x = (static_cast<double>(w) + attrs.offset) * grid.step_width;
      const double y = (static_cast<double>(h) + attrs.offset) * grid.step_height;
      for (const PriorShape& s : shapes) {
        const double edges[4] = {(x + s.right - s.width / 2) / grid.image_width,
                                 (y + s.down - s.height / 2) / grid.image_height,
                                 (x + s.right + s.width / 2) / grid.image_width,
                                 (y + s.down + s.height / 2) / grid.image_height};
        for (size_t i = 0; i < 4; ++i) *to++ = static_cast<T>(cut_edge(edges[i], i >= 2, cut));
      }
    }
  }
  T* variance = variances.data<T>();
  for (int64_t i = 0; i < 4 * count; ++i)
    variance[i] = static_cast<T>(attrs.variances[static_cast<size_t>(i % 4)]);
  return Ok();
}

StatusOr<Kernel> prior_box(const KernelSetup& op) {
  const PriorsArgs args{op.input("Input"), op.input("Image"), op.output("Boxes"),
                        op.output("Variances")};
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<PriorShape> shapes, prior_shapes(op));
  return Kernel([=, attrs = read_attrs(op)](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Grid grid, grid_of(ctx, args, attrs));
    return dispatch<FloatTypes>(ctx.in(args.input).dtype(), [&](auto tag) {
      return put_boxes<typename decltype(tag)::type>(ctx, args, attrs, grid, shapes, Cut::kNone);
    });
  });
}

StatusOr<Kernel> density_prior_box(const KernelSetup& op) {
  const PriorsArgs args{op.input("Input"), op.input("Image"), op.output("Boxes"),
                        op.output("Variances")};
  MILLRACE_ASSIGN_OR_RETURN(const PriorDensity density, read_density(op));
  return Kernel([=, attrs = read_attrs(op)](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Grid grid, grid_of(ctx, args, attrs));
    const std::vector<PriorShape> shapes =
        density_shapes(density, grid.step_width, grid.step_height);
    return dispatch<FloatTypes>(ctx.in(args.input).dtype(), [&](auto tag) {
      return put_boxes<typename decltype(tag)::type>(ctx, args, attrs, grid, shapes, Cut::kOuter);
    });
  });
}

template <typename T>
Status put_anchors(const KernelContext& ctx, const Tensor& input, const AnchorAttrs& attrs,
                   const std::vector<PriorShape>& shapes, Tensor& anchors, Tensor& variances) {
  const int64_t count = input.dim(2) * input.dim(3) * static_cast<int64_t>(shapes.size());
  if (anchors.numel() != 4 * count || variances.numel() != 4 * count)
    return ctx.error("Anchors must have {} boxes, found {}", count, describe(anchors));
  T* to = anchors.data<T>();
  for (int64_t h = 0; h < input.dim(2); ++h) {
    for (int64_t w = 0; w < input.dim(3); ++w) {
      const double x = static_cast<double>(w) * attrs.stride[0] +
                       static_cast<double>(attrs.offset) * (attrs.stride[0] - 1);
      const double y = static_cast<double>(h) * attrs.stride[1] +
                       static_cast<double>(attrs.offset) * (attrs.stride[1] - 1);
      for (const PriorShape& s : shapes) {
        *to++ = static_cast<T>(x - 0.5 * (s.width - 1));
        *to++ = static_cast<T>(y - 0.5 * (s.height - 1));
        *to++ = static_cast<T>(x + 0.5 * (s.width - 1));
        *to++ = static_cast<T>(y + 0.5 * (s.height - 1));
      }
    }
  }
  for (int64_t i = 0; i < 4 * count; ++i)
    variances.data<T>()[i] = static_cast<T>(attrs.variances[static_cast<size_t>(i % 4)]);
  return Ok();
}

StatusOr<Kernel> anchor_generator(const KernelSetup& op) {
  const ArgIndex input = op.input("Input");
  const ArgIndex anchors = op.output("Anchors");
  const ArgIndex variances = op.output("Variances");
  MILLRACE_ASSIGN_OR_RETURN(const AnchorAttrs attrs, read_anchors(op));
  return Kernel([=, shapes = anchor_shapes(attrs)](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const in, needed(ctx, input, "Input"));
    return dispatch<FloatTypes>(in->dtype(), [&](auto tag) {
      return put_anchors<typename decltype(tag)::type>(ctx, *in, attrs, shapes, ctx.out(anchors),
                                                       ctx.out(variances));
    });
  });
}

}  // namespace
}  // namespace priors

void add_detection_priors(KernelRegistry& registry) {
  using namespace priors;
  registry.add("prior_box", prior_box);
  registry.add("density_prior_box", density_prior_box);
  registry.add("anchor_generator", anchor_generator);
}

}  // namespace millrace::kernels

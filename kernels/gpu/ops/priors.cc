#include <string>
#include <vector>

#include "kernels/cpu/detection/prior_shapes.h"
#include "kernels/gpu/ops/args.h"
#include "kernels/registry.h"

// prior_box, density_prior_box and anchor_generator. They read dims only.
namespace millrace::gpu {
namespace priors {
namespace {

using kernels::PriorShape;

// Queues the boxes of all cells of a map. \param f  the functor without shapes and pointers
Status put_boxes(Device& device, BoxesOfCells f, const std::vector<PriorShape>& shapes,
                 const std::vector<float>& variance, const Tensor& map, Tensor& to,
                 Tensor& variances) {
  const auto each_cell = static_cast<int64_t>(shapes.size());
  if (each_cell > BoxesOfCells::kMost || each_cell == 0) return refuse("{} boxes", each_cell);
  const int64_t count = map.dim(2) * map.dim(3) * each_cell;
  MILLRACE_RETURN_IF_ERROR(all_floats({&map, &to, &variances}));
  if (to.numel() != 4 * count || variances.numel() != 4 * count || variance.size() != 4)
    return refuse("{} and {}", describe(to), describe(variances));
  for (size_t i = 0; i < shapes.size(); ++i)
    f.shapes[i] = {shapes[i].width, shapes[i].height, shapes[i].right, shapes[i].down};
  for (size_t i = 0; i < 4; ++i) f.variance[i] = variance[i];
  f.count = static_cast<int32_t>(each_cell);
  f.columns = map.dim(3);
  f.boxes = floats(to);
  f.variances = floats(variances);
  return each(device, f, count);
}

struct Settings {
  explicit Settings(const KernelSetup& op)
      : device(device_of(op)),
        input(op.input("Input")),
        image(op.input("Image")),
        boxes(op.output("Boxes")),
        out_variances(op.output("Variances")),
        step{static_cast<double>(op.attr<float>("step_w")),
             static_cast<double>(op.attr<float>("step_h"))},
        offset(op.attr<float>("offset")),
        clip(op.attr<bool>("clip")),
        variances(op.attr<std::vector<float>>("variances")) {}
  Device& device;
  ArgIndex input, image, boxes, out_variances;
  double step[2];  // x, y; 0: from the sizes
  float offset;
  bool clip;
  std::vector<float> variances;
};

// \param shapes  returns the boxes of a cell, given its width and height
template <typename Shapes>
Kernel around_cells(const KernelSetup& op, bool cut_outer, Shapes shapes) {
  return Kernel([s = Settings(op), cut_outer,
                 shapes = std::move(shapes)](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const input, needed_here(ctx, s.input, "Input"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const image, needed_here(ctx, s.image, "Image"));
    if (input->rank() != 4 || image->rank() != 4) return refuse("Input {}", describe(*input));
    BoxesOfCells f{};
    for (int d = 0; d < 2; ++d) {
      f.size[d] = static_cast<double>(image->dim(3 - d));
      f.step[d] = s.step[0] == 0 || s.step[1] == 0
                      ? f.size[d] / static_cast<double>(input->dim(3 - d))
                      : s.step[d];
    }
    f.shift = static_cast<double>(s.offset);
    f.cut_all = s.clip;
    f.cut_outer = cut_outer && !s.clip;
    return put_boxes(s.device, f, shapes(f.step[0], f.step[1]), s.variances, *input,
                     ctx.out(s.boxes), ctx.out(s.out_variances));
  });
}

StatusOr<Kernel> prior_box(const KernelSetup& op) {
  MILLRACE_ASSIGN_OR_RETURN(std::vector<PriorShape> shapes, kernels::prior_shapes(op));
  return around_cells(op, /*cut_outer=*/false,
                      [shapes](double /*width*/, double /*height*/) { return shapes; });
}

StatusOr<Kernel> density_prior_box(const KernelSetup& op) {
  MILLRACE_ASSIGN_OR_RETURN(kernels::PriorDensity density, kernels::read_density(op));
  return around_cells(op, /*cut_outer=*/true, [density](double width, double height) {
    return kernels::density_shapes(density, width, height);
  });
}

StatusOr<Kernel> anchor_generator(const KernelSetup& op) {
  MILLRACE_ASSIGN_OR_RETURN(const kernels::AnchorAttrs attrs, kernels::read_anchors(op));
  BoxesOfCells f{};
  for (size_t d = 0; d < 2; ++d) {
    f.step[d] = attrs.stride[d];
    f.start[d] = static_cast<double>(attrs.offset) * (f.step[d] - 1);
    f.size[d] = 1;
  }
  f.less = 1;
  return Kernel([f, attrs, shapes = kernels::anchor_shapes(attrs), &device = device_of(op),
                 input = op.input("Input"), anchors = op.output("Anchors"),
                 variances = op.output("Variances")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const map, needed_here(ctx, input, "Input"));
    if (map->rank() != 4) return refuse("Input {}", describe(*map));
    return put_boxes(device, f, shapes, attrs.variances, *map, ctx.out(anchors),
                     ctx.out(variances));
  });
}

}  // namespace
}  // namespace priors

void add_priors(KernelRegistry& registry) {
  registry.add("prior_box", priors::prior_box);
  registry.add("density_prior_box", priors::density_prior_box);
  registry.add("anchor_generator", priors::anchor_generator);
}

}  // namespace millrace::gpu

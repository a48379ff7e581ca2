#include <string>
#include <vector>

#include "kernels/gpu/ops/args.h"
#include "kernels/registry.h"

// grid_sampler and affine_grid.
namespace millrace::gpu {
namespace grid {
namespace {

// A functor's settings without shapes.
SampledGrid read_sampler(const KernelSetup& op) {
  SampledGrid of{};
  const auto padding = op.attr<std::string>("padding_mode");
  of.nearest = op.attr<std::string>("mode") == "nearest";
  of.reflects = padding == "reflection";
  of.clips = of.reflects || padding == "border";
  of.align_corners = op.attr<bool>("align_corners");
  return of;
}

Status set_shapes(SampledGrid& of, const Tensor& x, const Tensor& points) {
  MILLRACE_RETURN_IF_ERROR(all_floats({&x, &points}));
  const size_t rank = x.rank();
  if ((rank != 4 && rank != 5) || points.rank() != rank || points.dim(0) != x.dim(0) ||
      points.dims().back() != static_cast<int64_t>(rank) - 2 || x.numel() == 0)
    return refuse("X {} and Grid {}", describe(x), describe(points));
  of.spatial = static_cast<int32_t>(rank) - 2;
  of.channels = x.dim(1);
  of.points = points.numel() / (points.dim(0) * of.spatial);
  for (int64_t& size : of.size) size = 1;
  for (size_t i = 2; i < rank; ++i) of.size[5 - rank + i - 2] = x.dims()[i];
  of.grid = floats(points);
  return Ok();
}

StatusOr<Kernel> sampler(const KernelSetup& op) {
  return Kernel([settings = read_sampler(op), &device = device_of(op), x = op.input("X"),
                 points = op.input("Grid"),
                 out = op.output("Output")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const from, needed_here(ctx, x, "X"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const at, needed_here(ctx, points, "Grid"));
    SampledGrid of = settings;
    MILLRACE_RETURN_IF_ERROR(set_shapes(of, *from, *at));
    Tensor& to = ctx.out(out);
    if (to.dtype() != DType::kFloat32 || to.numel() != from->dim(0) * of.channels * of.points)
      return refuse("Output {}", describe(to));
    return each(device, SampleGrid{of, floats(from), floats(to)}, to.numel());
  });
}

StatusOr<Kernel> sampler_grad(const KernelSetup& op) {
  return Kernel([settings = read_sampler(op), &device = device_of(op), x = op.input("X"),
                 points = op.input("Grid"), dout = op.input("Output@GRAD"),
                 dx = op.output("X@GRAD"),
                 dgrid = op.output("Grid@GRAD")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const FloatGradient g, float_gradient(ctx, x, "X", dout, dx));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const at, needed_here(ctx, points, "Grid"));
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const to_grid, output_like(ctx, dgrid, *at));
    SampledGrid of = settings;
    MILLRACE_RETURN_IF_ERROR(set_shapes(of, *g.y, *at));
    const int64_t planes = g.y->dim(0) * of.channels;
    if (g.dy->dtype() != DType::kFloat32 || g.dy->numel() != planes * of.points)
      return refuse("Output@GRAD {}", describe(*g.dy));
    if (g.dx != nullptr)
      MILLRACE_RETURN_IF_ERROR(
          each(device, SampleGridToImage{of, floats(g.dy), floats(g.dx)}, planes));
    if (to_grid == nullptr) return Ok();
    return each(device, SampleGridToGrid{of, floats(g.y), floats(g.dy), floats(to_grid)},
                g.y->dim(0) * of.points);
  });
}

struct Images {
  std::vector<int64_t> shape;
  bool align_corners = true;
};

// Errors: rejects shapes that do not fit the maps.
StatusOr<GridPixels> pixels_of(const Images& images, const Tensor& theta) {
  MILLRACE_RETURN_IF_ERROR(all_floats({&theta}));
  const size_t rank = images.shape.size();
  const auto spatial = static_cast<int64_t>(rank) - 2;
  if ((rank != 4 && rank != 5) || theta.rank() != 3 || theta.dim(0) != images.shape[0] ||
      theta.dim(1) != spatial || theta.dim(2) != spatial + 1)
    return refuse("Theta {}", describe(theta));
  GridPixels of{};
  of.spatial = static_cast<int32_t>(spatial);
  of.lines[0] = {1, 0, 0};
  for (size_t i = 2; i < rank; ++i) {
    const int64_t size = images.shape[i];
    if (size < 1) return refuse("an image of size {}", size);
    const auto n = static_cast<float>(size);
    GridLine line{size, -1.0F, size > 1 ? 2.0F / (n - 1) : 0.0F};
    if (!images.align_corners) {
      line.first *= (n - 1) / n;
      line.step *= (n - 1) / n;
    }
    of.lines[5 - rank + i - 2] = line;
  }
  return of;
}

template <bool kGradient>
StatusOr<Kernel> affine(const KernelSetup& op) {
  if (op.input("OutputShape")) return refuse("a shape given by a tensor");
  const Images images{op.attr<std::vector<int64_t>>("output_shape"),
                      op.attr<bool>("align_corners")};
  return Kernel(
      [images, &device = device_of(op), theta = op.input("Theta"), dout = op.input("Output@GRAD"),
       out = op.output(kGradient ? "Theta@GRAD" : "Output")](const KernelContext& ctx) -> Status {
        MILLRACE_ASSIGN_OR_RETURN(const Tensor* const maps, needed_here(ctx, theta, "Theta"));
        MILLRACE_ASSIGN_OR_RETURN(const GridPixels of, pixels_of(images, *maps));
        const int64_t count = images.shape[0] * of.count() * of.spatial;
        if constexpr (kGradient) {
          MILLRACE_ASSIGN_OR_RETURN(const FloatGradient g,
                                    float_gradient(ctx, theta, "Theta", dout, out));
          if (g.dx == nullptr) return Ok();
          if (g.dy->numel() != count) return refuse("Output@GRAD {}", describe(*g.dy));
          return rows(device, MapGridBack{of, floats(g.dy), floats(g.dx)}, g.dx->numel());
        } else {
          Tensor& to = ctx.out(out);
          if (to.dtype() != DType::kFloat32 || to.numel() != count)
            return refuse("Output {}", describe(to));
          return each(device, MapGrid{of, floats(maps), floats(to)}, count);
        }
      });
}

}  // namespace
}  // namespace grid

void add_grid(KernelRegistry& registry) {
  registry.add("grid_sampler", grid::sampler);
  registry.add("grid_sampler_grad", grid::sampler_grad);
  registry.add("affine_grid", grid::affine<false>);
  registry.add("affine_grid_grad", grid::affine<true>);
}

}  // namespace millrace::gpu

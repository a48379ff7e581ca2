#include <vector>

#include "kernels/cpu/needed.h"
#include "kernels/cpu/nn/window.h"
#include "kernels/dispatch.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace affine_grid_kernels {
namespace {

struct AffineGridAttrs {
  Dims shape;
  bool align_corners = true;
};

AffineGridAttrs read_attrs(const KernelSetup& op) {
  const auto shape = op.attr<std::vector<int64_t>>("output_shape");
  return {{shape.begin(), shape.end()}, op.attr<bool>("align_corners")};
}

// Shape of the image: from a tensor if there is one, else from the attribute.
StatusOr<Dims> image_shape(const KernelContext& ctx, ArgIndex arg, const AffineGridAttrs& attrs,
                           const Tensor& theta) {
  Dims shape = attrs.shape;
  if (const Tensor* const given = ctx.find_in(arg)) {
    if (given->dtype() != DType::kInt32)
      return ctx.error("OutputShape must hold i32 sizes, found {}", describe(*given));
    shape.assign(given->values<int32_t>().begin(), given->values<int32_t>().end());
  }
  const bool plane = theta.rank() == 3 && theta.dim(1) == 2 && theta.dim(2) == 3;
  const bool space = theta.rank() == 3 && theta.dim(1) == 3 && theta.dim(2) == 4;
  if ((!plane && !space) || shape.size() != (plane ? 4U : 5U) || shape[0] != theta.dim(0)) {
    return ctx.error("an image of shape {} does not fit Theta {}", ops::dims_text(shape),
                     describe(theta));
  }
  for (const int64_t size : shape) {
    if (size < 1 || size >= (int64_t{1} << 31))
      return ctx.error("an image cannot have shape {}", ops::dims_text(shape));
  }
  return shape;
}

// Coordinates of the pixels along a dim, from -1 to 1.
template <typename T>
std::vector<T> coordinates(int64_t size, bool align_corners) {
  std::vector<T> values(static_cast<size_t>(size));
  const T n = static_cast<T>(size);
  T first = -1;
  T step = size > 1 ? T{2} / (n - 1) : T{0};
  if (!align_corners) {
    first *= (n - 1) / n;
    step *= (n - 1) / n;
  }
  for (size_t i = 0; i < values.size(); ++i) values[i] = first + step * static_cast<T>(i);
  return values;
}

// Calls body(pixel, its coordinates: x, y, [z], 1) for all pixels of an image.
template <typename T, typename Body>
void for_pixels(llvm::ArrayRef<int64_t> shape, bool align_corners, Body&& body) {
  const size_t spatial = shape.size() - 2;
  const auto xs = coordinates<T>(shape.back(), align_corners);
  const auto ys = coordinates<T>(shape[shape.size() - 2], align_corners);
  const auto zs = spatial == 3 ? coordinates<T>(shape[2], align_corners) : std::vector<T>{0};
  int64_t pixel = 0;
  for (const T z : zs) {
    for (const T y : ys) {
      for (const T x : xs) {
        const T plane[4] = {x, y, 1, 0};
        const T space[4] = {x, y, z, 1};
        body(pixel++, spatial == 3 ? space : plane);
      }
    }
  }
}

StatusOr<Kernel> affine_grid(const KernelSetup& op) {
  const ArgIndex theta = op.input("Theta");
  const ArgIndex output_shape = op.input("OutputShape");
  const ArgIndex output = op.output("Output");
  return Kernel([=, attrs = read_attrs(op)](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const maps, needed(ctx, theta, "Theta"));
    MILLRACE_ASSIGN_OR_RETURN(const Dims shape, image_shape(ctx, output_shape, attrs, *maps));
    const auto spatial = static_cast<int64_t>(shape.size()) - 2;
    Dims dims(shape.begin() + 2, shape.end());
    dims.insert(dims.begin(), shape[0]);
    dims.push_back(spatial);
    Tensor& grid = ctx.out(output);
    MILLRACE_RETURN_IF_ERROR(grid.resize(maps->dtype(), dims));
    return dispatch<FloatTypes>(maps->dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      for (int64_t n = 0; n < shape[0]; ++n) {
        const T* const map = maps->data<T>() + n * spatial * (spatial + 1);
        T* const to = grid.data<T>() + n * (grid.numel() / shape[0]);
        for_pixels<T>(shape, attrs.align_corners, [&](int64_t pixel, const T* at) {
          for (int64_t i = 0; i < spatial; ++i) {
            T sum = 0;
            for (int64_t k = 0; k <= spatial; ++k) sum += map[i * (spatial + 1) + k] * at[k];
            to[pixel * spatial + i] = sum;
          }
        });
      }
      return Ok();
    });
  });
}

StatusOr<Kernel> affine_grid_grad(const KernelSetup& op) {
  const ArgIndex theta = op.input("Theta");
  const ArgIndex output_shape = op.input("OutputShape");
  const ArgIndex output_grad = op.input("Output@GRAD");
  const ArgIndex theta_grad = op.output("Theta@GRAD");
  return Kernel([=, attrs = read_attrs(op)](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const maps, needed(ctx, theta, "Theta"));
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const dmaps, result_like(ctx, theta_grad, *maps));
    if (dmaps == nullptr) return Ok();
    fill_zero(*dmaps);
    const Tensor* const dout = ctx.find_in(output_grad);
    if (dout == nullptr) return Ok();
    MILLRACE_ASSIGN_OR_RETURN(const Dims shape, image_shape(ctx, output_shape, attrs, *maps));
    const auto spatial = static_cast<int64_t>(shape.size()) - 2;
    int64_t pixels = 1;
    for (const int64_t size : llvm::ArrayRef<int64_t>(shape).drop_front(2)) pixels *= size;
    if (dout->dtype() != maps->dtype() || dout->numel() != shape[0] * pixels * spatial)
      return ctx.error("Output@GRAD {} does not fit an image of shape {}", describe(*dout),
                       ops::dims_text(shape));
    return dispatch<FloatTypes>(maps->dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      for (int64_t n = 0; n < shape[0]; ++n) {
        T* const map = dmaps->data<T>() + n * spatial * (spatial + 1);
        const T* const g = dout->data<T>() + n * pixels * spatial;
        for_pixels<T>(shape, attrs.align_corners, [&](int64_t pixel, const T* at) {
          for (int64_t i = 0; i < spatial; ++i) {
            for (int64_t k = 0; k <= spatial; ++k)
              map[i * (spatial + 1) + k] += g[pixel * spatial + i] * at[k];
          }
        });
      }
      return Ok();
    });
  });
}

}  // namespace
}  // namespace affine_grid_kernels

void add_vision_affine_grid(KernelRegistry& registry) {
  using namespace affine_grid_kernels;
  registry.add("affine_grid", affine_grid);
  registry.add("affine_grid_grad", affine_grid_grad);
}

}  // namespace millrace::kernels

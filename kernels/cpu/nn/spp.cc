#include <string>
#include <vector>

#include "kernels/cpu/gradient.h"
#include "kernels/cpu/nn/channels.h"
#include "kernels/cpu/nn/pool_grad_loops.h"
#include "kernels/dispatch.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace spp_kernels {
namespace {

struct SppAttrs {
  int64_t levels = 1;
  bool max = false;
};

SppAttrs read_attrs(const KernelSetup& op) {
  return {op.attr<int64_t>("pyramid_height"), op.attr<std::string>("pooling_type") == "max"};
}

// Level l pools the image into 2^l x 2^l windows.
StatusOr<PoolPlan> plan_level(const Tensor& x, int64_t level, bool max) {
  const int64_t places = int64_t{1} << level;
  PoolAttrs attrs;
  attrs.max = max;
  attrs.window.paddings = {0, 0};
  for (size_t i = 0; i < 2; ++i) {
    const int64_t size = x.dim(static_cast<int64_t>(2 + i));
    const int64_t kernel = (size + places - 1) / places;
    attrs.kernel.push_back(kernel);
    attrs.window.strides.push_back(kernel);
    attrs.window.paddings[i] = (kernel * places - size + 1) / 2;
  }
  return plan_pool(attrs, x.dims(), {x.dim(0), x.dim(1), places, places});
}

StatusOr<std::vector<PoolPlan>> plan_levels(const Tensor& x, const Tensor& out,
                                            const SppAttrs& attrs) {
  if (x.rank() != 4) return KernelContext::error("X must hold images, found {}", describe(x));
  std::vector<PoolPlan> plans;
  int64_t width = 0;
  for (int64_t level = 0; level < attrs.levels; ++level) {
    MILLRACE_ASSIGN_OR_RETURN(PoolPlan plan, plan_level(x, level, attrs.max));
    width += plan.channels * plan.places();
    plans.push_back(std::move(plan));
  }
  if (out.dtype() != x.dtype() || out.numel() != x.dim(0) * width)
    return KernelContext::error("X {} and Out {} do not match", describe(x), describe(out));
  return plans;
}

// Calls body(plan, first element of a plane of x, first element of its results in out) for all
// planes of all levels.
template <typename Body>
void for_planes(const std::vector<PoolPlan>& plans, Body&& body) {
  const PoolPlan& first = plans.front();
  int64_t at = 0;
  for (int64_t n = 0; n < first.batch; ++n) {
    for (const PoolPlan& plan : plans) {
      for (int64_t c = 0; c < plan.channels; ++c, at += plan.places())
        body(plan, (n * plan.channels + c) * plan.size(), at);
    }
  }
}

StatusOr<Kernel> spp(const KernelSetup& op) {
  const ArgIndex x = op.input("X");
  const ArgIndex out = op.output("Out");
  return Kernel([=, attrs = read_attrs(op)](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const in, needed(ctx, x, "X"));
    Tensor& to = ctx.out(out);
    MILLRACE_ASSIGN_OR_RETURN(const std::vector<PoolPlan> plans, plan_levels(*in, to, attrs));
    return dispatch<FloatTypes>(in->dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      for_planes(plans, [&](const PoolPlan& plan, int64_t image, int64_t places) {
        if (attrs.max) {
          pool_plane<T, true>(plan, in->data<T>() + image, to.data<T>() + places);
        } else {
          pool_plane<T, false>(plan, in->data<T>() + image, to.data<T>() + places);
        }
      });
      return Ok();
    });
  });
}

StatusOr<Kernel> spp_grad(const KernelSetup& op) {
  const ArgIndex out = op.input("Out");
  const GradientArgs gradient(op);
  return Kernel([=, attrs = read_attrs(op)](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const GradientTensors g, gradient.like_x(ctx, StartsAs::kZeros));
    if (!g) return Ok();
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const y, needed(ctx, out, "Out"));
    MILLRACE_RETURN_IF_ERROR(check_alike(*y, "Out", *g.from, "Out@GRAD"));
    MILLRACE_ASSIGN_OR_RETURN(const std::vector<PoolPlan> plans, plan_levels(*g.x, *y, attrs));
    return dispatch<FloatTypes>(g.x->dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      for_planes(plans, [&](const PoolPlan& plan, int64_t image, int64_t places) {
        const PoolGrad<T> plane{g.x->data<T>() + image, y->data<T>() + places,
                                g.from->data<T>() + places, g.to->data<T>() + image};
        if (attrs.max) {
          pool_plane_grad<T, true>(plan, plane);
        } else {
          pool_plane_grad<T, false>(plan, plane);
        }
      });
      return Ok();
    });
  });
}

}  // namespace
}  // namespace spp_kernels

void add_nn_spp(KernelRegistry& registry) {
  using namespace spp_kernels;
  registry.add("spp", spp);
  registry.add("spp_grad", spp_grad);
}

}  // namespace millrace::kernels

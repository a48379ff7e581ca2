#include <string>

#include "kernels/cpu/gradient.h"
#include "kernels/cpu/needed.h"
#include "kernels/cpu/nn/window.h"
#include "kernels/dispatch.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace {

Status check_images(const Tensor& x, const Tensor& places, const Tensor& large) {
  if (x.rank() == 4 && large.rank() == 4 && places.dims() == x.dims() && large.dim(0) == x.dim(0) &&
      large.dim(1) == x.dim(1) && large.dtype() == x.dtype())
    return Ok();
  return KernelContext::error("X {}, Indices {} and Out {} do not match", describe(x),
                              describe(places), describe(large));
}

// Calls body(element of X, element of the large image) for all elements of X.
template <typename Body>
Status for_places(const Tensor& x, const Tensor& places, const Tensor& large, Body&& body) {
  const int64_t small_plane = x.dim(2) * x.dim(3);
  const int64_t plane = large.dim(2) * large.dim(3);
  return dispatch<IntTypes>(places.dtype(), [&](auto tag) -> Status {
    const auto* const at = places.data<typename decltype(tag)::type>();
    for (int64_t i = 0; i < x.numel(); ++i) {
      if (at[i] < 0 || at[i] >= plane) {
        return KernelContext::error("Indices has position {} in an image of {} elements", at[i],
                                    plane);
      }
      body(i, i / small_plane * plane + at[i]);
    }
    return Ok();
  });
}

Status refuse_channels_last(const KernelSetup& op) {
  if (!channels_last(op, "data_format")) return Ok();
  return {StatusCode::kUnimplemented, "unpool takes images of format NCHW only"};
}

StatusOr<Kernel> unpool(const KernelSetup& op) {
  MILLRACE_RETURN_IF_ERROR(refuse_channels_last(op));
  const ArgIndex x = op.input("X");
  const ArgIndex indices = op.input("Indices");
  const ArgIndex out = op.output("Out");
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const in, needed(ctx, x, "X"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const places, needed(ctx, indices, "Indices"));
    Tensor& large = ctx.out(out);
    MILLRACE_RETURN_IF_ERROR(check_images(*in, *places, large));
    fill_zero(large);
    return dispatch<FloatTypes>(in->dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      return for_places(*in, *places, large, [&](int64_t from, int64_t to) {
        large.data<T>()[to] = in->data<T>()[from];
      });
    });
  });
}

StatusOr<Kernel> unpool_grad(const KernelSetup& op) {
  MILLRACE_RETURN_IF_ERROR(refuse_channels_last(op));
  const ArgIndex indices = op.input("Indices");
  const GradientArgs gradient(op);
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const GradientTensors g, gradient.like_x(ctx, StartsAs::kUnset));
    if (!g) return Ok();
    const auto [in, dout, dx] = g;
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const places, needed(ctx, indices, "Indices"));
    MILLRACE_RETURN_IF_ERROR(check_images(*in, *places, *dout));
    return dispatch<FloatTypes>(in->dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      return for_places(*in, *places, *dout, [&](int64_t to, int64_t from) {
        dx->data<T>()[to] = dout->data<T>()[from];
      });
    });
  });
}

}  // namespace

void add_nn_unpool(KernelRegistry& registry) {
  registry.add("unpool", unpool);
  registry.add("unpool_grad", unpool_grad);
}

}  // namespace millrace::kernels

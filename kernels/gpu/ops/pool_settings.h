#pragma once

#include <utility>

#include "kernels/cpu/nn/pool_plan.h"
#include "kernels/gpu/ops/args.h"
#include "kernels/gpu/ops/channels_first.h"

namespace millrace::gpu {

/// Attributes of a pooling: kind, windows, strides, padding, and what a mean is divided by.
///
/// Its kernel sees images with the channels first, whatever data_format says, because
/// in_channels_first() transposes the others. So the plan of windows is made for that order.
///
/// \param op  pool2d, pool3d, one of the poolings with indices, or a gradient of these
inline kernels::PoolAttrs read_pool_settings(const kernels::KernelSetup& op) {
  kernels::PoolAttrs attrs = kernels::read_pool_attrs(op);
  attrs.channels_last = false;
  return attrs;
}

/// The kernel of a pooling without indices, in whatever order its images are.
/// \param make  make(attrs, x, out) returns a StatusOr of the functor that computes an element of
///              Out; its errors reject the call
template <typename Make>
Kernel forward_pool(const KernelSetup& op, Make make) {
  Kernel kernel([attrs = read_pool_settings(op), args = FloatArgs(op),
                 make = std::move(make)](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const FloatOperands found, args.find(ctx));
    MILLRACE_ASSIGN_OR_RETURN(const auto functor, make(attrs, *found.x, *found.out));
    return each(args.device, functor, found.out->numel());
  });
  return in_channels_first(op, kernels::read_pool_attrs(op).channels_last, {"X", "Out"},
                           std::move(kernel));
}

}  // namespace millrace::gpu

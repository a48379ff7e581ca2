#pragma once

#include "kernels/cpu/nn/pool_plan.h"
#include "kernels/kernel.h"

namespace millrace::gpu {

/// Attributes of a pooling whose kernel sees images with the channels first (in_channels_first()).
inline kernels::PoolAttrs read_pool_settings(const kernels::KernelSetup& op) {
  kernels::PoolAttrs attrs = kernels::read_pool_attrs(op);
  attrs.channels_last = false;
  return attrs;
}

}  // namespace millrace::gpu

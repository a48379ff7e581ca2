#pragma once

#include <memory>
#include <vector>

#include "kernels/gpu/device.h"

namespace millrace::gpu {

/// The interface that the module "gpu" exports (kernels/gpu/module.h).
/// Errors: as open_gpu().
StatusOr<std::shared_ptr<Device>> open_cuda_device(int ordinal, const DeviceOptions& options);
/// Errors: as list_gpus().
StatusOr<std::vector<DeviceInfo>> list_cuda_devices();

}  // namespace millrace::gpu

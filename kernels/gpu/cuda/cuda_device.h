#pragma once

#include <memory>
#include <vector>

#include "kernels/gpu/device.h"

namespace millrace::gpu {

/// The interface that the module "gpu" exports (kernels/gpu/module.h).
StatusOr<std::shared_ptr<Device>> open_cuda_device(int ordinal, const DeviceOptions& options);
StatusOr<std::vector<DeviceInfo>> list_cuda_devices();

}  // namespace millrace::gpu

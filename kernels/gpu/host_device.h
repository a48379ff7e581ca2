#pragma once

#include <memory>

#include "kernels/gpu/device.h"

namespace millrace::gpu {

/// A device for tests on machines without a GPU. Its memory consists of pages that only queued work
/// may access: a CPU kernel that reads a tensor in device memory causes a memory fault, which ends
/// the process. Fresh memory contains NaN. Work is executed immediately by the functors that CUDA
/// also compiles, in loops with teams of one thread. Plain functors replace libraries.
/// Opening it cannot fail; its functions have the errors of Device.
/// \param options  memory_limit is respected; tf32 and bf16 have no effect
std::shared_ptr<Device> open_host_device(const DeviceOptions& options = {});

}  // namespace millrace::gpu

#pragma once

#include <memory>

#include "kernels/gpu/device.h"

namespace millrace::gpu {

/// A device for tests on machines without a GPU: its memory is pages that only queued work may
/// touch, so that a kernel of the processor that reads a tensor in device memory ends the process
/// with a memory fault; fresh memory holds NaN. Work is done at once, by the functors that CUDA
/// compiles, in loops with teams of one thread, and libraries are stood in for by plain functors.
std::shared_ptr<Device> open_host_device(const DeviceOptions& options = {});

}  // namespace millrace::gpu

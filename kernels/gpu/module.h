#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernels/gpu/device.h"

namespace millrace::gpu {

/// Opens a GPU of this machine. CUDA stands in the module "gpu" (framework/base/module.h), which is
/// loaded now; it looks for the driver and the libraries itself.
/// \param ordinal  as the driver counts, from 0
/// Errors: kUnimplemented where this build has no CUDA, or the module, the driver or the GPU is
/// missing, saying which; kResource where the GPU is full.
StatusOr<std::shared_ptr<Device>> open_gpu(int ordinal, const DeviceOptions& options);

/// What open_gpu() would find, in its order. Errors: as open_gpu().
StatusOr<std::vector<DeviceInfo>> list_gpus();

/// Loads the library by which GPUs exchange values; "NCCL 2.28.9". It needs no GPU for that.
/// Errors: kUnimplemented where this build has no CUDA, or module or library are missing.
StatusOr<std::string> find_gpu_collectives();

/// What the module "gpu" does.
struct GpuModule {
  decltype(&open_gpu) open;
  decltype(&list_gpus) list;
  decltype(&find_gpu_collectives) find_collectives;
};

}  // namespace millrace::gpu

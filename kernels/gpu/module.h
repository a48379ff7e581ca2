#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernels/gpu/device.h"

namespace millrace::gpu {

/// Opens a GPU of this machine. Loads the module "gpu" (framework/base/module.h), which contains
/// the CUDA code and looks for the driver and the libraries.
/// \param ordinal  number of the GPU in the driver's order, from 0
/// Errors: kUnimplemented if this build has no CUDA, or the module, the driver or the GPU is
/// missing (the message says which); kResource if the GPU has no memory left.
StatusOr<std::shared_ptr<Device>> open_gpu(int ordinal, const DeviceOptions& options);

/// Properties of the GPUs that open_gpu() would find, in the same order. Errors: as open_gpu().
StatusOr<std::vector<DeviceInfo>> list_gpus();

/// Loads the library by which GPUs exchange values and returns its version, "NCCL 2.28.9". Does not
/// need a GPU. Errors: kUnimplemented if this build has no CUDA, or module or library are missing.
StatusOr<std::string> find_gpu_collectives();

/// The functions that the module "gpu" implements.
struct GpuModule {
  decltype(&open_gpu) open;
  decltype(&list_gpus) list;
  decltype(&find_gpu_collectives) find_collectives;
};

}  // namespace millrace::gpu

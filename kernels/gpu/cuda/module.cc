#include "framework/base/module.h"

#include "kernels/gpu/cuda/cuda_device.h"
#include "kernels/gpu/cuda/nccl.h"
#include "kernels/gpu/module.h"

namespace millrace::gpu {
namespace {

constexpr GpuModule kModule{&open_cuda_device, &list_cuda_devices, &find_nccl};

}  // namespace
}  // namespace millrace::gpu

extern "C" const char* millrace_module(const void** functions) {
  *functions = &millrace::gpu::kModule;
  return millrace::build_stamp();
}

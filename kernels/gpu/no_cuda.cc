#include "kernels/gpu/module.h"

namespace millrace::gpu {
namespace {

Status missing() {
  return {StatusCode::kUnimplemented, "no GPU can be used: this build has no CUDA"};
}

}  // namespace

StatusOr<std::shared_ptr<Device>> open_gpu(int /*ordinal*/, const DeviceOptions& /*options*/) {
  return missing();
}

StatusOr<std::vector<DeviceInfo>> list_gpus() {
  return missing();
}

StatusOr<std::string> find_gpu_collectives() {
  return missing();
}

}  // namespace millrace::gpu

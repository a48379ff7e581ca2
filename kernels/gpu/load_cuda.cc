#include "framework/base/module.h"
#include "kernels/gpu/module.h"

namespace millrace::gpu {
namespace {

// A request for a GPU that is not available asks for a feature that this installation lacks.
StatusOr<const GpuModule*> load() {
  StatusOr<const GpuModule*> module = load_functions<GpuModule>("gpu");
  if (module.ok()) return module;
  Status status(StatusCode::kUnimplemented, "no GPU can be used: " + module.status().message());
  return std::move(status)
      .in_file(module.status().location().file)
      .with_hint(module.status().hint());
}

}  // namespace

StatusOr<std::shared_ptr<Device>> open_gpu(int ordinal, const DeviceOptions& options) {
  MILLRACE_ASSIGN_OR_RETURN(const GpuModule* const module, load());
  return module->open(ordinal, options);
}

StatusOr<std::vector<DeviceInfo>> list_gpus() {
  MILLRACE_ASSIGN_OR_RETURN(const GpuModule* const module, load());
  return module->list();
}

StatusOr<std::string> find_gpu_collectives() {
  MILLRACE_ASSIGN_OR_RETURN(const GpuModule* const module, load());
  return module->find_collectives();
}

}  // namespace millrace::gpu

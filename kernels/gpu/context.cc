#include "kernels/gpu/context.h"

#include <utility>

#include "kernels/gpu/register_all.h"

namespace millrace::gpu {
namespace {

struct Attached {
  std::shared_ptr<Context> context;
};

}  // namespace

Context::Context(std::shared_ptr<Device> device)
    : memory_(std::make_shared<Memory>(std::move(device))), kernels_(standard_kernels()) {}

void attach(kernels::CpuDevice& device, std::shared_ptr<Context> context) {
  device.library<Attached>().context = std::move(context);
}

const std::shared_ptr<Context>& context_of(kernels::CpuDevice& device) {
  return device.library<Attached>().context;
}

}  // namespace millrace::gpu

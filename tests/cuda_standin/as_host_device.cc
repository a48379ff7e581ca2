#include "tests/cuda_standin/as_host_device.h"

#include <atomic>
#include <stdexcept>

#include "kernels/gpu/host_device.h"
#include "kernels/gpu/module.h"

namespace millrace::gpu {

std::shared_ptr<Device> open_next_gpu(const DeviceOptions& options) {
  constexpr int kDevices = 4;
  static std::atomic<int> opened{0};
  StatusOr<std::shared_ptr<Device>> device = open_gpu(opened++ % kDevices, options);
  if (!device.ok()) throw std::runtime_error(device.status().to_string());
  return *std::move(device);
}

}  // namespace millrace::gpu

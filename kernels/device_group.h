#pragma once

#include <span>

#include "framework/base/status.h"

namespace millrace::kernels {

/// The devices that run the same program side by side, as a kernel of one of them sees them.
class DeviceGroup {
 public:
  DeviceGroup() = default;
  DeviceGroup(const DeviceGroup&) = delete;
  DeviceGroup& operator=(const DeviceGroup&) = delete;
  virtual ~DeviceGroup() = default;

  /// Devices in the group, over all processes.
  [[nodiscard]] virtual int size() const = 0;
  /// Replaces values by their sum over all devices, which all call this with as many values, in the
  /// same order of calls. The sum does not depend on timing. Errors: kDistributed if another device
  /// has failed.
  virtual Status all_reduce(std::span<double> values) = 0;
};

/// What CpuDevice::library() keeps for kernels that work across devices; null on a device that
/// stands alone.
struct GroupOfDevice {
  DeviceGroup* group = nullptr;
};

}  // namespace millrace::kernels

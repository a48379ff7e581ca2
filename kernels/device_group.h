#pragma once

#include <span>

#include "framework/base/status.h"

namespace millrace::kernels {

/// The devices that run the same program in parallel, as seen by a kernel on one of them.
class DeviceGroup {
 public:
  DeviceGroup() = default;
  DeviceGroup(const DeviceGroup&) = delete;
  DeviceGroup& operator=(const DeviceGroup&) = delete;
  virtual ~DeviceGroup() = default;

  /// Number of devices in the group, over all processes.
  [[nodiscard]] virtual int size() const = 0;
  /// Replaces the values by their sum over all devices. All devices must call this with the same
  /// number of values and in the same order of calls. The sum does not depend on timing. Errors:
  /// kDistributed if another device has failed.
  virtual Status all_reduce(std::span<double> values) = 0;
};

/// What CpuDevice::library() stores for kernels that work across devices; null on a device that
/// belongs to no group.
struct GroupOfDevice {
  DeviceGroup* group = nullptr;
};

}  // namespace millrace::kernels

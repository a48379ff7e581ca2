#pragma once

#include <span>

#include "executor/parallel/device_links.h"
#include "executor/parallel/exchange_group.h"
#include "executor/parallel/shared_updates.h"
#include "kernels/device_group.h"
#include "kernels/registry.h"

namespace millrace::executor {

/// State of a device (CpuDevice::library()) for the ops that exchange values.
struct DeviceInGroup {
  ExchangeGroup* group = nullptr;  ///< sums over all devices
  SharedUpdates* updates = nullptr;
  DeviceLinks* links = nullptr;  ///< between the GPUs; null: values travel by host memory
  TrainerLink* ranks = nullptr;  ///< to the GPUs of other processes; null likewise
  int device = 0;                ///< number of this device, from 0
  int micro_batch = 0;           ///< of this step, from 0
  int micro_batches = 1;         ///< of this step
};

/// Sums for kernels of one device; uses one exchange of the group for all of them.
class KernelGroup final : public kernels::DeviceGroup {
 public:
  KernelGroup(ExchangeGroup& group, int device, int exchange)
      : group_(group), device_(device), exchange_(exchange) {}

  [[nodiscard]] int size() const override { return group_.ranks(); }
  Status all_reduce(std::span<double> values) override;

 private:
  ExchangeGroup& group_;
  int device_;
  int exchange_;
};

/// Adds exchange_begin, exchange_end, shared_updates_end and merge_gradient.
void add_exchange_kernels(kernels::KernelRegistry& registry);

}  // namespace millrace::executor

#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "executor/parallel/exchange_group.h"
#include "framework/base/status.h"
#include "kernels/update_group.h"

namespace millrace::executor {

/// Updates that the devices of one process compute together (transpiler/parallel/shared_updates.h).
///
/// When all devices have reached an update, their gradients are complete and no device reads the
/// parameter any more. Its elements are divided into chunks. Each device processes chunks of its
/// own share, then of the shares of others: it sums the gradients over devices 0, 1, 2, ... in this
/// order, updates its parameter and the states, which all devices share in memory, and writes the
/// new elements to the other parameters. So each gradient, state and parameter passes through
/// memory once, and results are bit-identical to summing and updating everything on every device.
///
/// A device continues while others process their last chunks; finish() waits for them. If the
/// devices' learning rates differ, each computes the whole update with its own states, in this run
/// and all later ones.
///
/// Thread-safety: one thread per device; reset() only while no device is in a run.
class SharedUpdates {
 public:
  /// \param group    used for waiting and for reporting failures; must outlive this
  /// \param updates  number of updates in the program
  SharedUpdates(ExchangeGroup& group, int updates);
  SharedUpdates(const SharedUpdates&) = delete;
  SharedUpdates& operator=(const SharedUpdates&) = delete;
  ~SharedUpdates();

  /// Drops the state of an earlier run.
  void reset();
  /// True if some update of this run has begun, so parameters may have changed.
  [[nodiscard]] bool begun() const { return begun_.load(std::memory_order_acquire); }
  /// Makes apply() return only when all devices are done, because an observer reads values between
  /// ops.
  void wait_each(bool each) { wait_each_ = each; }

  /// See the functions of the same names in kernels::UpdateGroup.
  Status meet(int device, kernels::CpuDevice& cpu, const kernels::SharedUpdate& own);
  Status apply(int device, kernels::CpuDevice& cpu, int number,
               kernels::UpdateGroup::Update update);
  /// Waits for the end of all updates in which the device took part.
  Status finish(int device);

 private:
  struct Slot;
  struct Share;

  Status prepare(Slot& slot, kernels::CpuDevice& cpu);
  static Status check_alike(const Slot& slot);
  static Status share_states(Slot& slot, kernels::CpuDevice& cpu);
  static Status separate_states(Slot& slot);
  void update_chunk(const Slot& slot, size_t device, int64_t chunk,
                    kernels::UpdateGroup::Update update);
  void take_chunks(Slot& slot, size_t device, kernels::UpdateGroup::Update update);
  void count_done(Slot& slot);
  Status wait_done(int device, Slot& slot);
  [[nodiscard]] Status waited_too_long(int device, const Slot& slot) const;

  ExchangeGroup& group_;
  std::vector<std::unique_ptr<Slot>> slots_;
  std::vector<std::vector<int>> open_;  ///< by device: updates since the last finish()
  std::atomic<bool> begun_{false};
  bool wait_each_ = false;
};

/// The interface of the updates for the kernels of one device.
class KernelUpdates final : public kernels::UpdateGroup {
 public:
  KernelUpdates(SharedUpdates& updates, int device) : updates_(updates), device_(device) {}

  Status meet(kernels::CpuDevice& cpu, const kernels::SharedUpdate& own) override {
    return updates_.meet(device_, cpu, own);
  }
  Status apply(kernels::CpuDevice& cpu, int number, Update update) override {
    return updates_.apply(device_, cpu, number, update);
  }

 private:
  SharedUpdates& updates_;
  int device_;
};

}  // namespace millrace::executor

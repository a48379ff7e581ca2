#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "executor/parallel/exchange_group.h"
#include "framework/base/status.h"
#include "kernels/update_group.h"

namespace millrace::executor {

/// Updates that the devices of one process make together (transpiler/parallel/shared_updates.h).
///
/// When all devices have come to an update, their gradients are complete and nobody reads the
/// parameter. Its elements are cut into chunks; each device takes chunks of its own share, then of
/// the others': sums the gradients over devices 0, 1, 2, ... in this order, updates its parameter
/// and the states, which are one piece of memory for all devices, and writes the new elements to
/// the other parameters. So each gradient, state and parameter passes through memory once, and
/// results are the same bits as if every device had summed and updated everything.
///
/// A device goes on while others are at their last chunks; finish() waits for them. Where the
/// devices' learning rates differ, each makes the whole update with states of its own, in this run
/// and all later ones.
///
/// Thread-safety: one thread a device; reset() while none is in a run.
class SharedUpdates {
 public:
  /// \param group    whose waits and failures are theirs; must outlive this
  /// \param updates  how many the program has
  SharedUpdates(ExchangeGroup& group, int updates);
  SharedUpdates(const SharedUpdates&) = delete;
  SharedUpdates& operator=(const SharedUpdates&) = delete;
  ~SharedUpdates();

  /// Forgets what an earlier run has left.
  void reset();
  /// True if some update of this run has begun, so parameters may have changed.
  [[nodiscard]] bool begun() const { return begun_.load(std::memory_order_acquire); }
  /// Whether apply() returns only when all devices are done: somebody looks at values in between.
  void wait_each(bool each) { wait_each_ = each; }

  /// What kernels::UpdateGroup says of the functions of these names.
  Status meet(int device, kernels::CpuDevice& cpu, const kernels::SharedUpdate& own);
  Status apply(int device, kernels::CpuDevice& cpu, int number,
               kernels::UpdateGroup::Update update);
  /// Waits for the end of all updates that the device has made its share of.
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

/// The updates as the kernels of one device see them.
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

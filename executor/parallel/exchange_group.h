#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include <llvm/ADT/STLFunctionalExtras.h>

#include "executor/collective/trainer_link.h"
#include "framework/base/status.h"
#include "framework/tensor/value.h"
#include "framework/types.h"

namespace millrace::executor {

/// What an exchange does with the parts that devices contribute.
enum class ExchangeKind {
  kAllReduce,   ///< every device gets the sum
  kReduce,      ///< the root gets the sum, the parts of the others do not change
  kBroadcast,   ///< every device gets the part of the root
  kGatherRows,  ///< every device (or the root) gets the selected rows of all, in device order
};

/// One exchange of a program.
struct ExchangeSpec {
  ExchangeKind kind = ExchangeKind::kAllReduce;
  int root = -1;            ///< device; -1: all
  int ring = 0;             ///< communicator between processes
  bool on_devices = false;  ///< the devices move the values themselves: end_on_device()
};

/// Memory of one tensor that takes part.
struct ExchangePart {
  std::byte* data = nullptr;
  int64_t count = 0;  ///< elements
  /// If set, it determines the two above. If the tensors of all devices have the same element
  /// order, they are summed in that order; otherwise they are converted to row-major order.
  Tensor* tensor = nullptr;
};

/// Options of an ExchangeGroup.
struct ExchangeOptions {
  int devices = 1;
  int exchanges = 0;                ///< number of slots; exchanges are identified by their number
  int runners = 0;                  ///< devices that may compute at once; 0: all
  int64_t timeout_ms = 600'000;     ///< of one wait
  TrainerLink* trainers = nullptr;  ///< the other processes; null: there are none
};

/// Exchanges between the devices of one process, each of which has its own thread.
///
/// A device contributes its part with begin() and continues; end() returns when the device's result
/// is complete. The parts are divided into chunks. Once all devices have arrived, each processes
/// chunks of its own share, then of the shares of others, in its next begin() or end(). So no
/// device waits for one that still computes if there is work left, and nothing is copied. Every
/// element is summed over devices 0, 1, 2, ... in this order, whichever device does it, so sums do
/// not depend on timing.
///
/// All devices call begin and end in the same order. Thread-safety: one thread per device; reset()
/// only while no device is in a run. Source: spec/parallel_executor.md sections 4.3 to 4.5.
class ExchangeGroup {
 public:
  explicit ExchangeGroup(const ExchangeOptions& options);
  ExchangeGroup(const ExchangeGroup&) = delete;
  ExchangeGroup& operator=(const ExchangeGroup&) = delete;
  ~ExchangeGroup();

  [[nodiscard]] int devices() const { return options_.devices; }
  /// Number of devices of all processes.
  [[nodiscard]] int ranks() const;
  [[nodiscard]] bool has_trainers() const { return options_.trainers != nullptr; }

  /// Drops the state of an earlier run.
  void reset();
  /// Ends all waits of this run with an error.
  void fail();
  [[nodiscard]] bool failed() const { return failed_.load(std::memory_order_acquire); }

  /// Called when a device starts and stops computing; enter() blocks while `runners` others
  /// compute.
  void enter();
  void leave();

  /// Waits until done() is true, spinning for a short time first; wake() makes it check done().
  /// Errors: that of late() if it takes too long; after fail() the reported error, or kDistributed.
  Status wait_until(llvm::function_ref<bool()> done, llvm::function_ref<Status()> late);
  /// To be called after a change that another device may wait for.
  void wake();
  /// Ends all waits with this error. Keeps the first one.
  void report(Status status);
  /// Processes chunks of exchanges that the device has begun.
  void help_pending(int device);
  [[nodiscard]] int64_t timeout_ms() const { return options_.timeout_ms; }

  /// Contributes parts. Other devices do not access them until all devices have arrived.
  /// Errors: kDistributed after fail().
  Status begin(int device, int exchange, const ExchangeSpec& spec, DType dtype,
               std::span<const ExchangePart> parts);
  Status begin_rows(int device, int exchange, const ExchangeSpec& spec, const SelectedRows& rows);

  /// Waits for the end of an exchange that the device has begun; after that no device accesses the
  /// parts. Errors: kExecution if the devices' parts do not match; kDistributed after fail() or for
  /// a wait that takes too long; those of the link.
  Status end(int device, int exchange);
  /// The same for an exchange that the devices do by themselves, such as by NCCL. When all devices
  /// have arrived and their parts match, calls start(), and finish() when start() has succeeded on
  /// all. So a device that fails before or in start() leaves none waiting in finish().
  Status end_on_device(int device, int exchange, llvm::function_ref<Status()> start,
                       llvm::function_ref<Status()> finish);
  /// As end(); rows must be those passed to begin_rows() and receives the result.
  Status end_rows(int device, int exchange, SelectedRows& rows);

 private:
  using Clock = std::chrono::steady_clock;
  struct Slot;
  struct Share;
  struct Waiter;

  Status arrive(Slot& slot, int device);
  Status prepare(Slot& slot);
  Status find_memory(Slot& slot) const;
  bool help(Slot& slot, int device);
  Status wait_for_all(Slot& slot, int device);
  Status leave_together(Slot& slot, int device);
  Status combine(Slot& slot, int64_t chunk);
  Status finish_with_trainers(Slot& slot, int device);
  Status sum_over_trainers(Slot& slot, const std::vector<ExchangePart>& parts);
  Status join_over_trainers(Slot& slot, int device, bool gets, SelectedRows& all);
  Status wait(int device, const Slot& slot, llvm::function_ref<bool()> done);
  Status waited_too_long(int device, const Slot& slot) const;

  const ExchangeOptions options_;
  std::vector<std::unique_ptr<Slot>> slots_;
  std::vector<std::vector<int>> pending_;  ///< by device: exchanges that it has begun but not ended
  std::atomic<bool> failed_{false};
  std::atomic<int> sleepers_{0};
  int spins_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::byte> joined_;  ///< parts of an exchange, concatenated; used by device 0
  Status error_;                   ///< of a combination; guarded by mutex_
  int running_ = 0;                ///< guarded by mutex_
};

}  // namespace millrace::executor

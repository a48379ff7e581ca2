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

#include "executor/parallel/trainer_link.h"
#include "framework/base/status.h"
#include "framework/tensor/value.h"
#include "framework/types.h"

namespace millrace::executor {

/// What becomes of the parts that devices bring into an exchange.
enum class ExchangeKind {
  kAllReduce,   ///< every device gets the sum
  kReduce,      ///< the root gets the sum, the others keep their parts
  kBroadcast,   ///< every device gets the part of the root
  kGatherRows,  ///< every device (or the root) gets the selected rows of all, in device order
};

/// One exchange of a program.
struct ExchangeSpec {
  ExchangeKind kind = ExchangeKind::kAllReduce;
  int root = -1;  ///< device; -1: all
  int ring = 0;   ///< communicator between processes
};

/// Memory of one tensor that takes part.
struct ExchangePart {
  std::byte* data = nullptr;
  int64_t count = 0;  ///< elements
  /// If set, says the two above. Tensors of the devices that come in one order of elements are
  /// summed in it; others are brought into row-major order.
  Tensor* tensor = nullptr;
};

/// How devices wait for each other.
struct ExchangeOptions {
  int devices = 1;
  int exchanges = 0;                ///< slots; an exchange is named by its number
  int runners = 0;                  ///< devices that may compute at once; 0: all
  int64_t timeout_ms = 600'000;     ///< of one wait
  TrainerLink* trainers = nullptr;  ///< the other processes; null: there are none
};

/// Exchanges between the devices of one process, each of which has a thread of its own.
///
/// A device offers its part with begin() and goes on; end() returns when it has what it gets. The
/// parts are cut into chunks. Once all devices have come, each takes chunks of its own share, then
/// of the others', at its next begin() or end(): so devices never wait for one that still computes
/// if there is work left, and nothing is copied. Every element is summed over devices 0, 1, 2, ...
/// in this order, whoever does it, so sums do not depend on timing.
///
/// All devices make the same begins and ends in the same order. Thread-safety: one thread a device;
/// reset() while none is in a run. Source: spec/parallel_executor.md sections 4.3 to 4.5.
class ExchangeGroup {
 public:
  explicit ExchangeGroup(const ExchangeOptions& options);
  ExchangeGroup(const ExchangeGroup&) = delete;
  ExchangeGroup& operator=(const ExchangeGroup&) = delete;
  ~ExchangeGroup();

  [[nodiscard]] int devices() const { return options_.devices; }
  /// Devices of all processes.
  [[nodiscard]] int ranks() const;
  [[nodiscard]] bool has_trainers() const { return options_.trainers != nullptr; }

  /// Forgets what an earlier run has left.
  void reset();
  /// Ends all waits, of this run, with an error.
  void fail();
  [[nodiscard]] bool failed() const { return failed_.load(std::memory_order_acquire); }

  /// A device starts and stops computing: blocks while `runners` others do.
  void enter();
  void leave();

  /// Waits until done(), which wake() makes it look at; a moment without sleeping. Errors: that of
  /// late() where it takes too long; after fail() what has failed, or kDistributed.
  Status wait_until(llvm::function_ref<bool()> done, llvm::function_ref<Status()> late);
  /// To be called after a change that another device may wait for.
  void wake();
  /// Ends all waits with this error. Keeps the first one.
  void report(Status status);
  /// Works on exchanges that the device has begun.
  void help_pending(int device);
  [[nodiscard]] int64_t timeout_ms() const { return options_.timeout_ms; }

  /// Offers parts, which stay untouched by others until all devices have come.
  /// Errors: kDistributed after fail().
  Status begin(int device, int exchange, const ExchangeSpec& spec, DType dtype,
               std::span<const ExchangePart> parts);
  Status begin_rows(int device, int exchange, const ExchangeSpec& spec, const SelectedRows& rows);

  /// Waits for the end of an exchange that the device has begun; from then on nobody touches the
  /// parts. Errors: kExecution where the devices' parts do not fit; kDistributed after fail(), for
  /// a wait that takes too long, and those of the link.
  Status end(int device, int exchange);
  /// The same; rows, which begin_rows() was given, becomes what the device gets.
  Status end_rows(int device, int exchange, SelectedRows& rows);

 private:
  using Clock = std::chrono::steady_clock;
  struct Slot;
  struct Share;
  struct Waiter;

  Status come(Slot& slot, int device);
  Status prepare(Slot& slot);
  Status find_memory(Slot& slot) const;
  bool help(Slot& slot, int device);
  Status combine(Slot& slot, int64_t chunk);
  Status finish_with_trainers(Slot& slot, int device);
  Status sum_over_trainers(Slot& slot, const std::vector<ExchangePart>& parts);
  Status join_over_trainers(Slot& slot, int device, bool gets, SelectedRows& all);
  Status wait(int device, const Slot& slot, llvm::function_ref<bool()> done);
  Status waited_too_long(int device, const Slot& slot) const;

  const ExchangeOptions options_;
  std::vector<std::unique_ptr<Slot>> slots_;
  std::vector<std::vector<int>> pending_;  ///< by device: exchanges that it has begun, not ended
  std::atomic<bool> failed_{false};
  std::atomic<int> sleepers_{0};
  int spins_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::byte> joined_;  ///< parts of an exchange one after the other; of device 0
  Status error_;                   ///< of a combination; guarded by mutex_
  int running_ = 0;                ///< guarded by mutex_
};

}  // namespace millrace::executor

#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "framework/base/status.h"
#include "framework/tensor/value.h"
#include "io/checkpoint/state.h"

namespace millrace::io {

/// Saves in the background while training goes on: the values are copied, then a thread writes the
/// copies. What is saved is what they were at the call of start().
///
/// Memory: one copy of the state, and the largest tensor once more where tensors are not row-major;
/// the buffers stay for the next save until release() or the end.
/// One save at a time. Not thread-safe, apart from the thread that it runs.
class AsyncSaver {
 public:
  /// What start() does while an earlier save still runs.
  enum class IfBusy { kWait, kFail };
  /// Called on the thread with the copies, for example save_checkpoint().
  using Save = std::function<Status(const LocalState& state)>;

  AsyncSaver() = default;
  AsyncSaver(const AsyncSaver&) = delete;
  AsyncSaver& operator=(const AsyncSaver&) = delete;
  /// Waits for the save that runs.
  ~AsyncSaver();

  /// Takes memory for the copies and touches it, in the background, so that the first save need not
  /// wait for it. Errors: that of an earlier save; kResource.
  Status reserve(const LocalState& state);

  /// Copies the state and returns; the caller may then change its values.
  /// Errors: that of an earlier save that nobody has asked for yet (then nothing is started);
  /// kResource where there is no memory for the copies, or where a save runs and kFail was asked
  /// for; kInvalidArgument for a var without value.
  Status start(const LocalState& state, Save save, IfBusy if_busy = IfBusy::kWait);

  /// The same, but dense tensors are copied by the thread, too. Until copying() is false the caller
  /// says before_change() before it changes such a value or its layout, which makes the copy of
  /// that one if nobody has begun it, else waits for it; values may be read meanwhile. Small values
  /// come first. Errors: as start(); where a copy fails, that of the save.
  Status start_lazily(const LocalState& state, Save save, IfBusy if_busy = IfBusy::kWait);
  /// True while there are values that must not be changed without before_change(). Any thread.
  [[nodiscard]] bool copying() const { return copying_.load(std::memory_order_acquire); }
  /// Returns when the copy of a value is made; at once for others. Any thread.
  void before_change(const Value* value);

  /// True while a save runs.
  [[nodiscard]] bool busy() const;
  /// Waits for the save that runs. \returns its outcome, once; ok if there is none
  Status wait();
  /// Gives up the memory of the copies; waits for the save that runs.
  void release();

 private:
  /// A copy that is made while the caller goes on.
  struct Pending {
    const Value* from = nullptr;
    Value* to = nullptr;
    int64_t bytes = 0;
  };
  /// How far a pending copy is.
  enum class Stage : uint8_t { kOpen, kTaken, kDone };

  Status prepare(const LocalState& state, IfBusy if_busy, bool lazily);
  Status copy(const LocalState& state, bool lazily);
  void order_pending();
  bool take_pending(size_t index);
  void copy_pending(size_t index);
  void wait_for_pending(size_t index);
  Status copy_all_pending();
  Status make_copies_plain();
  void run(Save save);

  mutable std::mutex mutex_;
  bool running_ = false;
  Status outcome_;
  std::map<std::string, Value> values_;
  std::map<std::string, std::string> records_;
  LocalState state_;
  Tensor spare_;                                     ///< what was brought into another order
  std::vector<Pending> pending_;                     ///< the smallest first
  std::unique_ptr<std::atomic<Stage>[]> stages_;     ///< of pending_
  std::unordered_map<const Value*, size_t> places_;  ///< in pending_
  std::atomic<bool> copying_ = false;
  Status copy_failure_;  ///< guarded by mutex_
  std::condition_variable progress_;
  std::thread thread_;
};

}  // namespace millrace::io

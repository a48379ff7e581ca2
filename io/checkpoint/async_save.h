#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
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
/// Memory: one copy of the state, whose buffers stay for the next save until release() or the end.
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

  /// Copies the state and returns; the caller may then change its values.
  /// Errors: that of an earlier save that nobody has asked for yet (then nothing is started);
  /// kResource where there is no memory for the copies, or where a save runs and kFail was asked
  /// for; kInvalidArgument for a var without value.
  Status start(const LocalState& state, Save save, IfBusy if_busy = IfBusy::kWait);

  /// The same, but dense tensors are copied by the thread, too. Until copying() is false the caller
  /// says before_change() before it changes such a value or its layout, which waits for the copy of
  /// that one; values may be read meanwhile. Small values come first. Errors: as start(); where a
  /// copy fails, that of the save.
  Status start_lazily(const LocalState& state, Save save, IfBusy if_busy = IfBusy::kWait);
  /// True while there are values that must not be changed without before_change(). Any thread.
  [[nodiscard]] bool copying() const { return copying_.load(std::memory_order_acquire); }
  /// Waits until the copy of a value is made; returns at once for others. Any thread.
  void before_change(const Value* value);

  /// True while a save runs.
  [[nodiscard]] bool busy() const;
  /// Waits for the save that runs. \returns its outcome, once; ok if there is none
  Status wait();
  /// Gives up the memory of the copies; waits for the save that runs.
  void release();

 private:
  Status prepare(const LocalState& state, IfBusy if_busy, bool lazily);
  Status copy(const LocalState& state, bool lazily);
  Status copy_pending();
  void run(Save save);

  mutable std::mutex mutex_;
  bool running_ = false;
  Status outcome_;
  std::map<std::string, Value> values_;
  std::map<std::string, std::string> records_;
  LocalState state_;
  /// A copy that the thread makes.
  struct Pending {
    const Value* from = nullptr;
    Value* to = nullptr;
    int64_t bytes = 0;
  };
  std::vector<Pending> pending_;                     ///< the smallest first
  std::unordered_map<const Value*, size_t> places_;  ///< in pending_
  std::atomic<bool> copying_ = false;
  size_t copied_ = 0;  ///< of pending_; guarded by mutex_
  std::condition_variable progress_;
  std::thread thread_;
};

}  // namespace millrace::io

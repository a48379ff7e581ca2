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

/// Saves in the background while training continues: the values are copied, then a thread writes
/// the copies. The saved values are those at the time of the call of start().
///
/// Memory: one copy of the state, plus once more the size of the largest tensor if tensors are not
/// row-major. The buffers are kept for the next save until release() or destruction.
/// One save at a time. Not thread-safe, apart from the thread that it starts.
class AsyncSaver {
 public:
  /// What start() does if an earlier save is still running.
  enum class IfBusy { kWait, kFail };
  /// Called with the copies on the background thread; for example save_checkpoint().
  using Save = std::function<Status(const LocalState& state)>;

  AsyncSaver() = default;
  AsyncSaver(const AsyncSaver&) = delete;
  AsyncSaver& operator=(const AsyncSaver&) = delete;
  /// Waits for the running save.
  ~AsyncSaver();

  /// Allocates memory for the copies and touches it, in the background, so that the first save does
  /// not have to. Errors: that of an earlier save; kResource.
  Status reserve(const LocalState& state);

  /// Copies the state and returns. The caller may then change its values.
  /// Errors: that of an earlier save whose error was not reported yet (then nothing is started);
  /// kResource if there is no memory for the copies or no thread, or if a save is running and
  /// if_busy is kFail; kInvalidArgument for a var without value.
  Status start(const LocalState& state, Save save, IfBusy if_busy = IfBusy::kWait);

  /// As start(), but the background thread also copies the dense tensors. While copying() is true,
  /// the caller must call before_change() before it changes such a value or its layout. That call
  /// makes the copy if it has not begun, else waits for it. Reading the values is always allowed.
  /// Small values are copied first. Errors: as start(); an error of a copy is reported as the
  /// outcome of the save.
  Status start_lazily(const LocalState& state, Save save, IfBusy if_busy = IfBusy::kWait);
  /// True while there are values that must not be changed without before_change(). May be called
  /// from any thread.
  [[nodiscard]] bool copying() const { return copying_.load(std::memory_order_acquire); }
  /// Returns when the copy of a value is complete; immediately for other values. May be called from
  /// any thread.
  void before_change(const Value* value);

  /// True while a save is running.
  [[nodiscard]] bool busy() const;
  /// Waits for the running save. \returns its outcome, once; ok if there is none
  Status wait();
  /// Frees the memory of the copies, after waiting for the running save.
  void release();

 private:
  /// A copy that is made while the caller continues.
  struct Pending {
    const Value* from = nullptr;
    Value* to = nullptr;
    int64_t bytes = 0;
  };
  /// Progress of a pending copy.
  enum class Stage : uint8_t { kOpen, kTaken, kDone };

  Status prepare(const LocalState& state, IfBusy if_busy, bool lazily);
  Status copy(const LocalState& state, bool lazily);
  void order_pending();
  bool take_pending(size_t index);
  void copy_pending(size_t index);
  void wait_for_pending(size_t index);
  Status copy_all_pending();
  Status make_copies_plain();
  Status run(Save save);

  mutable std::mutex mutex_;
  bool running_ = false;
  Status outcome_;
  std::map<std::string, Value> values_;
  std::map<std::string, std::string> records_;
  LocalState state_;
  Tensor spare_;                                     ///< memory for conversions to row-major order
  std::vector<Pending> pending_;                     ///< smallest first
  std::unique_ptr<std::atomic<Stage>[]> stages_;     ///< stage of each entry of pending_
  std::unordered_map<const Value*, size_t> places_;  ///< index in pending_
  std::atomic<bool> copying_ = false;
  Status copy_failure_;  ///< guarded by mutex_
  std::condition_variable progress_;
  std::thread thread_;
};

}  // namespace millrace::io

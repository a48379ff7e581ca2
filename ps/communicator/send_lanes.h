#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "framework/base/pause_watch.h"
#include "framework/base/status.h"
#include "framework/tensor/value.h"
#include "ps/communicator/comm_context.h"
#include "ps/transport/transport.h"

namespace millrace::ps {

/// How lanes collect values into messages.
struct LaneOptions {
  int merge = 1;     ///< maximum number of batches in one message
  int queue = 1;     ///< batches that may wait, besides those being collected or sent
  int wait_ms = 50;  ///< a message that is not full is sent after this time without a new value
  int threads = 1;   ///< threads that merge and send
  int deadline_ms = 1000;  ///< longest wait for a place in a queue
  bool on_demand = false;  ///< nothing is sent before flush()
  /// False: rows may repeat in the values that are sent; the receiver adds them up.
  bool adds_up_rows = true;
  /// Small values that are ready wait at most this long for the values that were sent with them
  /// last time.
  std::chrono::microseconds patience{1000};
};

/// Outgoing values: a bounded queue per var, one lane per context, and some threads that empty
/// them. Messages of one lane are sent one after the other, in order. Small values that are ready
/// are sent together in one load, one load at a time, so that many small vars do not cost as many
/// calls. A load waits a moment for the values that were in the previous load.
///
/// Thread-safety: push() and flush() from any thread; start() and stop() from one thread.
class SendLanes {
 public:
  /// A merged message of a lane.
  struct Message {
    size_t lane = 0;
    std::span<Value> values;  ///< one for each var of the context
    int merged = 0;           ///< number of batches in the values
  };
  /// Sends messages, and does whatever must happen before the next messages of their lanes.
  using Send = std::function<Status(std::span<const Message> messages)>;

  /// \param contexts  one per lane; must outlive the lanes
  SendLanes(std::vector<const CommContext*> contexts, LaneOptions options, Send send);
  SendLanes(const SendLanes&) = delete;
  SendLanes& operator=(const SendLanes&) = delete;
  /// As stop(false).
  ~SendLanes();

  void start();
  /// \param flush  first send what waits, until the deadline; else drop it
  /// Errors: the first failure; kDistributed for values not sent by the deadline; kInvalidArgument
  /// for values without the matching values of the context's other vars.
  Status stop(bool flush, Deadline deadline);

  /// Queues a value of var `var` of a lane: a copy of *from, or *owned itself if that is not null.
  /// Waits while the queue is full.
  /// Errors: the first failure of any lane; kDistributed if the queue stays full; those of
  /// copy_value().
  Status push(size_t lane, size_t var, const Value* from, Value* owned);
  /// Sends everything that waits, at most `merge` batches per message, and waits until all is sent.
  /// Errors: as stop().
  Status flush(int merge, Deadline deadline);

  /// Records an error as the first failure, unless there is one already.
  void fail(Status status);
  /// The first failure.
  [[nodiscard]] Status error() const;
  /// Number of messages that were sent, and of the batches in them.
  [[nodiscard]] int64_t messages() const;
  [[nodiscard]] int64_t batches() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Queue {
    std::deque<Value> waiting;
    std::vector<Value> spare;  ///< memory of values that were sent
    size_t reserved = 0;       ///< reserved for values that are being copied
  };
  struct Lane {
    const CommContext* context = nullptr;
    std::vector<std::string> names;
    std::vector<Queue> queues;  ///< one per var
    Clock::time_point last_arrival;
    Clock::time_point listed_at;
    bool sending = false;
    bool listed = false;    ///< in ready_
    bool light = false;     ///< listed with small values
    bool expected = false;  ///< was in the last load of small values
    bool awaited = false;   ///< a caller waits for space in a queue
  };
  /// Batches that a thread has removed from a lane to send them.
  struct Taken {
    size_t lane = 0;
    size_t count = 0;                         ///< batches
    std::vector<std::vector<Value>> batches;  ///< by var
    std::vector<Value> merged;
  };

  void work();
  bool next(std::unique_lock<std::mutex>& lock, size_t& lane);
  void list_overdue(Clock::time_point& wake);
  std::deque<size_t>::iterator find_leaving(Clock::time_point& wake);
  [[nodiscard]] bool light_may_leave(Clock::time_point& wake) const;
  bool pop_ready(size_t& lane, Clock::time_point& wake);
  void list(Lane& lane);
  void list_if_ready(Lane& lane);
  [[nodiscard]] bool is_light(const Lane& lane) const;
  void run(std::unique_lock<std::mutex>& lock, size_t index);
  void take(size_t index, std::vector<Taken>& taken);
  void give_back(Taken& taken);
  [[nodiscard]] Status send_batches(std::vector<Taken>& taken);
  Status wait_for_place(std::unique_lock<std::mutex>& lock, Lane& lane, const Queue& queue,
                        size_t var);
  Status wait_until_empty(std::unique_lock<std::mutex>& lock, Deadline deadline);
  [[nodiscard]] Status leftover() const;
  [[nodiscard]] size_t complete(const Lane& lane) const;
  [[nodiscard]] size_t merge_limit() const;
  void drop_all();
  void fail_locked(Status status);

  const LaneOptions options_;
  const Send send_;
  const PauseWatch pauses_;  ///< deadlines do not pass while this process is paused
  mutable std::mutex mutex_;
  std::condition_variable work_;   ///< something may be ready
  std::condition_variable space_;  ///< something was sent, or failed
  std::vector<Lane> lanes_;
  std::deque<size_t> ready_;
  std::vector<std::thread> threads_;
  Clock::time_point next_wake_ = Clock::time_point::max();
  Status error_;
  size_t flush_merge_ = 0;        ///< nonzero while flush() or stop() waits
  bool light_under_way_ = false;  ///< a load of small values is being sent; other small values wait
  bool stopping_ = false;
  bool abandon_ = false;
  int64_t messages_ = 0;
  int64_t batches_ = 0;
};

}  // namespace millrace::ps

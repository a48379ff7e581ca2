#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>

#include "framework/base/pause_watch.h"
#include "framework/base/status.h"
#include "ps/protocol/kinds.h"
#include "ps/transport/transport.h"

namespace millrace::ps {

/// Barriers where the trainers of a job wait for each other (BarrierTable).
///
/// Barriers of different kinds are independent. Each counts its
/// phases, so that arrivals of different steps cannot mix and a repeated arrival counts once.
/// Thread-safety: all calls from any threads.
class BarrierTable {
 public:
  /// Called by the last arrival of a phase, before any trainer continues, with the trainers that
  /// arrived. Its error is returned to all of them.
  using Completed = std::function<Status(CommBarrier kind, const std::set<int>& arrived)>;
  /// \param completed  may be empty
  BarrierTable(int trainers, Completed completed);
  BarrierTable(const BarrierTable&) = delete;
  BarrierTable& operator=(const BarrierTable&) = delete;

  /// Arrives at phase `phase` (from 1) of a kind and waits until all live trainers have arrived.
  /// Returns immediately if the phase is over: the call is a repeat.
  /// Errors: kDistributed at the deadline, naming the missing trainers; kInvalidArgument for an
  /// unknown trainer, or for a phase that is not the next; kDistributed if the trainer leaves while
  /// it waits. The deadline does not pass while this process is paused.
  Status arrive(CommBarrier kind, int trainer, int64_t phase, Deadline deadline);
  /// A trainer leaves; barriers no longer wait for it.
  Status leave(int trainer);
  /// Another process replaces a trainer that left. Its phases are counted from the current phases
  /// on. Errors: kInvalidArgument for an unknown trainer.
  Status join(int trainer);
  /// Another process has served the earlier phases: a trainer that arrives at a later phase than
  /// the current one shows that all have passed those before it.
  void resume();
  /// Ends all barriers: waiting and later calls return this error.
  void end(Status why);
  [[nodiscard]] int live() const;

 private:
  struct Barrier {
    int64_t phase = 1;  ///< current phase
    std::set<int> arrived;
    Status result;                 ///< of the previous phase
    std::map<int, int64_t> ahead;  ///< by trainer that joined: phases before its first one
  };
  void finish_if_complete(CommBarrier kind, Barrier& barrier);
  void go_on_to(Barrier& barrier, int64_t phase);
  [[nodiscard]] std::string missing(const Barrier& barrier) const;

  const Completed completed_;
  PauseWatch pauses_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  const int trainers_;
  std::set<int> live_;
  std::set<int> joined_;
  std::map<int, int64_t> left_;  ///< by trainer: how often it has left
  std::map<CommBarrier, Barrier> barriers_;
  bool resumed_ = false;
  Status ended_;  ///< not OK: barriers have ended
};

}  // namespace millrace::ps

#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <string_view>

#include "framework/base/status.h"
#include "ps/transport/transport.h"

namespace millrace::ps {

/// Where the trainers of a job wait for each other (BarrierTable).
///
/// Barriers of different kinds ("send", "receive", "init", ...) are apart, and each counts its
/// phases, so that arrivals of different steps cannot mix and a repeated arrival is one.
/// Thread-safety: all calls from any threads.
class BarrierTable {
 public:
  /// Called by the last arrival of a phase, before anybody goes on, with who has arrived; its error
  /// is everybody's.
  using Completed = std::function<Status(std::string_view kind, const std::set<int>& arrived)>;
  /// \param completed  may be empty
  BarrierTable(int trainers, Completed completed);
  BarrierTable(const BarrierTable&) = delete;
  BarrierTable& operator=(const BarrierTable&) = delete;

  /// Arrives at phase `phase` (from 1) of a kind and waits until all live trainers have. Returns at
  /// once for a phase that is over: the call is a repeat.
  /// Errors: kDistributed at the deadline, naming the trainers that are missing; kInvalidArgument
  /// for an unknown trainer, or a phase that cannot come next.
  Status arrive(std::string_view kind, int trainer, int64_t phase, Deadline deadline);
  /// A trainer leaves; nobody waits for it any more.
  Status leave(int trainer);
  /// Another process takes the place of a trainer that left, from the phases under way on, which
  /// are the first for it. Errors: kInvalidArgument for an unknown trainer.
  Status join(int trainer);
  /// Whoever waits, or comes later, gets this error.
  void end(Status why);
  [[nodiscard]] int live() const;

 private:
  struct Barrier {
    int64_t phase = 1;  ///< that gathers arrivals
    std::set<int> arrived;
    Status result;                 ///< of the phase before
    std::map<int, int64_t> ahead;  ///< phases before the first of a trainer that joined
  };
  void finish_if_complete(std::string_view kind, Barrier& barrier);
  [[nodiscard]] std::string missing(const Barrier& barrier) const;

  const Completed completed_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  const int trainers_;
  std::set<int> live_;
  std::set<int> joined_;
  std::map<std::string, Barrier, std::less<>> barriers_;
  Status ended_;  ///< failed: nobody meets any more
};

}  // namespace millrace::ps

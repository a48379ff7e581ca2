#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "framework/base/status.h"
#include "ps/server/sequence_window.h"
#include "ps/transport/message.h"

namespace millrace::ps {

using Clock = std::chrono::steady_clock;

/// What a server knows of one trainer.
struct Trainer {
  enum class Life {
    kAbsent,     ///< has not said hello yet; others wait for it
    kLive,       ///< trains
    kGathering,  ///< has trained all its steps and will read the result
    kLeft,       ///< is done
    kLost,       ///< went silent; the job goes on without it
    kJoining,    ///< takes the place of a lost one from a later step on; nobody waits for it before
  };

  Life life = Life::kAbsent;
  uint64_t incarnation = 0;
  SequenceWindow window;
  int64_t sent = 0;         ///< send barriers
  int64_t fetched = 0;      ///< fetch barriers
  bool is_placed = false;   ///< has done nothing since it was told its step
  int64_t settled_at = -1;  ///< step that it went back to last
  uint64_t fetch_call = 0;  ///< sequence number of its last fetch barrier
  int64_t step = -1;        ///< that it last named
  Method last = Method::kHello;
  Clock::time_point seen;

  /// True if a barrier needs it.
  [[nodiscard]] bool is_expected() const { return life == Life::kAbsent || life == Life::kLive; }
  /// True if it has fetched the parameters of its step and may send gradients.
  [[nodiscard]] bool may_send() const { return fetched > sent; }
};

/// The trainers of a job, as one server sees them. Not thread-safe.
class Trainers {
 public:
  /// \param elastic  a lost trainer may be replaced, or the job goes on without it
  Trainers(int count, std::string job, bool elastic, Clock::time_point now);

  [[nodiscard]] int count() const { return static_cast<int>(trainers_.size()); }
  [[nodiscard]] Trainer& at(int id) { return trainers_[static_cast<size_t>(id)]; }
  [[nodiscard]] const Trainer& at(int id) const { return trainers_[static_cast<size_t>(id)]; }

  /// A trainer opens its dealings, or says that it is still there. Errors: kDistributed for another
  /// job, and for a second process with the id of a trainer that is there; kInvalidArgument for an
  /// id out of range.
  /// \param has_fetched  it has the parameters of its step already; only a server that took up a
  ///                     snapshot need be told
  /// \param answered     its send barriers that were answered; where the server has carried out
  ///                     more, what it has fetched is that of an earlier step. Negative: unknown
  /// \param settled      the trainer repeats no call up to this number
  Status hello(const Caller& caller, Clock::time_point now, bool has_fetched = false,
               int64_t answered = -1, uint64_t settled = 0);
  /// True if a trainer would take the place of another process that is not lost yet, and may once
  /// it is.
  [[nodiscard]] bool must_wait(const Caller& caller) const;
  /// The trainer that calls; it must have said hello and not have left. Errors: as hello().
  StatusOr<Trainer*> find(const Caller& caller, const Request& request, Clock::time_point now);

  /// True if nobody is expected any more.
  [[nodiscard]] bool all_done() const;
  /// True if nobody will call any more.
  [[nodiscard]] bool all_gone() const;
  /// "trainer 1 (last heard 12 s ago: send of step 4)" for each trainer that fits, joined by ", ".
  template <typename Predicate>
  [[nodiscard]] std::string list(Clock::time_point now, Predicate&& fits) const {
    std::string text;
    for (int id = 0; id < count(); ++id) {
      if (fits(at(id))) text += (text.empty() ? "" : ", ") + describe(id, now);
    }
    return text;
  }
  [[nodiscard]] std::string describe(int id, Clock::time_point now) const;

 private:
  Status check(const Caller& caller) const;

  std::vector<Trainer> trainers_;
  std::string job_;
  bool elastic_;
};

}  // namespace millrace::ps

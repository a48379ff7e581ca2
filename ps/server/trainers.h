#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/status.h"
#include "ps/protocol/messages.h"
#include "ps/sequence_window.h"
#include "ps/server/kept_replies.h"
#include "ps/transport/message.h"

namespace millrace::ps {

using Clock = std::chrono::steady_clock;

/// A server's state of one trainer.
struct Trainer {
  enum class Life {
    kAbsent,     ///< has not sent a hello yet; others wait for it
    kLive,       ///< is training
    kGathering,  ///< has finished all its steps and will read the result
    kLeft,       ///< is done
    kLost,       ///< went silent; the job continues without it
    kJoining,    ///< replaces a lost one from a later step; others do not wait for it before
    kSuspected,  ///< went silent; steps wait until all servers agree on its last step
  };

  Life life = Life::kAbsent;
  uint64_t incarnation = 0;
  SequenceWindow window;
  KeptReplies replies;     ///< to its calls that run a block
  int64_t sent = 0;        ///< send barriers
  int64_t fetched = 0;     ///< fetch barriers
  int64_t confirmed = 0;   ///< send barriers that all servers have answered, as it has said
  bool is_placed = false;  ///< has done nothing since it was moved to its step
  bool is_unheard =
      false;  ///< suspected while it was absent: other servers know which process it is
  int64_t settled_at = -1;  ///< step that it last went back to
  uint64_t fetch_call = 0;  ///< sequence number of its last fetch barrier
  int64_t step = -1;        ///< step that its last call named
  int inside = 0;           ///< its calls that are being carried out
  Method last = Method::kHello;
  Clock::time_point seen;  ///< by PauseWatch::now()

  /// True if barriers wait for it.
  [[nodiscard]] bool is_expected() const {
    return life == Life::kAbsent || life == Life::kLive || life == Life::kSuspected;
  }
  /// True if it has fetched the parameters of its step and may send gradients.
  [[nodiscard]] bool may_send() const { return fetched > sent; }
  /// Records the outcome of a call that has begun in the window. \returns false for a call of
  /// another process, of which the window knows nothing
  [[nodiscard]] bool end_call(const Request& request, bool is_repeat, bool is_ok);
  /// Drops the record of the calls of another process.
  void forget_calls() {
    window = SequenceWindow();
    replies = KeptReplies();
  }
};

/// The state of all trainers of a job on one server. Not thread-safe.
class Trainers {
 public:
  /// \param elastic  a lost trainer may be replaced, or the job continues without it
  Trainers(int count, std::string job, bool elastic, Clock::time_point now);

  [[nodiscard]] int count() const { return static_cast<int>(trainers_.size()); }
  [[nodiscard]] Trainer& at(int id) { return trainers_[static_cast<size_t>(id)]; }
  [[nodiscard]] const Trainer& at(int id) const { return trainers_[static_cast<size_t>(id)]; }

  /// Checks that the caller is one of the trainers of this job. Errors: as hello().
  [[nodiscard]] Status check(const Caller& caller) const;
  /// Handles a hello: a trainer connects, or shows that it is alive. Errors: kDistributed for
  /// another job, and for a second process with the id of a connected trainer; kInvalidArgument for
  /// an id out of range.
  /// \param message  has_fetched matters only to a server that loaded a snapshot. If the server has
  ///     carried out more send barriers than `sent`, the trainer's parameters are of an earlier
  ///     step
  Status hello(const Caller& caller, Clock::time_point now, const protocol::Hello& message);
  /// True if the caller would replace another process that is not lost yet, or whose last calls are
  /// still being carried out, and may do so later.
  [[nodiscard]] bool must_wait(const Caller& caller) const;
  /// True if the caller is the process that said hello last for its trainer.
  [[nodiscard]] bool knows(const Caller& caller) const;
  /// Checks that the caller has sent a hello, and was neither lost nor replaced since, and has not
  /// left. To report a loss, a trainer that is absent here needs no hello. Errors: as hello().
  [[nodiscard]] Status check_served(const Request& request) const;
  /// The trainer that calls, which was heard now. Errors: as check_served().
  StatusOr<Trainer*> find(const Request& request, Clock::time_point now);

  /// True if no trainer is expected any more.
  [[nodiscard]] bool all_done() const;
  /// True if no trainer will call any more.
  [[nodiscard]] bool all_gone() const;
  /// True if every trainer is lost, so that none finished the job.
  [[nodiscard]] bool all_lost() const;
  /// True if a trainer is left that can ask all servers for the last step of a lost one. It need
  /// not be connected: after a restart of this server, it may still train with the others.
  [[nodiscard]] bool can_agree() const;

  /// Records that the servers have agreed on the last step of a lost process.
  void note_end(int id, uint64_t incarnation, int64_t steps);
  /// What note_end() recorded.
  [[nodiscard]] std::optional<int64_t> end_of(int id, uint64_t incarnation) const;
  /// The servers went back to a step: lost processes have taken part in none of the later ones.
  void go_back(int64_t step);
  /// Describes each trainer for which fits() holds, as "trainer 1 (last heard 12 s ago: send of
  /// step 4)", joined by ", ".
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
  std::vector<Trainer> trainers_;
  /// By trainer and incarnation: the first step in which a lost process did not take part.
  std::map<std::pair<int, uint64_t>, int64_t> ends_;
  std::string job_;
  bool elastic_;
};

}  // namespace millrace::ps

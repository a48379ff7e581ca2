#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "framework/base/status.h"
#include "ps/protocol/answers.h"
#include "ps/protocol/messages.h"
#include "ps/server/calls_record.h"
#include "ps/server/trainers.h"

namespace millrace::ps {

/// What a synchronous server knows about its steps, beside its trainers.
struct StepCounts {
  int64_t applied = 0;    ///< steps since the start
  bool applying = false;  ///< the blocks of a step run
  bool held = false;      ///< no trainer learns that the last step was applied
  /// By endpoint: the epoch of a server because of which this one has gone back last.
  std::map<std::string, uint64_t> went_back_for;
};

/// The decisions of a synchronous server (docs/protocol.md): which trainers are in a step, when it
/// is applied, who must go back, and where a lost trainer ends. Each function is one transition of
/// Trainers and StepCounts; none waits, locks or touches a value. So a server makes them under its
/// mutex, and tests/explorer makes the same ones in every order.
///
/// Trainers are named by their number, which must be in range. Not thread-safe.
class StepRules {
 public:
  /// \param trainers, counts  must outlive this object
  /// \param elastic  a lost trainer may be replaced, or the job continues without it
  StepRules(Trainers& trainers, StepCounts& counts, bool elastic)
      : trainers_(trainers), counts_(counts), elastic_(elastic) {}

  // ---- a step

  /// Errors: kDistributed for a trainer that must fetch first, or without which the servers have
  /// applied its step. \param does  what it does
  [[nodiscard]] Status check_sends(int trainer, const char* does) const;
  /// The send barrier of a trainer whose gradients are all here. Errors: as check_sends().
  [[nodiscard]] Status arrive(int trainer);
  /// Records that all servers have answered the send barriers of a trainer. \returns true if that
  /// was not known
  bool confirm(int trainer);
  /// True if a trainer may learn that its gradients are applied.
  [[nodiscard]] bool may_fetch(int trainer) const;
  /// The fetch barrier of a trainer that may fetch. Errors: kDistributed in the wrong phase.
  /// \param is_repeat  the call was carried out before: it counts only after a restart, where the
  ///     hello of the trainer has not said that it has the values; a late one has no effect
  [[nodiscard]] Status fetched(const Request& request, bool is_repeat);
  /// True if a trainer has sent all gradients of the step in progress; those of a lost one count
  /// where the servers have agreed on it. A replacement that was placed at a later step has sent
  /// nothing yet, also if it is lost meanwhile.
  [[nodiscard]] bool has_arrived(int trainer) const;
  /// True if the step can be applied.
  [[nodiscard]] bool is_ready() const;
  /// By trainer: 1 if the step that is ready is applied with it.
  [[nodiscard]] std::vector<char> arrivals() const;
  /// The step was applied.
  void advance();
  /// The trainer makes no more steps. In an elastic job, drops gradients that were not sent to all
  /// servers. \returns false if it had left before, so that nothing changes
  bool complete(int trainer, const protocol::Complete& message);

  // ---- where trainers continue

  /// What the server answers to a hello that Trainers::hello() has accepted. Without the mode.
  [[nodiscard]] protocol::HelloAnswer greeting(int trainer) const;
  /// True if the caller would replace a process that is not lost yet, whose last calls are still
  /// being carried out, or whose last step is not applied yet.
  [[nodiscard]] bool must_wait(const Caller& caller) const;
  /// True if others went back to the next step, and this trainer has not gone to it yet.
  [[nodiscard]] bool must_settle(int trainer) const;
  /// Admits trainers that wait for a later step if that step is reached, or if no other trainers
  /// are left. \returns true if one was admitted
  bool admit_joining();

  /// What a server has to do before a trainer continues at a step.
  struct Move {
    bool loads = false;       ///< load the snapshot of the step
    std::vector<int> others;  ///< whose gradients of the step, if any, are discarded
    [[nodiscard]] bool begins_run() const { return loads || !others.empty(); }
  };
  /// Decides about go-to; no step may be being applied. Errors: kDistributed if a trainer that
  /// joins would begin at a step that is already applied; kInvalidArgument for a step that this
  /// server has not reached, if the trainer has begun an earlier one, or that a trainer which has
  /// left was beyond.
  [[nodiscard]] StatusOr<Move> plan(int trainer, int64_t step, const std::string& endpoint) const;
  /// Checks why a trainer asks this server to go back, so that a trainer that is wrong about its
  /// step cannot do it. Errors: kInvalidArgument. \param endpoint, epoch  of this server
  [[nodiscard]] Status check_reason(int trainer, const protocol::GoTo& message,
                                    const std::string& endpoint, uint64_t epoch) const;
  /// The server begins another run in which the others have to go to the step, too.
  void discard(const std::vector<int>& others, int64_t step);
  /// The trainer continues at the step. Errors: kDistributed if it was lost meanwhile.
  [[nodiscard]] Status settle(const Request& request, const protocol::GoTo& message,
                              Clock::time_point now);
  /// Moves a trainer to the start of a step that is not before the applied one: nothing of that
  /// step has arrived, and the trainer fetches first. The others wait for it from that step on.
  void place(int trainer, int64_t step);
  /// The server has loaded a snapshot of this step.
  void restore(int64_t applied);

  // ---- lost trainers

  /// Stops serving a trainer until the servers have agreed on its last step.
  void suspect(int trainer);
  /// A trainer reports the loss of another one: suspects that, unless it is over.
  /// \returns true if it was not suspected before
  bool suspect_reported(const protocol::Loss& message);
  /// The answer to that.
  [[nodiscard]] protocol::LossAnswer answer(const protocol::Loss& message) const;
  /// True if other servers have applied steps with a lost process that this server was started
  /// again without, and for which it has taken another process in: it would apply them without
  /// either.
  [[nodiscard]] bool lacks_steps_of(const protocol::Loss& message) const;
  /// True if the server has yet to record the end of the trainer.
  [[nodiscard]] bool is_open(const protocol::Loss& message) const;
  /// The number of steps that were applied with a trainer, up to its last one; -1 if it has begun
  /// none since it joined or went back. No step may be being applied.
  [[nodiscard]] int64_t applied_with(int trainer) const;
  /// Ends the steps of a lost trainer before this one and records that: later gradients of it are
  /// dropped. \returns false if gradients of an earlier step are not here
  [[nodiscard]] bool end_at(int trainer, int64_t step);

 private:
  [[nodiscard]] bool is_doubtful(int trainer) const;
  [[nodiscard]] bool is_known(const protocol::Loss& message) const;

  Trainers& trainers_;
  StepCounts& counts_;
  bool elastic_;
};

/// The calls of all trainers that a snapshot of this step covers. Gradients of a step that is not
/// applied are not in the snapshot, so the calls that sent them are not in the record either. A
/// trainer that waits for a later step has sent nothing.
CallsRecord record_calls(const Trainers& trainers, int64_t applied, bool is_sync);
/// The state of the trainers of a server that loads a snapshot. A server that goes back keeps its
/// trainers that join at a later step, and knows who its trainers are.
void load_calls(CallsRecord record, Trainers& trainers);

}  // namespace millrace::ps

#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include <llvm/ADT/StringMap.h>

#include "ps/server/server_core.h"
#include "ps/server/step_rules.h"

namespace millrace::ps {

/// Steps of synchronous training: a step is applied when every expected trainer has sent its
/// gradients and its send barrier. Gradients are averaged over the trainers that have arrived, even
/// where the program divides by the initial number of trainers.
///
/// A trainer alternates between fetching and sending. It may send the gradients of the next step as
/// soon as it has fetched, since slots are read only when all trainers have arrived. A get waits
/// for the step for which the caller has sent gradients. So only gets wait.
/// Source: spec/ps_runtime.md section 2; its quirks 1 to 3 of section 10 are not copied.
class SyncSteps {
 public:
  /// Errors: kInvalidProgram for blocks whose merges share a slot.
  static StatusOr<std::unique_ptr<SyncSteps>> create(ServerCore& core);

  /// Stores gradients (federated: parameters) of the trainer that calls.
  /// Errors: kNotFound for a name that is not a slot; kInvalidArgument for a value of the wrong
  /// type or dims and for the slot of another trainer; kDistributed in the wrong phase; those of
  /// ServerCore::check_served().
  Status send(const Request& request, llvm::ArrayRef<RequestItem> items);
  /// Records that the trainer that calls has sent everything for its step. Errors: kInvalidArgument
  /// naming a var that is missing; kDistributed in the wrong phase; those of
  /// ServerCore::check_served().
  Status arrive(const Request& request);
  /// Waits until the gradients of the trainer that calls are applied. Errors: as
  /// ServerCore::wait_for().
  /// \param sent_everywhere  all servers have answered its send barriers
  Status wait_applied(const Request& request, bool sent_everywhere,
                      std::unique_lock<std::mutex>& lock, Deadline deadline);
  /// True if a call waits for the end of a step and has used up half of its time. The caller must
  /// hold the mutex.
  [[nodiscard]] bool has_waited_half(Clock::time_point now) const {
    return !half_times_.empty() && now > *half_times_.begin();
  }
  /// Records that the trainer that calls has fetched; it may send again. The caller must hold the
  /// mutex. Errors: kDistributed in the wrong phase; those of ServerCore::check_served().
  /// \param is_repeat  the call was carried out before
  Status fetched(const Request& request, bool is_repeat);
  /// Lists the trainers that the step waits for, each with the vars that it has not sent. The
  /// caller must hold the mutex.
  [[nodiscard]] std::string describe_late(Clock::time_point now) const;
  /// Drops what a trainer has sent for a step that it did not finish. The caller must hold the
  /// mutex.
  void drop_partial(int trainer);

  /// What is decided about steps and trainers. The caller must hold the mutex.
  [[nodiscard]] StepRules& rules() { return rules_; }
  [[nodiscard]] const StepRules& rules() const { return rules_; }
  /// Applies the step. The caller must hold the mutex, which is released meanwhile. Errors: those
  /// of the blocks.
  Status apply(std::unique_lock<std::mutex>& lock);
  /// Steps applied since the start. The caller must hold the mutex.
  [[nodiscard]] int64_t applied() const { return counts_.applied; }
  /// While held, no trainer learns that the last step was applied. The caller must hold the mutex.
  void hold(bool held) { counts_.held = held; }
  /// True while apply() runs blocks. The caller must hold the mutex.
  [[nodiscard]] bool is_applying() const { return counts_.applying; }
  /// Restores the step of a snapshot, without gradients of the next step. No calls may be running.
  void restore(int64_t applied);
  /// A trainer continues at a step. The caller must hold the mutex, and no step may be being
  /// applied. Errors: as StepRules::settle().
  Status settle(const Request& request, const protocol::GoTo& message);
  /// Other trainers have to go to the step, too; what they have sent for it is dropped. The caller
  /// must hold the mutex.
  void discard(const std::vector<int>& others, int64_t step);
  /// A reason because of which this server goes back. The caller must hold the mutex.
  void note_reason(const protocol::GoTo& message) {
    counts_.went_back_for[message.oldest] = message.oldest_epoch;
  }

 private:
  struct MergedBlock {
    ServerBlock* block = nullptr;
    Merge merge;
    std::vector<const ServerVar*> slots;  // by trainer
    std::vector<char> arrived;            // by trainer; guarded by the mutex
  };
  struct Slot {
    MergedBlock* merged = nullptr;  // null: the var is not merged
    const ServerVar* var = nullptr;
    int trainer = -1;  // its trainer; negative: any trainer
  };

  explicit SyncSteps(ServerCore& core)
      : core_(core), rules_(core.trainers, counts_, core.options.elastic) {}
  Status add_merges();
  void add_plain_inputs();
  [[nodiscard]] StatusOr<Slot> find_slot(int trainer, const std::string& name) const;
  Status run_block(ServerBlock& block, llvm::ArrayRef<char> arrivals);
  Status fill_absent(const MergedBlock& merged, llvm::ArrayRef<char> arrivals);

  ServerCore& core_;
  std::vector<std::unique_ptr<MergedBlock>> merged_;
  llvm::StringMap<Slot> slots_;                   // by name in the program
  std::vector<llvm::StringMap<Slot>> own_names_;  // by trainer: alternative names of its slots
  /// Of the calls that wait for the end of a step: when half of their time is over, by
  /// ServerCore::now().
  std::multiset<Clock::time_point> half_times_;
  StepCounts counts_;
  StepRules rules_;
};

}  // namespace millrace::ps

#pragma once

#include <memory>
#include <string>
#include <vector>

#include <llvm/ADT/StringMap.h>

#include "ps/server/server_core.h"

namespace millrace::ps {

/// The steps of synchronous training: a step is applied when every trainer that is expected has
/// sent its gradients and said so. Gradients are averaged over the trainers that have arrived, also
/// where the program divides by the number that the job began with.
///
/// A trainer alternates between fetching and sending. It may send the gradients of the next step as
/// soon as it has fetched, since slots are read only when all have arrived; a get waits for the
/// step that the caller has sent gradients for. So no call waits but gets.
/// Source: spec/ps_runtime.md section 2; its quirks 1 to 3 of section 10 are not copied.
class SyncSteps {
 public:
  /// Errors: kInvalidProgram for blocks whose merges share a slot.
  static StatusOr<std::unique_ptr<SyncSteps>> create(ServerCore& core);

  /// Gradients (federated: parameters) of a trainer.
  /// Errors: kNotFound for a name that is no slot; kInvalidArgument for a value that does not fit
  /// and for the slot of another trainer; kDistributed in the wrong phase.
  Status send(int trainer, llvm::ArrayRef<RequestItem> items);
  /// The trainer has sent all of its step. Errors: kInvalidArgument naming a var that is missing;
  /// kDistributed in the wrong phase.
  Status arrive(int trainer);
  /// Waits until what the trainer has sent is applied. Errors: as ServerCore::wait().
  Status wait_applied(std::unique_lock<std::mutex>& lock, int trainer, Deadline deadline);
  /// The trainer has what it fetches; it may send from now on. The caller holds the mutex.
  /// Errors: kDistributed in the wrong phase.
  Status fetched(int trainer);
  /// The trainers that the step waits for, each with the vars that it has not sent. The caller
  /// holds the mutex.
  [[nodiscard]] std::string describe_late(Clock::time_point now) const;
  /// Forgets what a trainer has sent of a step that it did not finish. The caller holds the mutex.
  void drop_partial(int trainer);

  /// True if a step can be applied. The caller holds the mutex.
  [[nodiscard]] bool is_ready() const;
  /// Applies it. The caller holds the mutex, which is released meanwhile. Errors: those of the
  /// blocks.
  Status apply(std::unique_lock<std::mutex>& lock);
  /// Steps applied since the start. The caller holds the mutex.
  [[nodiscard]] int64_t applied() const { return applied_; }
  /// True while apply() runs blocks. The caller holds the mutex.
  [[nodiscard]] bool is_applying() const { return applying_; }
  /// Takes up where a snapshot left off, with no gradients of the next step; while nobody calls.
  void restore(int64_t applied);
  /// Puts a trainer to the begin of a step that is not behind what is applied: nothing of it is
  /// here, and it fetches first. The others wait for it from that step on. The caller holds the
  /// mutex, while no step is applied.
  void place(int trainer, int64_t step);
  /// Trainers that were placed at a later step come in where that step, or nobody else, is left.
  /// The caller holds the mutex.
  void admit_joining();

 private:
  struct MergedBlock {
    ServerBlock* block = nullptr;
    Merge merge;
    std::vector<const ServerVar*> slots;  // by trainer
    std::vector<char> arrived;            // by trainer; guarded by the mutex
  };
  struct Slot {
    MergedBlock* merged = nullptr;  // null: a var without merge
    const ServerVar* var = nullptr;
    int trainer = -1;  // whose it is; negative: anybody's
  };

  explicit SyncSteps(ServerCore& core) : core_(core) {}
  Status add_merges();
  void add_plain_inputs();
  [[nodiscard]] StatusOr<Slot> find_slot(int trainer, const std::string& name) const;
  [[nodiscard]] bool has_arrived(int trainer) const;
  Status run_block(ServerBlock& block, llvm::ArrayRef<char> arrivals);
  Status fill_absent(const MergedBlock& merged, llvm::ArrayRef<char> arrivals);

  ServerCore& core_;
  std::vector<std::unique_ptr<MergedBlock>> merged_;
  llvm::StringMap<Slot> slots_;                   // by the names that the program has
  std::vector<llvm::StringMap<Slot>> own_names_;  // by trainer: other names for its slots
  int64_t applied_ = 0;
  bool applying_ = false;
};

}  // namespace millrace::ps

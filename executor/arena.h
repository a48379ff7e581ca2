#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <llvm/ADT/ArrayRef.h>
#include <llvm/ADT/BitVector.h>

#include "executor/memory_guard.h"
#include "executor/memory_plan.h"
#include "executor/step.h"
#include "framework/tensor/buffer.h"

namespace millrace::gpu {
class Memory;
}

namespace millrace::executor {

/// The memory of a block's temporaries. The first run frees each temporary behind its last use and
/// notes its size; then all get places in one piece of memory, by liveness, and further runs
/// allocate nothing. A temporary that outgrows its place gets memory of its own until the next
/// plan.
///
/// Which values are temporaries, and when they live, is said once in the constructor.
class Arena {
 public:
  Arena() = default;
  /// \param steps      the block's steps in order
  /// \param temporary  table entries that are dense tensors of this block alone
  /// \param in_place   an output may take over the memory of an input that dies
  Arena(llvm::ArrayRef<Step> steps, llvm::BitVector temporary, bool in_place = true);

  /// Says for each step until when memory stays that is used there last: steps need not run in
  /// order. Counts from the next plan on.
  void hold(std::vector<int32_t> until) { until_ = std::move(until); }

  /// Temporaries that stand in this memory of a device get places in one piece of it.
  void use(std::shared_ptr<gpu::Memory> memory) { device_memory_ = std::move(memory); }

  /// Keeps a value readable after the run (a fetch). Drops the present plan if it had not been
  /// kept.
  void keep(int32_t index, Value* const* table);

  /// Lets go of what a table entry holds, before a step that is to make it again. Its place in
  /// planned memory stays, so that this costs no allocation.
  void forget(int32_t index, Tensor& tensor);

  /// From now on memory that no value holds, or that none has been written to yet, is filled with a
  /// pattern, and writing to it is an error. Costs time. Not together with hold().
  void watch() { guard_ = std::make_unique<MemoryGuard>(); }
  /// With watch(): temporaries of earlier runs are gone.
  void begin_run(Value* const* table);
  /// With watch(): the memory of what the step writes first is in use from here on.
  void before_step(size_t step) {
    if (guard_ != nullptr && buffer_ != nullptr) guard_step(step);
  }

  /// Frees what no later step uses; does nothing once the memory is planned, unless it is watched.
  /// Errors: kInternal if the step has written to watched memory that is not in use.
  Status after_step(size_t step, Value* const* table) {
    if (buffer_ == nullptr && !release_.empty()) release(step, table);
    return guard_ != nullptr && buffer_ != nullptr ? check_step(step, table) : Ok();
  }
  /// Plans memory after the first run, and again after a run in which something outgrew its place.
  /// Errors: kResource.
  Status after_run(Value* const* table, bool shapes_changed);

  /// True for a temporary, whose life is the business of the arena.
  [[nodiscard]] bool contains(int32_t index) const {
    return static_cast<unsigned>(index) < temporary_.size() &&
           temporary_.test(static_cast<unsigned>(index));
  }
  [[nodiscard]] bool is_planned() const { return buffer_ != nullptr; }
  /// Bytes of all temporaries together, and the least that liveness allows; 0 before the first run.
  [[nodiscard]] int64_t bytes() const { return plan_.bytes; }
  [[nodiscard]] int64_t peak_live() const { return plan_.peak_live; }
  /// The same for temporaries in the memory of a device.
  [[nodiscard]] int64_t device_bytes() const { return device_plan_.bytes; }
  [[nodiscard]] int64_t device_peak_live() const { return device_plan_.peak_live; }
  /// Place of a table entry in the piece of memory; -1 if it has none.
  [[nodiscard]] int64_t offset(int32_t index) const;

 private:
  struct Use {
    int64_t bytes = 0;        ///< largest size seen
    int32_t first = -1;       ///< step
    int32_t last = -1;        ///< step
    int32_t takes_over = -1;  ///< table entry whose memory this one may continue to use
    int32_t range = -1;       ///< its range in the plan
    bool resident = false;    ///< in the memory of a device
  };
  void note_releases(size_t steps);
  void find_takeovers(llvm::ArrayRef<Step> steps);
  void release(size_t step, Value* const* table);
  void drop(Value* const* table);
  bool outgrown(Value* const* table) const;
  void note_sizes(Value* const* table);
  MemoryPlan plan_places(Value* const* table, bool resident);
  void bind_places(Value* const* table);
  Status bind_resident_places(Value* const* table);
  [[nodiscard]] bool has_place(unsigned index) const;
  [[nodiscard]] std::byte* place_of(unsigned index) const;
  [[nodiscard]] bool goes_on(unsigned index, int32_t step) const;
  void guard_step(size_t step);
  Status check_step(size_t step, Value* const* table);

  llvm::BitVector temporary_;
  std::vector<Use> uses_;
  std::vector<int32_t> release_;       ///< table entries by the last step that uses them
  std::vector<int32_t> release_from_;  ///< where those of each step begin, and the end
  std::vector<int32_t> until_;         ///< one a step; empty: itself
  MemoryPlan plan_;
  std::shared_ptr<Buffer> buffer_;
  std::shared_ptr<gpu::Memory> device_memory_;  ///< null: there is no device
  MemoryPlan device_plan_;
  std::unique_ptr<MemoryGuard> guard_;  ///< null: memory is not watched
};

}  // namespace millrace::executor

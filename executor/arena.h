#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <llvm/ADT/ArrayRef.h>
#include <llvm/ADT/BitVector.h>

#include "executor/compiled_ops/compiled_op.h"
#include "executor/compiled_ops/memory_guard.h"
#include "executor/memory_plan.h"
#include "framework/tensor/buffer.h"

namespace millrace::gpu {
class Memory;
}

namespace millrace::executor {

/// The memory of a block's temporaries. The first run frees each temporary after its last use and
/// records its size. Then all temporaries get offsets in one memory region, planned by liveness,
/// and further runs allocate nothing. A temporary that outgrows its space gets separate memory
/// until the next plan.
///
/// The constructor determines which values are temporaries, and when each is live.
class Arena {
 public:
  Arena() = default;
  /// \param compiled_ops  the block's ops in order
  /// \param temporary  table entries that are dense tensors used by this block only
  /// \param in_place   an output may reuse the memory of an input whose last use is the same op
  Arena(llvm::ArrayRef<CompiledOp> compiled_ops, llvm::BitVector temporary, bool in_place = true);

  /// Sets for each op the op until which memory last used there is kept, because ops need not
  /// run in order. Takes effect with the next plan.
  void hold(std::vector<int32_t> until) { until_ = std::move(until); }

  /// Temporaries in this memory of a device also get offsets in one region of it.
  void use(std::shared_ptr<gpu::Memory> memory) { device_memory_ = std::move(memory); }

  /// Keeps a value readable after the run (a fetch). Drops the current plan if the value was not
  /// kept before.
  void keep(int32_t index, Value* const* table);

  /// Drops the content of a table entry before an op that computes it again. Its space in planned
  /// memory is kept, so this costs no allocation.
  void forget(int32_t index, Tensor& tensor);

  /// After this call, memory that no value uses, or that has not been written yet, is filled with a
  /// pattern, and writing to unused memory is an error. Costs time. Cannot be combined with hold().
  void watch() { guard_ = std::make_unique<MemoryGuard>(); }
  /// With watch(): drops temporaries of earlier runs.
  void begin_run(Value* const* table);
  /// With watch(): marks the memory of values that the op is the first to write as in use.
  void before_op(size_t op) {
    if (guard_ != nullptr && buffer_ != nullptr) guard_op(op);
  }

  /// Frees values that no later op uses; does nothing once memory is planned, unless watched.
  /// Errors: kInternal if the op has written to watched memory that is not in use.
  Status after_op(size_t op, Value* const* table) {
    if (buffer_ == nullptr && !release_.empty()) release(op, table);
    return guard_ != nullptr && buffer_ != nullptr ? check_op(op, table) : Ok();
  }
  /// Plans memory after the first run, and again after a run in which a temporary outgrew its
  /// space. Errors: kResource.
  Status after_run(Value* const* table, bool shapes_changed);

  /// True for a temporary, which the arena manages.
  [[nodiscard]] bool contains(int32_t index) const {
    return static_cast<unsigned>(index) < temporary_.size() &&
           temporary_.test(static_cast<unsigned>(index));
  }
  [[nodiscard]] bool is_planned() const { return buffer_ != nullptr; }
  /// Bytes of all temporaries together, and the minimum that liveness allows; 0 before the first
  /// run.
  [[nodiscard]] int64_t bytes() const { return plan_.bytes; }
  [[nodiscard]] int64_t peak_live() const { return plan_.peak_live; }
  /// The same for temporaries in the memory of a device.
  [[nodiscard]] int64_t device_bytes() const { return device_plan_.bytes; }
  [[nodiscard]] int64_t device_peak_live() const { return device_plan_.peak_live; }
  /// Offset of a table entry in the memory region; -1 if it has none.
  [[nodiscard]] int64_t offset(int32_t index) const;

 private:
  struct Use {
    int64_t bytes = 0;        ///< largest size seen
    int32_t first = -1;       ///< op
    int32_t last = -1;        ///< op
    int32_t takes_over = -1;  ///< table entry whose memory this one may reuse
    int32_t range = -1;       ///< its range in the plan
    bool resident = false;    ///< in the memory of a device
  };
  /// Fills release_: for each op, the values that no later op uses.
  void note_releases(size_t count);
  /// Finds outputs that may use the memory of an input (the op's in-place pairs) whose last use is
  /// that op.
  void find_takeovers(llvm::ArrayRef<CompiledOp> compiled_ops);
  /// Notes the sizes of the values last used by the op, and drops their memory.
  void release(size_t op, Value* const* table);
  /// Drops the region and the memory of all temporaries, after sizes have grown.
  void drop(Value* const* table);
  /// True if a temporary has become larger than its range.
  bool outgrown(Value* const* table) const;
  /// Updates the sizes from the tensors of this run.
  void note_sizes(Value* const* table);
  /// \param resident  plans the temporaries in device memory, else those in host memory
  MemoryPlan plan_places(Value* const* table, bool resident);
  /// Lets the temporaries use their ranges of the region.
  void bind_places(Value* const* table);
  Status bind_resident_places(Value* const* table);
  /// True if the value has a range in the host region; place_of() is its first byte.
  [[nodiscard]] bool has_place(unsigned index) const;
  [[nodiscard]] std::byte* place_of(unsigned index) const;
  /// True if a value that begins at the op reuses the range of one that ends there.
  [[nodiscard]] bool is_reused(unsigned index, int32_t op) const;
  /// With a guard: opens the memory of values that begin at the op; check_op() closes that of
  /// values that end there, so that a wrong lifetime is found where it happens.
  void guard_op(size_t op);
  Status check_op(size_t op, Value* const* table);

  /// Table entries whose memory the arena may reuse.
  llvm::BitVector temporary_;
  std::vector<Use> uses_;
  std::vector<int32_t> release_;       ///< table entries by the last op that uses them
  std::vector<int32_t> release_from_;  ///< start of each op's range in release_, and the end
  std::vector<int32_t> until_;         ///< one per op; empty: the op itself
  MemoryPlan plan_;
  std::shared_ptr<Buffer> buffer_;
  std::shared_ptr<gpu::Memory> device_memory_;  ///< null: there is no device
  MemoryPlan device_plan_;
  std::unique_ptr<MemoryGuard> guard_;  ///< null: memory is not watched
};

}  // namespace millrace::executor

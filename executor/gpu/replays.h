#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <llvm/ADT/ArrayRef.h>
#include <llvm/ADT/BitVector.h>

#include "executor/compiled_ops/compiled_op.h"
#include "kernels/gpu/device.h"

namespace millrace::executor {

/// Consecutive GPU ops whose work is recorded once, and then queued as a whole (a CUDA graph),
/// which costs less time than to prepare and queue each op.
///
/// Ops are recorded when two runs in a row have found the same tensors: the same memory, type, dims
/// and LoD, and when the op neither copied nor allocated anything. Before recorded work is queued,
/// all tensors that it uses are compared again; if one differs, all recordings are dropped and the
/// ops run one by one until the tensors are steady again.
///
/// Source: docs/decisions/0017-gpu.md. Thread-safety: one thread at a time.
class Replays {
 public:
  /// \param compiled_ops  of the block; must outlive the object
  Replays(gpu::Device& device, llvm::ArrayRef<CompiledOp> compiled_ops);
  Replays(const Replays&) = delete;
  Replays& operator=(const Replays&) = delete;

  /// To be called before an op that is to run by itself. Queues the recorded work that begins with
  /// the op, or begins to record it. \returns the number of ops whose work was queued; 0: the op
  /// must run. Errors: kExecution.
  StatusOr<size_t> before(size_t op, Value* const* table);

  /// To be called after the op has run. Ends a recording whose last op this is, and queues it.
  /// \param steady  it neither copied nor allocated, and would do the same again
  /// Errors: as before().
  Status after(size_t op, bool steady);

  /// To be called if an op fails, which ends the recording that it is part of.
  /// \returns the first op of that recording, which must run again with those after it; -1: nothing
  /// was being recorded, and the error stands
  int64_t failed(size_t op);

  /// To be called after a complete run in which before() and after() were called for every op.
  void after_run(Value* const* table);

  /// Number of ops that belong to recordings that exist.
  [[nodiscard]] int64_t recorded_ops() const;

 private:
  /// What recorded work depends on.
  struct Seen {
    int32_t index;  ///< in the table of values
    const void* data;
    const Layout* layout;  ///< null for all tensors in device memory
    DType dtype;
    Dims dims;
    Lod lod;
    bool operator==(const Seen& other) const = default;
  };
  /// Consecutive ops.
  struct Segment {
    size_t first;
    size_t end;
    std::vector<Seen> seen;  ///< of all values that its ops use
    /// Table entries of integers that its ops write: the processor may have a copy of their values.
    std::vector<int32_t> integers;
    std::unique_ptr<gpu::Recording> recording;  ///< null: none yet
  };
  /// The state of the values that steady ops of a range use, by ascending index.
  std::vector<Seen> look(size_t first, size_t end, Value* const* table) const;
  [[nodiscard]] std::vector<int32_t> written_integers(size_t first, size_t end,
                                                      Value* const* table) const;
  static const Layout* layout_of(const Tensor& tensor);
  static bool still(const Seen& seen, Value* const* table);
  /// Divides the ops into segments, after the tensors have been steady.
  void make_segments(Value* const* table);
  void drop();

  gpu::Device& device_;
  llvm::ArrayRef<CompiledOp> ops_;
  llvm::BitVector steady_;        ///< ops that neither copied nor allocated in the latest run
  llvm::BitVector was_steady_;    ///< in the run before
  llvm::BitVector unrecordable_;  ///< ops with which a recording has failed
  std::vector<Seen> last_;        ///< all values after the latest complete run; empty: none
  std::vector<Segment> segments_;
  std::vector<int32_t> segment_of_;  ///< segment that begins with the op; -1: none
  int32_t recording_ = -1;           ///< segment that is being recorded
  int64_t lost_ = -1;                ///< first op of a recording that could not be ended
};

}  // namespace millrace::executor

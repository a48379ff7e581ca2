#pragma once

#include <vector>

#include <llvm/ADT/ArrayRef.h>

#include "kernels/gpu/functors/row_moves.h"
#include "kernels/gpu/ops/args.h"
#include "kernels/gpu/ops/device_numbers.h"

/// Shared code of ops over sequences: most build rows of a result from rows of another tensor,
/// which the LoD names, so they are chosen on the processor.
namespace millrace::gpu {

/// Rows for the numbers -1 - n.
struct RowFill {
  const std::byte* rows = nullptr;  ///< in device memory; null: zeros
  int64_t element = 0;              ///< bytes of one element that fills a row; 0: whole rows
};

/// Builds tensors from rows (PickRows). Keeps the numbers of the rows between calls. Thread-safety:
/// as Device.
class RowPicks {
 public:
  explicit RowPicks(Memory& memory) : memory_(memory) {}
  [[nodiscard]] Memory& memory() const { return memory_; }

  /// Row i of `to` becomes row rows[i] of `from`, or row -1 - rows[i] of the fill.
  /// \param row_bytes  of each row
  /// Errors: rejects 2^31 elements and more; kResource, kExecution.
  Status run(llvm::ArrayRef<int64_t> rows, const std::byte* from, int64_t row_bytes, std::byte* to,
             const RowFill& fill = {});

  /// Row i of `to` becomes the sum of the rows of `from` whose target is i (AddRows), in their
  /// order. Errors: as run().
  /// \param targets  by row of `from`; negative: none
  /// \param rows, width  of `to`
  Status add(llvm::ArrayRef<int64_t> targets, const float* from, int64_t rows, int64_t width,
             float* to);

 private:
  Memory& memory_;
  DeviceNumbers held_;
};

/// The tensors of the gradient of an op that moves rows.
struct MovedGradient {
  const Tensor* x;     ///< input of the forward op
  const Tensor* dout;  ///< gradient of its output, of the same type
  Tensor* to;          ///< dims of x; null: not requested
};
/// Their arguments, and the memory of the device.
struct MovedGradientArgs {
  explicit MovedGradientArgs(const KernelSetup& op)
      : x(op.input("X")), dout(op.input("Out@GRAD")), dx(op.output("X@GRAD")) {}
  /// Errors: rejects the call if one is missing, has another type, or shares memory.
  [[nodiscard]] StatusOr<MovedGradient> find(const KernelContext& ctx) const;
  ArgIndex x;
  ArgIndex dout;
  ArgIndex dx;
};

/// The offsets of sequences. Errors: rejects tensors that the CPU kernel reports.
StatusOr<llvm::ArrayRef<int64_t>> innermost_here(const Tensor& tensor);
/// The same of the outermost level, whose entries are rows.
StatusOr<llvm::ArrayRef<int64_t>> outermost_here(const Tensor& tensor);

/// Bytes of a row, a slice of the first dim; 0 if there is no element.
inline int64_t row_bytes_of(const Tensor& tensor) {
  return tensor.rank() == 0 || tensor.dim(0) == 0 ? 0 : tensor.bytes() / tensor.dim(0);
}

/// True if the tensors share memory. A kernel that moves rows must not read what it has written.
inline bool is_same_memory(const Tensor& a, const Tensor& b) {
  return a.raw() == b.raw() && a.bytes() > 0;
}

}  // namespace millrace::gpu

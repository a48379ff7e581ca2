#pragma once

#include <vector>

#include <llvm/ADT/ArrayRef.h>
#include <llvm/ADT/SmallVector.h>

#include "framework/var.h"
#include "kernels/gpu/ops/args.h"

namespace millrace::gpu {

/// Elements of a tensor in device memory as a tensor in process memory. Costs nothing but a copy if
/// the processor still has them (ResidentLayout::host()), else waits for the device. The op is not
/// recorded. Errors: kResource, kExecution.
Status read_tensor(Memory& memory, const Tensor& from, Tensor& to);

/// A call as code for the processor sees it: some inputs, which are small, as values in process
/// memory, and outputs without values. Other inputs are absent.
class HostCall {
 public:
  explicit HostCall(const KernelSetup& op);

  /// Copies the inputs of these slots; absent ones stay absent. Errors: rejects values that are not
  /// tensors; as read_tensor().
  Status read(Memory& memory, const KernelContext& ctx, llvm::ArrayRef<ArgRange> slots);
  /// The call; valid until the next read().
  [[nodiscard]] KernelContext context(const KernelContext& ctx) const {
    return {table_.data(), inputs_, outputs_, ctx.device()};
  }

 private:
  std::vector<Value> values_;              ///< inputs, then outputs
  std::vector<Value*> table_;              ///< of all of them
  llvm::SmallVector<int32_t, 8> inputs_;   ///< positions in the table; -1: not read
  llvm::SmallVector<int32_t, 4> outputs_;  ///< positions in the table
};

/// Sizes an output whose dims follow from numbers that were read. Errors: kResource.
Status size_here(Memory& memory, Tensor& out, DType dtype, llvm::ArrayRef<int64_t> dims);

}  // namespace millrace::gpu

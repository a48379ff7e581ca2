#pragma once

#include "kernels/cpu/int_list.h"
#include "kernels/kernel.h"

namespace millrace::kernels {

/// Dims of the output of an op that creates a tensor: from attributes, from tensors, or from one
/// dim of another tensor (the *_batch_size_like ops).
class ShapeArg {
 public:
  /// Reads shape and dtype and, for *_batch_size_like ops, input_dim_idx and output_dim_idx.
  explicit ShapeArg(const KernelSetup& op);

  /// Sizes the output and returns its tensor: the tensor of the var, or the values of all rows of a
  /// table if the program declares selected rows. Errors: invalid dims; tensors that hold no
  /// integers.
  StatusOr<Tensor*> create(const KernelContext& ctx, ArgIndex out) const;

 private:
  Status size(const KernelContext& ctx, Tensor& out) const;

  IntList shape_;
  ArgIndex like_;  ///< tensor whose dim like_dim_ is copied
  int64_t like_dim_ = 0;
  int64_t own_dim_ = 0;     ///< dim that the copied one replaces
  bool sequences_ = false;  ///< a LoD tensor contributes its number of sequences, not of rows
  DType dtype_;
  bool rows_ = false;  ///< makes_rows()
};

/// True if the program declares Out as selected rows: a table that is created as a whole.
bool makes_rows(const KernelSetup& op);
/// Sizes selected rows to a whole table of these dims, in which every row occurs once.
Status size_table(SelectedRows& table, DType dtype, llvm::ArrayRef<int64_t> dims);

}  // namespace millrace::kernels

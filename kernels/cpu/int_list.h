#pragma once

#include <cstdint>
#include <vector>

#include <llvm/ADT/ArrayRef.h>
#include <llvm/ADT/SmallVector.h>
#include <llvm/ADT/StringRef.h>

#include "kernels/kernel.h"

namespace millrace::kernels {

/// A short list of numbers: dims, axes, bounds.
using Ints = llvm::SmallVector<int64_t, 6>;

/// Appends the elements of an int32 or int64 tensor. Errors: another element type; name is the slot
/// for the message.
Status append_ints(const Tensor& tensor, llvm::StringRef name, Ints& out);
/// The only element of an int32 or int64 tensor. Errors: another element type or count.
StatusOr<int64_t> one_int(const Tensor& tensor, llvm::StringRef name);

/// Numbers that a program passes as an attribute, as one tensor, or as a list of one-element
/// tensors. Tensors override the attribute. The single tensor overrides the list, except for
/// reshape2 and a few other ops.
class IntList {
 public:
  IntList() = default;
  /// \param tensor, list  slots; "" where the op has none
  IntList(const KernelSetup& op, llvm::StringRef attr, llvm::StringRef tensor = "",
          llvm::StringRef list = "");

  /// True if the numbers come from tensors and may differ from run to run.
  [[nodiscard]] bool dynamic() const { return list_.count > 0 || tensor_; }
  /// The numbers of the attribute.
  [[nodiscard]] llvm::ArrayRef<int64_t> fixed() const { return fixed_; }
  /// The numbers for this run. Errors: a tensor that holds no integers.
  StatusOr<Ints> read(const KernelContext& ctx) const;

 private:
  std::vector<int64_t> fixed_;   ///< values of the attribute
  ArgIndex tensor_;              ///< one tensor with all numbers; preferred to the attribute
  ArgRange list_;                ///< one tensor for each number
  llvm::StringRef tensor_name_;  ///< for messages
  llvm::StringRef list_name_;    ///< for messages
};

/// Axis counted from the front. Errors: outside [-rank, rank); rank 0 allows 0 and -1.
StatusOr<int64_t> axis_of(int64_t axis, size_t rank);

/// An axis that a program passes as an attribute or as a one-element tensor.
class AxisArg {
 public:
  /// \param tensor  slot of the one-element tensor
  AxisArg(const KernelSetup& op, llvm::StringRef attr, llvm::StringRef tensor);
  /// The axis for an operand of that rank, counted from the front. Errors: as axis_of().
  StatusOr<int64_t> read(const KernelContext& ctx, size_t rank) const;
  /// True if the axis comes from a tensor and may differ from run to run.
  [[nodiscard]] bool dynamic() const { return static_cast<bool>(tensor_); }

 private:
  int64_t fixed_;                ///< value of the attribute
  ArgIndex tensor_;              ///< a tensor with the number; preferred to the attribute
  llvm::StringRef tensor_name_;  ///< for messages
};

/// Sets dtype and dims of an output unless inference has done so. Errors: kResource.
Status size_output(Tensor& out, DType dtype, llvm::ArrayRef<int64_t> dims);

}  // namespace millrace::kernels

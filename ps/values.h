#pragma once

#include <cstdint>

#include <llvm/ADT/ArrayRef.h>

#include "framework/base/status.h"
#include "framework/tensor/value.h"

/// Values on their way between vars and messages.
namespace millrace::ps {

/// Copies into memory that the target has, where both are dense tensors or selected rows; in
/// row-major order. Errors: kResource; kInvalidArgument for a value that cannot travel.
Status copy_value_into(const Value& from, Value& to);

/// The same for a tensor.
Status copy_tensor_into(const Tensor& from, Tensor& to);

/// Zeros in memory of the tensor. Errors: kResource.
Status fill_zeros(Tensor& tensor, DType dtype, llvm::ArrayRef<int64_t> dims);

/// A view of rows [begin, begin + count) of a tensor, which must outlive it and stay as it is.
Tensor view_rows(Tensor& tensor, int64_t begin, int64_t count);

/// Bytes of the elements; 0 for what is neither tensor nor selected rows.
int64_t bytes_of(const Value& value);

}  // namespace millrace::ps

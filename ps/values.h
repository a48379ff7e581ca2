#pragma once

#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include <llvm/ADT/ArrayRef.h>

#include "framework/base/status.h"
#include "framework/tensor/value.h"

/// Copying of values between vars and messages.
namespace millrace::ps {

/// Copies a value. Dense tensors and selected rows are copied in row-major order into memory that
/// the target already has, where it fits. Errors: kResource; kInvalidArgument for a value that
/// cannot be sent in a message.
Status copy_value_into(const Value& from, Value& to);

/// The same for a tensor.
Status copy_tensor_into(const Tensor& from, Tensor& to);

/// Resizes the tensor and fills it with zeros. Errors: kResource.
Status fill_zeros(Tensor& tensor, DType dtype, llvm::ArrayRef<int64_t> dims);

/// A tensor with a copy of some elements. \param dims  of that many elements  Errors: kResource.
template <typename T>
StatusOr<Value> copied_tensor(const std::vector<T>& elements, DType dtype, const Dims& dims) {
  MILLRACE_ASSIGN_OR_RETURN(Tensor tensor, Tensor::create(dtype, dims));
  if (!elements.empty()) std::memcpy(tensor.raw(), elements.data(), elements.size() * sizeof(T));
  Value value;
  value.as<Tensor>() = std::move(tensor);
  return value;
}

/// A view of rows [begin, begin + count) of a tensor. The tensor must outlive the view and must not
/// be resized meanwhile.
Tensor view_rows(Tensor& tensor, int64_t begin, int64_t count);

/// Bytes of the elements; 0 for a value that is neither a tensor nor selected rows.
int64_t bytes_of(const Value& value);

}  // namespace millrace::ps

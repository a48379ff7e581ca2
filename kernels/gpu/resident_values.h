#pragma once

#include "framework/base/status.h"
#include "framework/tensor/tensor.h"

/// What control ops do with values that they pass between blocks, without copies to the processor
/// where the elements are in device memory. All functions accept tensors in process memory as well.
namespace millrace::gpu {

/// Copies type, dims, LoD and elements; the copy is where the elements of `from` are. The tensors
/// do not share memory afterwards. Errors: kResource, kExecution.
Status copy_value_of(const Tensor& from, Tensor& to);

/// Zeros with type, dims and LoD of `like`, in the same memory. Errors: as copy_value_of().
Status make_zeros_like(const Tensor& like, Tensor& to);

/// Adds the elements of `from` to those of `to`, which have the same type and dims, in device
/// memory if one of them is there and they are f32. \returns false if nothing was done: both are in
/// process memory now. Errors: as copy_value_of().
StatusOr<bool> add_resident(Tensor& from, Tensor& to);

/// Row t of a tensor, with the other dims only; may share the memory of the tensor.
StatusOr<Tensor> row_of(const Tensor& tensor, int64_t t);

/// Copies the elements of `row` to row t of `to`, which has room for them. Errors: as
/// copy_value_of().
Status put_row(const Tensor& row, int64_t t, Tensor& to);

/// Sets type and dims of a tensor in the memory where `like` is; the elements are not set.
Status resize_like(const Tensor& like, llvm::ArrayRef<int64_t> dims, Tensor& to);

}  // namespace millrace::gpu

#pragma once

#include "framework/base/status.h"
#include "framework/tensor/value.h"
#include "kernels/kernel.h"

/// Moving values between the scopes of a loop and those around it. Tensors, selected rows and
/// arrays; other content is an error (kInternal).
namespace millrace::executor {

/// Lets `to` see the bytes of `from` without copying.
Status link(const Value& from, Value& to);
/// Copies into memory that `to` has, where both hold tensors.
Status copy_into(const Value& from, Value& to);
/// Adds to what `to` holds; an empty `to` takes a copy. Arrays add element by element, selected
/// rows gain rows. Errors: kExecution where the two do not fit.
Status add_into(const Value& from, Value& to);
/// Zeros with dtype, dims and LoD of a value; an array of zeros for an array.
Status set_zeros_like(const Value& like, Value& to);
Status set_zeros_like(const Tensor& like, Tensor& to);

/// The bool in a condition. Errors: kExecution if it is no bool of one element.
StatusOr<bool> read_condition(const kernels::KernelContext& args, kernels::ArgIndex arg);

/// The step scopes in an argument; null if it holds none.
const StepScopes* scopes_in(const kernels::KernelContext& args, kernels::ArgIndex arg);

}  // namespace millrace::executor

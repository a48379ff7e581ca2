#pragma once

#include "framework/base/status.h"
#include "framework/tensor/value.h"
#include "kernels/kernel.h"

/// Moves values between the scopes of a loop and the enclosing scopes. Supports tensors, selected
/// rows and arrays; other content is an error (kInternal).
namespace millrace::executor {

/// Lets `to` share the memory of `from` without copying.
Status link(const Value& from, Value& to);
/// Copies; reuses the memory of `to` if both hold tensors.
Status copy_into(const Value& from, Value& to);
/// Adds to the content of `to`; an empty `to` gets a copy. Arrays are added element by element,
/// selected rows are appended. Errors: kExecution if the two do not match.
Status add_into(const Value& from, Value& to);
/// Sets zeros with dtype, dims and LoD of a value; an array of zeros for an array.
Status set_zeros_like(const Value& like, Value& to);
Status set_zeros_like(const Tensor& like, Tensor& to);

/// The bool in a condition. Errors: kExecution if it is not a bool of one element.
StatusOr<bool> read_condition(const kernels::KernelContext& args, kernels::ArgIndex arg);

/// The step scopes in an argument; null if it holds none.
const StepScopes* scopes_in(const kernels::KernelContext& args, kernels::ArgIndex arg);

}  // namespace millrace::executor

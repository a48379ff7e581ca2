#pragma once

#include "framework/base/status.h"
#include "framework/tensor/value.h"
#include "framework/var.h"

namespace millrace::executor {

/// Compares a fed value with the declaration of its var (null: none), as far as that asks for it.
/// Errors: kInvalidArgument naming the var, with expected and found; kInvalidData for a bad LoD.
Status check_feed(const Var* var, const Value& value);

/// Takes a value into memory that the target has, where both hold tensors; in row-major order.
Status copy_value(const Value& from, Value& to);

}  // namespace millrace::executor

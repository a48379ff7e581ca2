#pragma once

#include "framework/base/status.h"
#include "framework/tensor/value.h"
#include "framework/var.h"

namespace millrace::executor {

/// Checks type and LoD of a fed value against the declaration of its var (may be null), with
/// need_check_feed also its dims. Errors: kInvalidArgument naming the var; kInvalidData (bad LoD).
Status check_feed(const Var* var, const Value& value);

/// Copies a value, in row-major order. Reuses the memory of the target if both hold tensors.
Status copy_value(const Value& from, Value& to);

}  // namespace millrace::executor

#pragma once

#include <string>

#include "framework/base/status.h"
#include "framework/tensor/value.h"
#include "framework/var.h"

namespace millrace::gpu {
class Memory;
}

namespace millrace::executor {

/// Checks type and LoD of a fed value against the declaration of its var (may be null), with
/// need_check_feed also its dims. Errors: kInvalidArgument naming the var; kInvalidData (bad LoD).
Status check_feed(const Var* var, const Value& value);

/// Copies a value, in row-major order. Reuses the memory of the target if both hold tensors.
Status copy_value(const Value& from, Value& to);

/// Copies a fed value to where the value of an earlier run is, so that steps find it in the same
/// memory.
/// \param memory  of the GPU that the program runs on; null: none
/// Errors: kResource, kExecution.
Status copy_feed(const std::string& name, const Value& value, gpu::Memory* memory, Value& target);

}  // namespace millrace::executor

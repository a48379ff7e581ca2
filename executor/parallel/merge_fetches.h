#pragma once

#include <string>

#include <llvm/ADT/ArrayRef.h>

#include "framework/base/status.h"
#include "framework/tensor/value.h"

namespace millrace::executor {

/// Concatenates the values of a fetched var from all devices along dim 0, in device order; tensors
/// without dims become a vector. The LoD of each part continues after the part before. Parts
/// without content are ignored. Arrays are joined element by element.
///
/// \param name  of the var, for messages
/// Errors: kInvalidArgument for parts that do not match, and for selected rows.
Status merge_parts(const std::string& name, llvm::ArrayRef<const Value*> parts, Value& whole);

}  // namespace millrace::executor

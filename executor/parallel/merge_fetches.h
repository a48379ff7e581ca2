#pragma once

#include <string>

#include <llvm/ADT/ArrayRef.h>

#include "framework/base/status.h"
#include "framework/tensor/value.h"

namespace millrace::executor {

/// Joins what devices gave for a fetched var along dim 0, in their order; numbers without dims
/// become a vector. LoD goes on where the part before ends. Parts without content count for
/// nothing. Arrays are joined element by element.
///
/// \param name  of the var, for messages
/// Errors: kInvalidArgument for parts that do not fit together, and for selected rows.
Status merge_parts(const std::string& name, llvm::ArrayRef<const Value*> parts, Value& whole);

}  // namespace millrace::executor

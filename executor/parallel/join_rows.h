#pragma once

#include <llvm/ADT/ArrayRef.h>

#include "framework/base/status.h"
#include "framework/tensor/value.h"

namespace millrace::executor {

/// All rows of several parts, one part behind the other; rows that occur twice stay twice. The
/// height is that of the first. Errors: kExecution for parts whose rows differ in dims or element
/// type; kResource.
Status join_rows(llvm::ArrayRef<const SelectedRows*> parts, SelectedRows& all);

}  // namespace millrace::executor

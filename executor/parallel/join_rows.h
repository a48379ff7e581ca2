#pragma once

#include <llvm/ADT/ArrayRef.h>

#include "framework/base/status.h"
#include "framework/tensor/value.h"

namespace millrace::executor {

/// Concatenates the rows of several parts; repeated rows are kept. The height is that of the first
/// part. Errors: kExecution for parts whose rows differ in dims or element type; kResource.
Status join_rows(llvm::ArrayRef<const SelectedRows*> parts, SelectedRows& all);

}  // namespace millrace::executor

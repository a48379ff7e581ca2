#pragma once

#include "executor/collective/collective_group.h"
#include "framework/tensor/value.h"

namespace millrace::executor {

/// Replaces rows by those of all ranks in order, keeping repeats; together they are the sum of the
/// sparse gradients.
/// Errors: kInvalidData if ranks differ in height, width or type; those of the group.
Status gather_rows(CollectiveGroup& group, SelectedRows& rows);

}  // namespace millrace::executor

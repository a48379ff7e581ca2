#pragma once

#include "executor/collective/collective_group.h"
#include "framework/tensor/value.h"

namespace millrace::executor {

/// Replaces rows by those of all ranks in order, repeats kept: the sum of sparse gradients.
/// Errors: kInvalidData where ranks differ in height, width or type; those of the group.
Status gather_rows(CollectiveGroup& group, SelectedRows& rows);

}  // namespace millrace::executor

#pragma once

#include <string>
#include <vector>

#include <llvm/ADT/ArrayRef.h>

#include "transpiler/parallel/gradients.h"

namespace millrace::transpiler {

/// Marks the updates that the devices of a process can compute together. Each device can access the
/// parameter copies and gradients of all, so each element is summed and updated once and written to
/// all copies. Without this, the sum is written to all gradients and every device updates all
/// elements.
///
/// This is possible if the update works element by element, its gradient comes directly from
/// back-propagation and is read by no other op, and everything the update writes is persistable.
/// Such an op gets the attribute `shared_update`, its number in the program, and its gradient is
/// removed from `grads`: it needs no exchange. `shared_updates_end` is inserted after the updates,
/// before any op that reads or writes what they write.
///
/// \param keep  gradients whose sums are needed, and vars that may differ between devices
/// \returns the number of marked updates
int share_updates(Program& program, std::vector<ParallelGrad>& grads,
                  llvm::ArrayRef<std::string> keep);

}  // namespace millrace::transpiler

#pragma once

#include <string>
#include <vector>

#include <llvm/ADT/ArrayRef.h>

#include "transpiler/parallel/gradients.h"

namespace millrace::transpiler {

/// Marks the updates that the devices of a process can make together: all have the parameter and a
/// part of its gradient in reach, so each element is summed and updated once and written to the
/// copies of all, instead of summed into all gradients and updated on every device.
///
/// That can be done where the update works element by element, its gradient comes straight from
/// back-propagation and is read by nothing else, and what it writes is persistable. Such an op gets
/// the attribute `shared_update`, its number in the program, and its gradient leaves `grads`: it
/// needs no exchange. Behind the updates, before an op that touches what they write, stands
/// `shared_updates_end`.
///
/// \param keep  gradients that are wanted as sums, and vars in which devices may differ
/// \returns how many updates were marked
int share_updates(Program& program, std::vector<ParallelGrad>& grads,
                  llvm::ArrayRef<std::string> keep);

}  // namespace millrace::transpiler

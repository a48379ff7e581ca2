#pragma once

#include <string>
#include <vector>

#include "framework/block.h"

namespace millrace::transpiler {

/// Moves the ops that compute some of the ids in front of the first op that reads one of the
/// outputs, with everything they need; nothing moves where all ids are known before. The order
/// among those that move stays.
///
/// \returns false, with the block as it was, where an id depends on one of the outputs
bool move_ids_forward(Block& block, const std::vector<std::string>& ids,
                      const std::vector<std::string>& outputs);

}  // namespace millrace::transpiler

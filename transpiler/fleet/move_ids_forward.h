#pragma once

#include <string>
#include <vector>

#include "framework/block.h"

namespace millrace::transpiler {

/// Moves the ops that compute some of the ids, with everything they need, before the first op that
/// reads one of the outputs. Nothing moves if all ids are already computed before that op. The
/// moved ops keep their order.
///
/// \returns false, with the block unchanged, if an id depends on one of the outputs
bool move_ids_forward(Block& block, const std::vector<std::string>& ids,
                      const std::vector<std::string>& outputs);

}  // namespace millrace::transpiler

#pragma once

#include <string>
#include <vector>

#include "framework/block.h"

/// Which vars a program takes from outside, and which it leaves there.
namespace millrace::interchange::pir {

/// Vars of the root block, each list in the order of their declaration.
struct ProgramState {
  std::vector<std::string>
      stored;                     ///< persistable; their value before the run is read, or may stay
  std::vector<std::string> fed;   ///< not persistable, no feed op sets them, read before written
  std::vector<std::string> made;  ///< persistable; written without a look at the old value
};

/// Looks at the ops in their order, blocks of loops and branches included: what these write may
/// keep its old value. Holders of feeds and fetches, arrays and scopes are left out.
ProgramState state_of(const Block& root);

/// The vars that a program without fetch ops returns: the losses, as the role of their ops says;
/// without such ops, tensors of the root block that an op computes and no op reads.
std::vector<std::string> natural_results(const Block& root);

}  // namespace millrace::interchange::pir

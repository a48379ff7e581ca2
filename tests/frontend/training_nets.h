#pragma once

#include <span>
#include <vector>

#include "frontend/layers.h"

namespace millrace {

/// A network of the training references, written with the front end.
struct TrainingNet {
  const char* name;  ///< of the reference
  /// Appends the forward ops; returns the losses.
  std::vector<VarRef> (*build)(Network& net);
  /// Options for minimizing each loss, in order.
  std::vector<MinimizeOptions> (*options)();
};

/// All of them.
std::span<const TrainingNet> training_nets();

}  // namespace millrace

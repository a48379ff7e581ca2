#pragma once

#include <cstdint>
#include <memory>

#include "framework/program.h"

namespace millrace::bench {

/// A training program of fully connected layers with sgd and its startup program.
struct FcNet {
  std::unique_ptr<Program> main;
  std::unique_ptr<Program> startup;
};

/// Layers of mul, elementwise_add and relu with their gradients, and two sgd ops each: eight ops
/// per layer. \param layers  >= 1 \param width   neurons per layer; a weight is f32[width, width]
FcNet fc_net(int64_t layers, int64_t width);

}  // namespace millrace::bench

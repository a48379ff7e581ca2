#pragma once

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

/// How the startup program fills a parameter. Plain values. Seed 0 means the seed of the network.
namespace millrace::init {

/// All elements have the same value.
struct Constant {
  double value = 0;
};

/// Uniform in [low, high).
struct Uniform {
  double low = -1;
  double high = 1;
  int32_t seed = 0;
};

struct Normal {
  double mean = 0;
  double std = 1;
  int32_t seed = 0;
};

/// Normal distribution; values more than two standard deviations from the mean are drawn again.
struct TruncatedNormal {
  double mean = 0;
  double std = 1;
  int32_t seed = 0;
};

/// Variance 2 / (fan_in + fan_out). The fans are computed from the dims unless given.
struct Xavier {
  bool uniform = true;  ///< false: normal
  std::optional<double> fan_in = {};
  std::optional<double> fan_out = {};
  int32_t seed = 0;
};

/// Variance 2 / fan_in; for layers with relu.
struct Msra {
  bool uniform = true;  ///< false: normal
  std::optional<double> fan_in = {};
  int32_t seed = 0;
};

/// The given elements in row-major order; their number must be that of the parameter.
struct Values {
  std::vector<float> values = {};
};

}  // namespace millrace::init

namespace millrace {

/// Any initializer.
using Initializer = std::variant<init::Constant, init::Uniform, init::Normal, init::TruncatedNormal,
                                 init::Xavier, init::Msra, init::Values>;

}  // namespace millrace

#pragma once

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

/// How the startup program fills a parameter. Plain values. A seed of 0 is the network's.
namespace millrace::init {

/// The same value everywhere.
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

/// Normal, drawn again where it is more than two deviations off.
struct TruncatedNormal {
  double mean = 0;
  double std = 1;
  int32_t seed = 0;
};

/// Variance 2 / (fan_in + fan_out); the fans come from the dims unless they are given.
struct Xavier {
  bool uniform = true;  ///< false: normal
  std::optional<double> fan_in = {};
  std::optional<double> fan_out = {};
  int32_t seed = 0;
};

/// Variance 2 / fan_in, for layers with relu.
struct Msra {
  bool uniform = true;  ///< false: normal
  std::optional<double> fan_in = {};
  int32_t seed = 0;
};

/// The given elements in row-major order, as many as the parameter has.
struct Values {
  std::vector<float> values = {};
};

}  // namespace millrace::init

namespace millrace {

/// Any of them.
using Initializer = std::variant<init::Constant, init::Uniform, init::Normal, init::TruncatedNormal,
                                 init::Xavier, init::Msra, init::Values>;

}  // namespace millrace

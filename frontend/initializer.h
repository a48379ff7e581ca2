#pragma once

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

/// How the startup program fills a parameter. Plain values. Seed 0 means the seed of the network.
namespace millrace::init {

/// All elements have the same value.
struct Constant {
  double value = 0;  ///< of every element
};

/// Uniform in [low, high).
struct Uniform {
  double low = -1;   ///< smallest number
  double high = 1;   ///< never reached
  int32_t seed = 0;  ///< of the op's random numbers
};

/// Normal distribution.
struct Normal {
  double mean = 0;
  double std = 1;  ///< standard deviation
  int32_t seed = 0;
};

/// Normal distribution; values more than two standard deviations from the mean are drawn again.
struct TruncatedNormal {
  double mean = 0;
  double std = 1;
  int32_t seed = 0;
};

/// Variance 2 / (fan_in + fan_out). The fans are computed from the dims unless given.
/// Source: Glorot and Bengio, "Understanding the difficulty of training deep feedforward neural
/// networks", 2010.
struct Xavier {
  bool uniform = true;                 ///< false: normal
  std::optional<double> fan_in = {};   ///< inputs of each output element
  std::optional<double> fan_out = {};  ///< outputs that each input element affects
  int32_t seed = 0;
};

/// Variance 2 / fan_in; for layers with relu.
/// Source: He et al., "Delving deep into rectifiers", 2015.
struct Msra {
  bool uniform = true;  ///< false: normal
  std::optional<double> fan_in = {};
  int32_t seed = 0;
};

/// The given elements in row-major order; their number must be that of the parameter.
struct Values {
  std::vector<float> values = {};  ///< converted to the type of the parameter
};

}  // namespace millrace::init

namespace millrace {

/// Any initializer.
using Initializer = std::variant<init::Constant, init::Uniform, init::Normal, init::TruncatedNormal,
                                 init::Xavier, init::Msra, init::Values>;

}  // namespace millrace

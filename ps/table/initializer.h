#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "framework/base/status.h"
#include "ps/table/keyed_random.h"

namespace millrace::ps {

/// Determines the initial values of a new row.
struct Initializer {
  enum class Kind : uint8_t { kConstant, kUniform, kGaussian, kTruncatedGaussian };
  Kind kind = Kind::kConstant;
  uint64_t seed = 0;
  float a = 0;  ///< the constant; lower bound; mean
  float b = 0;  ///< upper bound; standard deviation

  /// Fills values in order from the random numbers of one row. Truncated: within two standard
  /// deviations.
  void fill(std::span<float> values, KeyedRandom& random) const;
};

/// Parses "uniform_random&seed&min&max", "gaussian_random&seed&mean&std",
/// "truncated_gaussian_random&seed&mean&std" or "fill_constant&value". Does not accept comma or
/// colon separators. Errors: kInvalidArgument with the text.
/// Source: spec/ps_runtime.md section 7.
StatusOr<Initializer> parse_initializer(std::string_view text);
/// The text form, which parse_initializer() reads.
std::string initializer_text(const Initializer& initializer);

}  // namespace millrace::ps

#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "framework/base/status.h"
#include "ps/table/keyed_random.h"

namespace millrace::ps {

/// How the values of a new row begin.
struct Initializer {
  enum class Kind : uint8_t { kConstant, kUniform, kGaussian, kTruncatedGaussian };
  Kind kind = Kind::kConstant;
  uint64_t seed = 0;
  float a = 0;  ///< the constant; lower end; mean
  float b = 0;  ///< upper end; deviation

  /// Fills values in order from one row's random numbers. Truncated: within two deviations.
  void fill(std::span<float> values, KeyedRandom& random) const;
};

/// "uniform_random&seed&min&max", "gaussian_random&seed&mean&std",
/// "truncated_gaussian_random&seed&mean&std", "fill_constant&value"; a comma or colon form of
/// other lists is not for this. Errors: kInvalidArgument with the text.
/// Source: spec/ps_runtime.md section 7.
StatusOr<Initializer> parse_initializer(std::string_view text);
/// The text that parse_initializer() reads.
std::string initializer_text(const Initializer& initializer);

}  // namespace millrace::ps

#pragma once

#include <concepts>
#include <cstdint>
#include <limits>

#include <CLI/CLI.hpp>

/// Checks of numeric options, instead of those of CLI11, which accept NaN and text that is only
/// partly a number, read 010 as 8, and clamp numbers that do not fit. Each has the message
/// "expected a number from 0 to 1, found 'x'". Leading zeros are refused.
namespace millrace::tools {

/// A whole number, decimal or 0x..., for an option whose var may be as large as uint64_t.
CLI::Validator whole_number_between(int64_t least, uint64_t most);

/// A finite number from `least` to `most`.
CLI::Validator real_number(double least, double most = std::numeric_limits<double>::max());

/// A finite number above 0.
CLI::Validator positive_number();

/// A whole number from `least` to `most`. Without arguments any number that T can hold.
template <std::integral T>
CLI::Validator whole_number(T least = std::numeric_limits<T>::min(),
                            T most = std::numeric_limits<T>::max()) {
  const int64_t from = std::unsigned_integral<T> ? 0 : static_cast<int64_t>(least);
  return whole_number_between(from, static_cast<uint64_t>(most));
}

}  // namespace millrace::tools

#pragma once

#include <charconv>
#include <cmath>
#include <system_error>

namespace millrace::io {

/// Like std::from_chars, but a number that is too small for a float becomes the nearest one, 0
/// included, as in other readers of such files; std::from_chars refuses it like one that is too
/// large. The latter, and numbers below the range of double, are std::errc::result_out_of_range.
inline std::from_chars_result float_from_chars(const char* begin, const char* end, float& value) {
  const std::from_chars_result result = std::from_chars(begin, end, value);
  if (result.ec != std::errc::result_out_of_range) return result;
  double wide = 0;
  const std::from_chars_result again = std::from_chars(begin, end, wide);
  if (again.ec != std::errc() || std::abs(wide) > 1) return result;
  value = static_cast<float>(wide);
  return again;
}

}  // namespace millrace::io

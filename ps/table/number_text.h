#pragma once

#include <charconv>
#include <string_view>
#include <system_error>

namespace millrace::ps {

/// Reads a number of type T that is the whole text; a plus, blanks and an empty text are not
/// accepted. \returns false, and an unspecified number, for other texts
template <typename T>
bool read_number(std::string_view text, T& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace millrace::ps

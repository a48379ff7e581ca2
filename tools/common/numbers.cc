#include "tools/common/numbers.h"

#include <charconv>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include <fmt/format.h>

namespace millrace::tools {
namespace numbers_parts {
namespace {

struct Whole {
  bool negative = false;
  uint64_t magnitude = 0;
};

std::string_view without_plus(std::string_view text) {
  return text.size() > 1 && text[0] == '+' && text[1] != '-' ? text.substr(1) : text;
}

template <typename T, typename... Format>
bool takes_all(std::string_view text, T& value, Format... format) {
  const char* const end = text.data() + text.size();
  const std::from_chars_result read = std::from_chars(text.data(), end, value, format...);
  return !text.empty() && read.ec == std::errc() && read.ptr == end;
}

std::optional<Whole> parse_whole(std::string_view text) {
  Whole number;
  text = without_plus(text);
  number.negative = text.starts_with('-');
  if (number.negative) text.remove_prefix(1);
  const bool is_hex = text.starts_with("0x") || text.starts_with("0X");
  if (is_hex) text.remove_prefix(2);
  if (!is_hex && text.size() > 1 && text.starts_with('0')) return std::nullopt;  // octal?
  if (!takes_all(text, number.magnitude, is_hex ? 16 : 10)) return std::nullopt;
  return number;
}

bool fits(const Whole& number, int64_t least, uint64_t most) {
  if (number.negative && number.magnitude != 0)
    return least < 0 && number.magnitude <= 0 - static_cast<uint64_t>(least);
  return number.magnitude <= most &&
         (least <= 0 || number.magnitude >= static_cast<uint64_t>(least));
}

// The number in `text`; nullopt for anything that is no finite number.
std::optional<double> parse_real(std::string_view text) {
  double number = 0;
  if (!takes_all(without_plus(text), number) || !std::isfinite(number)) return std::nullopt;
  return number;
}

}  // namespace
}  // namespace numbers_parts

CLI::Validator whole_number_between(int64_t least, uint64_t most) {
  return {[least, most](std::string& text) {
            using namespace numbers_parts;
            const std::optional<Whole> number = parse_whole(text);
            if (number && fits(*number, least, most)) return std::string();
            if (most == std::numeric_limits<int64_t>::max())
              return fmt::format("expected a whole number of at least {}, found '{}'", least, text);
            return fmt::format("expected a whole number from {} to {}, found '{}'", least, most,
                               text);
          },
          ""};
}

CLI::Validator real_number(double least, double most) {
  return {[least, most](std::string& text) {
            const std::optional<double> number = numbers_parts::parse_real(text);
            if (number && *number >= least && *number <= most) return std::string();
            if (most == std::numeric_limits<double>::max())
              return fmt::format("expected a number of at least {}, found '{}'", least, text);
            return fmt::format("expected a number from {} to {}, found '{}'", least, most, text);
          },
          ""};
}

CLI::Validator positive_number() {
  return {[](std::string& text) {
            const std::optional<double> number = numbers_parts::parse_real(text);
            return number && *number > 0
                       ? std::string()
                       : fmt::format("expected a number above 0, found '{}'", text);
          },
          ""};
}

}  // namespace millrace::tools

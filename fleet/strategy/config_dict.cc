#include "fleet/strategy/config_dict.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>
#include <utility>

#include "framework/base/errors.h"
#include "framework/base/text.h"

namespace millrace::fleet {
namespace {

constexpr const char* kKinds[] = {"a boolean", "a whole number",    "a number",
                                  "a string",  "a list of numbers", "a list of strings"};

}  // namespace

ConfigReader::ConfigReader(const ConfigDict& dict, std::string what)
    : dict_(dict), what_(std::move(what)) {}

const ConfigValue* ConfigReader::find(const std::string& key) const {
  asked_.insert(key);
  const auto at = dict_.find(key);
  return at == dict_.end() ? nullptr : &at->second;
}

std::vector<std::string> ConfigReader::unread() const {
  std::vector<std::string> keys;
  for (const auto& [key, value] : dict_) {
    if (!asked_.contains(key)) keys.push_back(key);
  }
  return keys;
}

void ConfigReader::fail(const std::string& key, const char* expected, const ConfigValue& found) {
  if (!status_.ok()) return;
  status_ =
      InvalidArgument("{}.{}: expected {}, found {}", what_, key, expected, kKinds[found.index()]);
}

double ConfigReader::number(const std::string& key, double fallback) {
  const ConfigValue* const value = find(key);
  if (value == nullptr) return fallback;
  if (const auto* const number = std::get_if<double>(value)) {
    if (std::abs(*number) <= std::numeric_limits<float>::max()) return *number;
    if (status_.ok())
      status_ = InvalidArgument("{}.{}: expected a number that float32 can hold, found {}", what_,
                                key, *number);
    return fallback;
  }
  if (const auto* const whole = std::get_if<int64_t>(value)) return static_cast<double>(*whole);
  if (const auto* const flag = std::get_if<bool>(value)) return *flag ? 1 : 0;
  fail(key, "a number", *value);
  return fallback;
}

int64_t ConfigReader::integer(const std::string& key, int64_t fallback) {
  const ConfigValue* const value = find(key);
  if (value == nullptr) return fallback;
  if (const auto* const whole = std::get_if<int64_t>(value)) return *whole;
  if (const auto* const flag = std::get_if<bool>(value)) return *flag ? 1 : 0;
  fail(key, "a whole number", *value);
  return fallback;
}

int32_t ConfigReader::small_integer(const std::string& key, int32_t fallback) {
  const int64_t value = integer(key, fallback);
  if (std::in_range<int32_t>(value)) return static_cast<int32_t>(value);
  if (status_.ok())
    status_ =
        InvalidArgument("{}.{}: expected a whole number of 32 bits, found {}", what_, key, value);
  return fallback;
}

uint32_t ConfigReader::count(const std::string& key, uint32_t fallback) {
  const int64_t value = integer(key, fallback);
  if (value >= 0 && value <= std::numeric_limits<uint32_t>::max())
    return static_cast<uint32_t>(value);
  if (status_.ok())
    status_ = InvalidArgument("{}.{}: expected a whole number >= 0, found {}", what_, key, value);
  return fallback;
}

bool ConfigReader::boolean(const std::string& key, bool fallback) {
  const ConfigValue* const value = find(key);
  if (value == nullptr) return fallback;
  if (const auto* const flag = std::get_if<bool>(value)) return *flag;
  if (const auto* const whole = std::get_if<int64_t>(value)) return *whole != 0;
  fail(key, "a boolean", *value);
  return fallback;
}

std::string ConfigReader::text(const std::string& key, const std::string& fallback) {
  const ConfigValue* const value = find(key);
  if (value == nullptr) return fallback;
  if (const auto* const found = std::get_if<std::string>(value)) return *found;
  fail(key, "a string", *value);
  return fallback;
}

std::vector<double> ConfigReader::numbers(const std::string& key,
                                          const std::vector<double>& fallback) {
  const ConfigValue* const value = find(key);
  if (value == nullptr) return fallback;
  if (const auto* const found = std::get_if<std::vector<double>>(value)) return *found;
  fail(key, "a list of numbers", *value);
  return fallback;
}

std::vector<std::string> ConfigReader::texts(const std::string& key) {
  const ConfigValue* const value = find(key);
  if (value == nullptr) return {};
  if (const auto* const found = std::get_if<std::vector<std::string>>(value)) return *found;
  // an empty list has no element type
  const auto* const numbers = std::get_if<std::vector<double>>(value);
  if (numbers == nullptr || !numbers->empty()) fail(key, "a list of strings", *value);
  return {};
}

Status check_keys(const ConfigDict& dict, const std::vector<std::string_view>& known,
                  const std::string& what) {
  for (const auto& [key, value] : dict) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    Status status = InvalidArgument("{}: key '{}' is not known", what, key);
    const std::string near = nearest_name(key, known);
    if (near.empty()) return status;
    return std::move(status).with_hint("did you mean '" + near + "'?");
  }
  return Ok();
}

}  // namespace millrace::fleet

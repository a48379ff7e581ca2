#pragma once

#include <cmath>
#include <concepts>
#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "framework/base/status.h"

namespace millrace::jobs {

/// Reads the members of one JSON object into variables that hold the defaults. The first error is
/// kept and returned by finish(), with the path of the member: "'optimizer[0].beta1': expected a
/// number, found a string". Members that are null count as absent.
///
///   JsonFields fields(json, "schedule");
///   fields.number("decay_steps", decay.decay_steps).boolean("staircase", decay.staircase);
///   MILLRACE_RETURN_IF_ERROR(fields.finish());
class JsonFields {
 public:
  /// \param path  path of the object from the top of the file; empty for the top itself
  JsonFields(const nlohmann::json& object, std::string path);

  /// A number in the range of float32, which programs have it as.
  JsonFields& number(const std::string& key, double& out);
  JsonFields& number(const std::string& key, std::optional<double>& out);
  JsonFields& number(const std::string& key, float& out);  ///< the same, rounded
  /// A whole number that the type can hold.
  template <std::integral T>
  JsonFields& whole(const std::string& key, T& out);
  JsonFields& boolean(const std::string& key, bool& out);
  JsonFields& text(const std::string& key, std::string& out);
  JsonFields& numbers(const std::string& key, std::vector<double>& out);
  JsonFields& strings(const std::string& key, std::vector<std::string>& out);
  /// Members that are allowed but ignored.
  JsonFields& ignore(std::initializer_list<const char*> keys);
  /// Requires that the member is present.
  JsonFields& require(const std::string& key);
  /// The member, marked as read; null if it is absent.
  const nlohmann::json* find(const std::string& key);

  /// "optimizer[0].schedule"
  [[nodiscard]] std::string path_of(const std::string& key) const;
  /// kInvalidArgument for a member of the wrong type, a required one that is absent, or an unknown
  /// one.
  Status finish();
  /// What finish() says of each unknown member; for files in which they are only warned of.
  [[nodiscard]] std::vector<Status> unknown() const;
  /// The same as finish() without the check for unknown members.
  [[nodiscard]] Status status() const { return status_; }

 private:
  void fail(const std::string& key, const char* expected, const nlohmann::json& found);

  const nlohmann::json* object_;  ///< null if the value is not an object
  std::string path_;
  std::set<std::string> known_;
  Status status_;
};

template <std::integral T>
JsonFields& JsonFields::whole(const std::string& key, T& out) {
  const nlohmann::json* const value = find(key);
  if (value == nullptr) return *this;
  const auto take = [&](auto number) {
    const bool fits = std::in_range<T>(number);
    if (fits) out = static_cast<T>(number);
    return fits;
  };
  constexpr double kMostExact = 9007199254740992.0;  // of whole numbers in a double
  const double real = value->is_number_float() ? value->get<double>() : 0.5;
  const bool is_whole = std::trunc(real) == real && std::abs(real) < kMostExact;
  const bool taken = value->is_number_unsigned()  ? take(value->get<uint64_t>())
                     : value->is_number_integer() ? take(value->get<int64_t>())
                                                  : is_whole && take(static_cast<int64_t>(real));
  if (!taken) {
    using Limits = std::numeric_limits<T>;
    fail(key, fmt::format("a whole number from {} to {}", Limits::min(), Limits::max()).c_str(),
         *value);
  }
  return *this;
}

/// Parses a text that must be one JSON object in which no member occurs twice. Errors: kInvalidData
/// with line and column; kInvalidArgument with what was found instead of an object.
StatusOr<nlohmann::json> parse_json_object(const std::string& text);

/// "a number", "a string", "null", ... for messages.
std::string json_kind(const nlohmann::json& value);

}  // namespace millrace::jobs

#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "framework/base/status.h"

namespace millrace::fleet {

/// A value of a configuration, as written by users.
using ConfigValue =
    std::variant<bool, int64_t, double, std::string, std::vector<double>, std::vector<std::string>>;
/// Values by key.
using ConfigDict = std::map<std::string, ConfigValue>;

/// Reads values from a dictionary; returns the default if the key is absent. status() has the first
/// value of a wrong type, with the key and what was expected and found.
class ConfigReader {
 public:
  /// \param dict  must outlive the reader
  /// \param what  prefix of keys in messages ("fleet_desc_configs['emb']")
  ConfigReader(const ConfigDict& dict, std::string what);

  [[nodiscard]] bool has(const std::string& key) const { return dict_.count(key) != 0; }
  /// Numbers that float32 can hold, as servers compute with it; true and false count as 1 and 0.
  double number(const std::string& key, double fallback);
  /// Whole numbers.
  int64_t integer(const std::string& key, int64_t fallback);
  /// Whole numbers that 32 bits can hold; larger ones are errors.
  int32_t small_integer(const std::string& key, int32_t fallback);
  /// Whole numbers >= 0; negative ones are errors.
  uint32_t count(const std::string& key, uint32_t fallback);
  bool boolean(const std::string& key, bool fallback);
  std::string text(const std::string& key, const std::string& fallback);
  std::vector<double> numbers(const std::string& key, const std::vector<double>& fallback);
  std::vector<std::string> texts(const std::string& key);
  /// OK, or kInvalidArgument naming the key.
  [[nodiscard]] const Status& status() const { return status_; }
  /// Keys that were never read, in order.
  [[nodiscard]] std::vector<std::string> unread() const;

 private:
  const ConfigValue* find(const std::string& key) const;
  void fail(const std::string& key, const char* expected, const ConfigValue& found);

  const ConfigDict& dict_;
  std::string what_;
  Status status_;
  mutable std::set<std::string> asked_;
};

/// Errors: kInvalidArgument for an unknown key, with the most similar known key as a hint.
Status check_keys(const ConfigDict& dict, const std::vector<std::string_view>& known,
                  const std::string& what);

}  // namespace millrace::fleet

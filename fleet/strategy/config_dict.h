#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "framework/base/status.h"

namespace millrace::fleet {

/// A value of a configuration, as users write it.
using ConfigValue =
    std::variant<bool, int64_t, double, std::string, std::vector<double>, std::vector<std::string>>;
/// Values by key.
using ConfigDict = std::map<std::string, ConfigValue>;

/// Reads values out of a dictionary: the default where the key is absent. The first wrong type is
/// kept and said by status(), with the key and what was expected and found.
class ConfigReader {
 public:
  /// \param dict  must outlive the reader
  /// \param what  comes before keys in messages ("fleet_desc_configs['emb']")
  ConfigReader(const ConfigDict& dict, std::string what);

  [[nodiscard]] bool has(const std::string& key) const { return dict_.count(key) != 0; }
  /// Numbers; true and false count as 1 and 0.
  double number(const std::string& key, double fallback);
  /// Whole numbers.
  int64_t integer(const std::string& key, int64_t fallback);
  /// Whole numbers of 0 and above. Negative ones are errors.
  uint32_t count(const std::string& key, uint32_t fallback);
  bool boolean(const std::string& key, bool fallback);
  std::string text(const std::string& key, const std::string& fallback);
  std::vector<double> numbers(const std::string& key, const std::vector<double>& fallback);
  std::vector<std::string> texts(const std::string& key);
  /// kInvalidArgument naming the key.
  [[nodiscard]] const Status& status() const { return status_; }
  /// Keys that nobody has asked for, in order.
  [[nodiscard]] std::vector<std::string> unread() const;

 private:
  const ConfigValue* find(const std::string& key) const;
  void fail(const std::string& key, const char* expected, const ConfigValue& found);

  const ConfigDict& dict_;
  std::string what_;
  Status status_;
  mutable std::set<std::string> asked_;
};

/// kInvalidArgument for a key that is none of the known ones, with the nearest as a hint.
Status check_keys(const ConfigDict& dict, const std::vector<std::string_view>& known,
                  const std::string& what);

}  // namespace millrace::fleet

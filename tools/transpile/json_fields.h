#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "framework/base/status.h"

namespace millrace::tools {

/// Reads the members of one JSON object into values that hold the defaults. The first thing that is
/// wrong is kept and said by finish(), with the way to it: "'optimizer[0].beta1': expected a
/// number, found a string". Members that are null count as absent.
///
///   JsonFields fields(json, "schedule");
///   fields.number("decay_steps", decay.decay_steps).boolean("staircase", decay.staircase);
///   MILLRACE_RETURN_IF_ERROR(fields.finish());
class JsonFields {
 public:
  /// \param path  way to the object from the top of the file; empty for the top itself
  JsonFields(const nlohmann::json& object, std::string path);

  JsonFields& number(const std::string& key, double& out);
  JsonFields& number(const std::string& key, std::optional<double>& out);
  JsonFields& boolean(const std::string& key, bool& out);
  JsonFields& text(const std::string& key, std::string& out);
  JsonFields& numbers(const std::string& key, std::vector<double>& out);
  JsonFields& strings(const std::string& key, std::vector<std::string>& out);
  /// Members that may stand here and say nothing.
  JsonFields& ignore(std::initializer_list<const char*> keys);
  /// Demands that the member is there.
  JsonFields& require(const std::string& key);
  /// The member, counted as read; null if it is absent.
  const nlohmann::json* find(const std::string& key);

  /// "optimizer[0].schedule"
  [[nodiscard]] std::string path_of(const std::string& key) const;
  /// kInvalidArgument for a member of the wrong type, an absent one, or one that nobody has read.
  Status finish();
  /// The same without asking for members that nobody has read.
  [[nodiscard]] Status status() const { return status_; }

 private:
  void fail(const std::string& key, const char* expected, const nlohmann::json& found);

  const nlohmann::json* object_;  ///< null if it is none
  std::string path_;
  std::set<std::string> known_;
  Status status_;
};

/// "a number", "a string", "null", ... for messages.
std::string json_kind(const nlohmann::json& value);

}  // namespace millrace::tools

#pragma once

#include <set>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "framework/base/status.h"

namespace millrace::tools {

/// Carries a Status through CLI11, which reports errors only by exceptions; caught in Tool::run().
struct ConfigFailure {
  Status status;
};

/// Reads --config FILE.json for CLI11. Keys are flag names with `_` for `-`. Lists become lists,
/// objects are passed as their JSON text, and null counts as absent.
class JsonConfig final : public CLI::Config {
 public:
  /// \param keys  receives the keys that were found
  JsonConfig(const CLI::App& app, std::set<std::string>& keys) : app_(app), keys_(keys) {}

  [[nodiscard]] std::string to_config(const CLI::App* app, bool default_also,
                                      bool write_description, std::string prefix) const override;
  /// Throws ConfigFailure for text that is not a JSON object and for unknown keys.
  [[nodiscard]] std::vector<CLI::ConfigItem> from_config(std::istream& input) const override;

 private:
  const CLI::App& app_;
  std::set<std::string>& keys_;
};

/// Long option names of an app, without dashes; for suggestions.
std::vector<std::string> long_names(const CLI::App& app);

}  // namespace millrace::tools

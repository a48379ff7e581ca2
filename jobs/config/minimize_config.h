#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "framework/base/status.h"
#include "ops/minimize/options.h"

namespace millrace::jobs {

/// The contents of the file of --minimize.
struct MinimizeConfig {
  /// One loss after another, each with its own optimizer.
  struct Loss {
    std::string name;
    MinimizeOptions options;
    /// The scheduler object that sets the rate (SteppedRate), as JSON from the configuration;
    /// empty: none.
    std::string schedule = {};
  };
  std::vector<Loss> losses;
  bool has_optimizers = false;  ///< the file has "optimizer"; gradients alone need none
  /// Numbers of name scopes that already exist, by prefix ("name_scopes"): the original keeps
  /// counting across all programs of one process.
  std::map<std::string, int64_t> name_scopes;
};

/// Reads the text of such a file, JSON. Members of config.json of the training references that only
/// describe the result are ignored; other unknown members are errors. Errors: kInvalidArgument with
/// the member, and what was expected and found; kInvalidData for text that is no JSON.
StatusOr<MinimizeConfig> parse_minimize_config(const std::string& text);

/// The same for a file, which errors name. Errors: also kNotFound, kIo.
StatusOr<MinimizeConfig> read_minimize_config(const std::string& path);

}  // namespace millrace::jobs

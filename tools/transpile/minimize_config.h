#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "framework/base/status.h"
#include "ops/minimize/options.h"

namespace millrace::tools {

/// What the file of --minimize asks for.
struct MinimizeConfig {
  /// One loss after another, each with its own optimizer.
  struct Loss {
    std::string name;
    MinimizeOptions options;
    /// The scheduler object whose rate is stepped (SteppedRate), as the configuration states it in
    /// JSON; empty: none.
    std::string schedule = {};
  };
  std::vector<Loss> losses;
  /// Openings of name scopes that count as done ("name_scopes"): the original goes on counting from
  /// program to program of one process.
  std::map<std::string, int64_t> name_scopes;
};

/// Reads the text of such a file, JSON. Members of the top level that are not known are left alone;
/// in optimizers, schedules, clips and regularizers they are errors. Errors: kInvalidArgument
/// naming the member, and what was expected and found.
StatusOr<MinimizeConfig> parse_minimize_config(const std::string& text);

/// The same with a file, which errors name. Errors: also kNotFound, kIo.
StatusOr<MinimizeConfig> read_minimize_config(const std::string& path);

}  // namespace millrace::tools

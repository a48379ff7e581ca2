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
  /// What is to be said of members, at the top or of a parameter, that nothing reads. The
  /// config.json of training references, which such a file may be, has members that describe the
  /// result; those that are known are left out here.
  std::vector<Status> unread;
};

/// Reads the text of such a file, JSON. Errors: kInvalidArgument with the member, and what was
/// expected and found, also for unknown members of optimizers, clips and schedules; kInvalidData
/// for text that is no JSON.
StatusOr<MinimizeConfig> parse_minimize_config(const std::string& text);

/// The same for a file, which errors name. Errors: also kNotFound, kIo.
StatusOr<MinimizeConfig> read_minimize_config(const std::string& path);

}  // namespace millrace::jobs

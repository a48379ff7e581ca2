#pragma once

#include <string>
#include <vector>

#include "fleet/downpour/downpour_sgd.h"
#include "fleet/job/job_spec.h"
#include "framework/base/status.h"

namespace millrace::jobs {

/// Settings of a DownpourSGD job.
struct DownpourConfig {
  struct Loss {
    std::string program;  ///< path of its program; empty: the main program
    std::string name;
  };
  std::vector<Loss> losses;
  fleet::DownpourOptions options;
  /// Servers, workers and environment. No servers: programs and tables are only described.
  fleet::JobSpec spec;
};

/// Reads the file of --downpour, a JSON object: "losses" (names, or objects with "program" and
/// "loss"), "pservers" and "trainers", "window", "early", "learning_rate", "use_cvm",
/// "data_norm_names", "sparse_configs", "dense_configs", "datanorm_configs", "fleet_desc_file" (a
/// description to start from), "program_config_messages".
///
/// \param environment  of the processes
/// Errors: kInvalidArgument naming the member, what was expected and found; kNotFound, kIo.
StatusOr<DownpourConfig> read_downpour_config(const std::string& path,
                                              fleet::EnvironmentReader environment);

}  // namespace millrace::jobs

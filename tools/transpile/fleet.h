#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "fleet/job/fleet_job.h"
#include "ops/registry.h"
#include "tools/common/tool.h"
#include "tools/transpile/fields.h"

namespace millrace::tools {

/// transpile-program --minimize CONFIG --fleet JOB: writes trainer_<i> and pserver_<i> below -o,
/// each with __model__, __startup__, ps_desc.txt (the tables) and runtime.json (what the process
/// sends and receives). If one of them cannot be generated, nothing is written.
StatusOr<int> write_fleet(Tool& tool, const TranspileOptions& options);

/// A job of typed tables that is written.
struct JobToWrite {
  const fleet::FleetJob& job;
  /// Makes the files of one process.
  std::function<StatusOr<fleet::RoleOutput>(const fleet::JobRole&)> role;
  /// Name and content of more files for every process.
  std::vector<std::pair<std::string, std::string>> more_files = {};
  bool is_downpour = false;  ///< the files include those of a DownpourSGD job
};

/// Writes trainer_<i> and pserver_<i> below -o, as write_fleet() does.
StatusOr<int> write_fleet_job(Tool& tool, const TranspileOptions& options,
                              const ops::OpRegistry& registry, const JobToWrite& what);

}  // namespace millrace::tools

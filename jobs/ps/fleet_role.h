#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "framework/base/status.h"
#include "framework/import.h"
#include "framework/program.h"
#include "jobs/checkpoint/reshard_fleet.h"
#include "jobs/config/rate_schedule.h"
#include "ps/communicator/comm_context.h"
#include "ps/communicator/comm_options.h"

namespace millrace::jobs {

/// One process of a job that was written by `transpile-program --fleet`: the contents of its folder
/// (docs/fleet.md).
struct FleetRole {
  std::unique_ptr<Program> main;
  std::unique_ptr<Program> startup;
  std::string description;  ///< ps_desc.txt
  RateAtStep rate_at;       ///< from schedule.json; empty: the rate is constant
  // of runtime.json
  bool is_server = false;
  int index = 0;    ///< among servers, or among workers
  int workers = 1;  ///< of the job
  ps::CommMode mode = ps::CommMode::kSync;
  std::vector<std::string> servers;      ///< endpoints
  std::vector<std::string> dump_fields;  ///< vars that a trainer writes to files
  std::vector<std::string> dump_params;
  std::string dump_path;                                     ///< where the original writes them
  std::map<std::string, std::string> communicator;           ///< settings by name
  ps::CommContexts send;                                     ///< contexts by name
  std::map<int32_t, std::vector<std::string>> dense_tables;  ///< parameters by table
  /// Trainers average dense gradients by all-reduce; servers have embeddings only.
  bool all_reduces_dense = false;
  std::string scheduled_rate;                  ///< var of a scheduler object, in such a job
  std::vector<std::string> trainer_endpoints;  ///< likewise; may be empty
};

/// True if the folder of the program has the other files of such a process.
bool is_fleet_role(const std::string& program);

/// Reads the folder of a program.
/// \param startup  empty: `__startup__` in that folder
/// \param reading  limits for the program files
/// Errors: those of readers; kInvalidData naming file and member.
StatusOr<FleetRole> read_fleet_role(const std::string& program, const std::string& startup,
                                    const ImportOptions& reading = {});

/// True if the path is the folder of a job that `transpile-program --fleet` has written.
bool is_fleet_job(const std::string& folder);

/// Reads what the folder of a job says about its servers. Errors: as read_fleet_role();
/// kInvalidData for a folder of a server that is not of the same job.
StatusOr<FleetServers> read_fleet_servers(const std::string& folder);

/// Parses runtime.json. Errors: kInvalidData naming the member.
Status parse_fleet_runtime(const std::string& text, FleetRole& role);

}  // namespace millrace::jobs

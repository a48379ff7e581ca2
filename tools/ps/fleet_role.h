#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "framework/base/status.h"
#include "framework/program.h"
#include "ps/communicator/comm_context.h"
#include "ps/communicator/comm_options.h"
#include "tools/common/tool.h"
#include "tools/ps/rate_schedule.h"

namespace millrace::tools {

/// One process of a job that `transpile-program --fleet` has written: what lies in its folder
/// (docs/fleet.md).
struct FleetRole {
  std::unique_ptr<Program> main;
  std::unique_ptr<Program> startup;
  std::string description;  ///< ps_desc.txt
  RateAtStep rate_at;       ///< schedule.json; empty: the rate is a constant
  // of runtime.json
  bool is_server = false;
  int index = 0;    ///< among servers, or among workers
  int workers = 1;  ///< of the job
  ps::CommMode mode = ps::CommMode::kSync;
  std::vector<std::string> servers;                          ///< endpoints
  std::map<std::string, std::string> communicator;           ///< its settings
  ps::CommContexts send;                                     ///< by name
  std::map<int32_t, std::vector<std::string>> dense_tables;  ///< parameters by table
};

/// True if the program lies beside the other files of such a process.
bool is_fleet_role(const std::string& program);

/// Reads the folder of a program. \param startup  empty: `__startup__` beside it
/// Errors: those of readers; kInvalidData naming file and member.
StatusOr<FleetRole> read_fleet_role(const Tool& tool, const std::string& program,
                                    const std::string& startup);

/// The part of that which runtime.json has. Errors: kInvalidData naming the member.
Status parse_fleet_runtime(const std::string& text, FleetRole& role);

}  // namespace millrace::tools

#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "fleet/job/job_spec.h"
#include "framework/base/status.h"

namespace millrace::jobs {

/// Reads the text of --fleet, a JSON object: "mode" (sync, async, geo), "pservers" (host:port,
/// ...), "trainers" (a number), "trainer_endpoints", "a_sync_configs", "fleet_desc_configs"
/// (settings of tables by name; "use_cvm"), "trainer_desc_configs", "fs_client_param",
/// "adam_d2sum", "all_optimizers", "dense_gradients" (servers, all_reduce), "env" (variables that
/// override those of the environment).
///
/// \param environment  looked up for variables that "env" does not have
/// Errors: kInvalidArgument naming the member, what was expected and found.
StatusOr<fleet::JobSpec> parse_fleet_config(const std::string& text,
                                            fleet::EnvironmentReader environment);

/// The same for a file, which errors name. Errors: also kNotFound, kIo.
StatusOr<fleet::JobSpec> read_fleet_config(const std::string& path,
                                           fleet::EnvironmentReader environment);

/// Reads a member that is a dictionary of plain values; values that are null are left out.
/// \param json  null: the member is absent, and the dictionary empty
/// \param path  of the member, for messages
/// Errors: kInvalidArgument naming the member, what was expected and found.
StatusOr<fleet::ConfigDict> read_config_dict(const nlohmann::json* json, const std::string& path);

}  // namespace millrace::jobs

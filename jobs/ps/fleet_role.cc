#include "jobs/ps/fleet_role.h"

#include <cmath>
#include <filesystem>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "framework/base/errors.h"
#include "framework/base/file.h"
#include "framework/read_program.h"
#include "io/paths.h"
#include "jobs/config/json_fields.h"

namespace millrace::jobs {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMaxDescBytes = int64_t{64} << 20;
constexpr int kMostInt = 1 << 30;
constexpr double kMostSection = 0x1p52;  // all whole numbers up to it are doubles
constexpr const char* kDescription = "ps_desc.txt";
constexpr const char* kRuntime = "runtime.json";
constexpr const char* kSchedule = "schedule.json";

std::filesystem::path folder_of(const std::string& program) {
  return std::filesystem::path(program).parent_path();
}

Status read_int(JsonFields& fields, const char* key, int least, int& out) {
  double wide = out;
  fields.require(key).number(key, wide);
  MILLRACE_RETURN_IF_ERROR(fields.status());
  if (wide != std::floor(wide) || wide < least || wide > kMostInt)
    return InvalidArgument("'{}': expected a whole number from {} to {}, found {}",
                           fields.path_of(key), least, kMostInt, wide);
  out = static_cast<int>(wide);
  return Ok();
}

// Members that only jobs have whose trainers average dense gradients.
Status read_dense_gradients(JsonFields& fields, FleetRole& role) {
  std::string way = "servers";
  fields.text("dense_gradients", way)
      .text("scheduled_rate", role.scheduled_rate)
      .strings("trainer_endpoints", role.trainer_endpoints);
  MILLRACE_RETURN_IF_ERROR(fields.status());
  if (way != "servers" && way != "all_reduce")
    return InvalidArgument("'dense_gradients': expected servers or all_reduce, found '{}'", way);
  role.all_reduces_dense = way == "all_reduce";
  return Ok();
}

StatusOr<ps::CommContext> read_context(const std::string& name, const Json& json) {
  ps::CommContext context;
  context.var_name = name;
  JsonFields fields(json, "send_context." + name);
  std::vector<double> sections;
  fields.boolean("aggregate", context.aggregate)
      .boolean("is_datanorm_table", context.is_datanorm_table)
      .boolean("is_distributed", context.is_distributed)
      .boolean("is_sparse", context.is_sparse)
      .boolean("is_tensor_table", context.is_tensor_table)
      .strings("origin_varnames", context.origin_varnames)
      .numbers("sections", sections)
      .strings("split_endpoints", context.split_endpoints)
      .strings("split_varnames", context.split_varnames);
  for (const double each : sections) {
    if (each != std::floor(each) || each < 0 || each > kMostSection)
      return InvalidArgument("'{}': expected whole numbers from 0 to {}, found {}",
                             fields.path_of("sections"), kMostSection, each);
    context.sections.push_back(static_cast<int64_t>(each));
  }
  MILLRACE_RETURN_IF_ERROR(read_int(fields, "table_id", 0, context.table_id));
  MILLRACE_RETURN_IF_ERROR(read_int(fields, "trainer_id", 0, context.trainer_id));
  MILLRACE_RETURN_IF_ERROR(fields.finish());
  return context;
}

Status read_dense_tables(const Json* json, std::map<int32_t, std::vector<std::string>>& tables) {
  if (json == nullptr) return Ok();
  for (const auto& [key, names] : json->items()) {
    int32_t id = 0;
    if (llvm::StringRef(key).getAsInteger(10, id) || id < 0)
      return InvalidArgument("'recv_dense': expected table numbers as keys, found '{}'", key);
    JsonFields fields(*json, "recv_dense");
    fields.strings(key, tables[id]);
    MILLRACE_RETURN_IF_ERROR(fields.status());
  }
  return Ok();
}

// Reads what a trainer dumps; refuses trainer features of the original that millrace would ignore
// silently.
Status read_trainer(JsonFields& options, FleetRole& role) {
  std::string trainer;
  std::string worker;
  options.text("trainer", trainer).text("device_worker", worker);
  std::vector<std::string> statistics;
  options.strings("dump_fields", role.dump_fields)
      .strings("dump_param", role.dump_params)
      .text("dump_fields_path", role.dump_path)
      .strings("stat_var_names", statistics);
  MILLRACE_RETURN_IF_ERROR(options.status());
  if (!statistics.empty())
    return Unimplemented("fleet_opt.stat_var_names: statistics of a trainer");
  if (!trainer.empty() && trainer != "MultiTrainer" && trainer != "DistMultiTrainer")
    return Unimplemented("fleet_opt.trainer '{}'; expected MultiTrainer or DistMultiTrainer",
                         trainer);
  if (!worker.empty() && worker != "Hogwild" && worker != "DownpourLite")
    return Unimplemented("fleet_opt.device_worker '{}'; expected Hogwild or DownpourLite", worker);
  return Ok();
}

Status read_flags(const Json* json, std::map<std::string, std::string>& flags) {
  if (json == nullptr) return Ok();
  JsonFields fields(*json, "communicator_flags");
  for (const auto& [key, value] : json->items()) fields.text(key, flags[key]);
  return fields.finish();
}

Status read_runtime(const Json& json, FleetRole& role) {
  JsonFields fields(json, "");
  MILLRACE_RETURN_IF_ERROR(fields.status());
  int mode = 0;
  MILLRACE_RETURN_IF_ERROR(read_int(fields, "communicator_mode", 0, mode));
  if (mode > static_cast<int>(ps::CommMode::kGeo))
    return InvalidArgument("'communicator_mode': expected 0 to 3, found {}", mode);
  role.mode = static_cast<ps::CommMode>(mode);
  MILLRACE_RETURN_IF_ERROR(read_int(fields, "role_id", 0, role.index));
  // Servers have no explicit barrier.
  const auto barrier = json.find("barrier_table_id");
  role.is_server = barrier == json.end() || barrier->is_null();
  fields.require("endpoints").strings("endpoints", role.servers);
  fields.require("fleet_opt");
  MILLRACE_RETURN_IF_ERROR(fields.status());
  JsonFields options(*fields.find("fleet_opt"), "fleet_opt");
  MILLRACE_RETURN_IF_ERROR(read_int(options, "mpi_size", 1, role.workers));
  if (!role.is_server) MILLRACE_RETURN_IF_ERROR(read_trainer(options, role));
  MILLRACE_RETURN_IF_ERROR(read_flags(fields.find("communicator_flags"), role.communicator));
  MILLRACE_RETURN_IF_ERROR(read_dense_gradients(fields, role));
  MILLRACE_RETURN_IF_ERROR(read_dense_tables(fields.find("recv_dense"), role.dense_tables));
  const Json* const contexts = fields.find("send_context");
  if (contexts == nullptr) return Ok();
  for (const auto& [name, context] : contexts->items()) {
    MILLRACE_ASSIGN_OR_RETURN(role.send[name], read_context(name, context));
  }
  return Ok();
}

}  // namespace

bool is_fleet_role(const std::string& program) {
  const std::filesystem::path folder = folder_of(program);
  return io::may_exist((folder / kDescription).string()) &&
         io::may_exist((folder / kRuntime).string());
}

Status parse_fleet_runtime(const std::string& text, FleetRole& role) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return InvalidData("expected a JSON object");
  Status status = read_runtime(json, role);
  if (status.ok()) {
    const size_t count = role.is_server ? role.servers.size() : static_cast<size_t>(role.workers);
    if (static_cast<size_t>(role.index) < count) return Ok();
    status = InvalidArgument("'role_id': expected less than {}, found {}", count, role.index);
  }
  if (status.code() == StatusCode::kUnimplemented) return status;
  return InvalidData("{}", status.message());
}

StatusOr<FleetRole> read_fleet_role(const std::string& program, const std::string& startup,
                                    const ImportOptions& reading) {
  FleetRole role;
  const std::filesystem::path folder = folder_of(program);
  MILLRACE_ASSIGN_OR_RETURN(role.main, read_program(program, reading));
  const std::string beside = (folder / "__startup__").string();
  MILLRACE_ASSIGN_OR_RETURN(role.startup,
                            read_program(startup.empty() ? beside : startup, reading));
  MILLRACE_ASSIGN_OR_RETURN(role.description,
                            read_file((folder / kDescription).string(), kMaxDescBytes));
  const std::string schedule = (folder / kSchedule).string();
  if (io::may_exist(schedule)) {
    MILLRACE_ASSIGN_OR_RETURN(const std::string stated, read_file(schedule, kMaxDescBytes));
    StatusOr<RateAtStep> rate_at = parse_rate_schedule(stated);
    if (!rate_at.ok()) return std::move(rate_at).status().in_file(schedule);
    role.rate_at = *std::move(rate_at);
  }
  const std::string runtime = (folder / kRuntime).string();
  MILLRACE_ASSIGN_OR_RETURN(const std::string text, read_file(runtime, kMaxDescBytes));
  MILLRACE_RETURN_IF_ERROR(parse_fleet_runtime(text, role).in_file(runtime));
  return role;
}

bool is_fleet_job(const std::string& folder) {
  return is_fleet_role(folder + "/pserver_0/__model__");
}

StatusOr<FleetServers> read_fleet_servers(const std::string& folder) {
  FleetServers job;
  for (size_t i = 0; i == 0 || i < job.endpoints.size(); ++i) {
    const std::string program = fmt::format("{}/pserver_{}/__model__", folder, i);
    MILLRACE_ASSIGN_OR_RETURN(FleetRole role, read_fleet_role(program, ""));
    const bool is_sync = role.mode == ps::CommMode::kSync;
    if (!role.is_server || role.index != static_cast<int>(i) ||
        (i > 0 &&
         (role.servers != job.endpoints || role.workers != job.workers || is_sync != job.is_sync)))
      return InvalidData("expected server {} of the same job as server 0", i).in_file(program);
    job.endpoints = std::move(role.servers);
    job.workers = role.workers;
    job.is_sync = is_sync;
    job.descriptions.push_back(std::move(role.description));
  }
  return job;
}

}  // namespace millrace::jobs

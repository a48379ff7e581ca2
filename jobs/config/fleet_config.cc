#include "jobs/config/fleet_config.h"

#include <map>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "framework/base/errors.h"
#include "framework/base/file.h"
#include "jobs/config/json_fields.h"
#include "transpiler/distribute/endpoints.h"

namespace millrace::jobs {
namespace {

using Json = nlohmann::json;
using fleet::ConfigDict;
using fleet::ConfigValue;

constexpr int64_t kFleetConfigMaxConfigBytes = 64 << 20;
constexpr double kMaxWorkers = 65'536;

Status read_list(const Json& json, const std::string& path, ConfigValue& value) {
  std::vector<double> numbers;
  std::vector<std::string> texts;
  for (const Json& element : json) {
    if (element.is_number())
      numbers.push_back(element.get<double>());
    else if (element.is_string())
      texts.push_back(element.get<std::string>());
  }
  if (numbers.size() != json.size() && texts.size() != json.size())
    return InvalidArgument("'{}': expected a list of numbers or a list of strings", path);
  if (numbers.size() == json.size())
    value = std::move(numbers);
  else
    value = std::move(texts);
  return Ok();
}

Status read_value(const Json& json, const std::string& path, ConfigValue& value) {
  if (json.is_array()) return read_list(json, path, value);
  if (json.is_number_unsigned() && json.get<uint64_t>() > uint64_t{INT64_MAX})
    return InvalidArgument("'{}': the number is too large", path);
  if (json.is_boolean()) {
    value = json.get<bool>();
  } else if (json.is_number_integer()) {
    value = json.get<int64_t>();
  } else if (json.is_number()) {
    value = json.get<double>();
  } else if (json.is_string()) {
    value = json.get<std::string>();
  } else {
    return InvalidArgument("'{}': expected a boolean, number, string or list, found {}", path,
                           json_kind(json));
  }
  return Ok();
}

}  // namespace

StatusOr<ConfigDict> read_config_dict(const Json* json, const std::string& path) {
  ConfigDict dict;
  if (json == nullptr) return dict;
  if (!json->is_object())
    return InvalidArgument("'{}': expected an object, found {}", path, json_kind(*json));
  for (const auto& [key, value] : json->items()) {
    if (value.is_null()) continue;
    MILLRACE_RETURN_IF_ERROR(read_value(value, fmt::format("{}.{}", path, key), dict[key]));
  }
  return dict;
}

namespace {

// Settings by table; dense tables have none. One value is not of a table.
Status read_tables(const Json* json, fleet::DistributedStrategy& strategy) {
  const std::string path = "fleet_desc_configs";
  if (json == nullptr) return Ok();
  if (!json->is_object())
    return InvalidArgument("'{}': expected an object, found {}", path, json_kind(*json));
  for (const auto& [table, settings] : json->items()) {
    if (settings.is_null()) continue;
    const bool is_flag = table == "use_cvm";
    if (is_flag ? !settings.is_boolean() : !settings.is_object())
      return InvalidArgument("'{}.{}': expected {}, found {}", path, table,
                             is_flag ? "true or false" : "an object with settings of a table",
                             json_kind(settings));
    if (is_flag) strategy.set_use_cvm(settings.get<bool>());
    if (is_flag || table == "dense_table" || table == "datanorm_table") continue;
    MILLRACE_ASSIGN_OR_RETURN(const ConfigDict dict,
                              read_config_dict(&settings, fmt::format("{}.{}", path, table)));
    MILLRACE_RETURN_IF_ERROR(strategy.set_table_configs(table, dict));
  }
  return Ok();
}

StatusOr<fleet::EnvironmentReader> read_environment(const Json* json,
                                                    fleet::EnvironmentReader outer) {
  if (json == nullptr) return outer;
  std::map<std::string, std::string> own;
  if (!json->is_object())
    return InvalidArgument("'env': expected an object, found {}", json_kind(*json));
  for (const auto& [name, value] : json->items()) {
    if (!value.is_string())
      return InvalidArgument("'env.{}': expected a string, found {}", name, json_kind(value));
    own[name] = value.get<std::string>();
  }
  return fleet::EnvironmentReader(
      [own = std::move(own), outer = std::move(outer)](const std::string& name) {
        const auto found = own.find(name);
        return found != own.end() ? std::optional(found->second) : outer(name);
      });
}

Status read_mode(JsonFields& fields, fleet::JobSpec& spec) {
  std::string mode;
  MILLRACE_RETURN_IF_ERROR(fields.text("mode", mode).require("mode").status());
  if (mode != "sync" && mode != "async" && mode != "geo")
    return InvalidArgument("'mode': expected sync, async or geo, found '{}'", mode);
  spec.strategy.set_a_sync(mode != "sync");
  MILLRACE_ASSIGN_OR_RETURN(const ConfigDict async,
                            read_config_dict(fields.find("a_sync_configs"), "a_sync_configs"));
  MILLRACE_RETURN_IF_ERROR(spec.strategy.set_a_sync_configs(async));
  MILLRACE_ASSIGN_OR_RETURN(const ps::CommMode found, spec.strategy.mode());
  if (mode == "geo" && found != ps::CommMode::kGeo)
    return InvalidArgument("'mode' is geo, but a_sync_configs.k_steps is {}; expected more than 0",
                           spec.strategy.a_sync_configs().k_steps);
  if (mode == "async" && found != ps::CommMode::kAsync)
    return InvalidArgument("'mode' is async, but a_sync_configs.k_steps is {}, which is for geo",
                           spec.strategy.a_sync_configs().k_steps);
  return Ok();
}

Status read_endpoints(const std::string& list, const char* member, std::vector<std::string>& out) {
  if (list.empty()) return Ok();
  MILLRACE_ASSIGN_OR_RETURN(out, transpiler::split_endpoints(list, member));
  return Ok();
}

Status read_processes(JsonFields& fields, fleet::JobSpec& spec) {
  std::string servers;
  std::string trainer_endpoints;
  std::string heter_workers;
  std::string heter_returned;
  double workers = 1;
  MILLRACE_RETURN_IF_ERROR(fields.text("pservers", servers)
                               .text("trainer_endpoints", trainer_endpoints)
                               .text("heter_workers", heter_workers)
                               .text("heter_returned", heter_returned)
                               .number("trainers", workers)
                               .require("pservers")
                               .require("trainers")
                               .status());
  if (workers < 1 || workers > kMaxWorkers || workers != static_cast<int>(workers))
    return InvalidArgument("'trainers': expected a whole number from 1 to {}, found {}",
                           kMaxWorkers, workers);
  spec.workers = static_cast<int>(workers);
  spec.heter.returned = fleet::split_list(heter_returned);
  MILLRACE_RETURN_IF_ERROR(read_endpoints(servers, "'pservers'", spec.servers));
  MILLRACE_RETURN_IF_ERROR(read_endpoints(heter_workers, "'heter_workers'", spec.heter.endpoints));
  return read_endpoints(trainer_endpoints, "'trainer_endpoints'", spec.worker_endpoints);
}

Status read_dense_gradients(JsonFields& fields, fleet::JobSpec& spec) {
  std::string way = "servers";
  MILLRACE_RETURN_IF_ERROR(fields.text("dense_gradients", way).status());
  if (way != "servers" && way != "all_reduce")
    return InvalidArgument("'dense_gradients': expected servers or all_reduce, found '{}'", way);
  spec.all_reduces_dense = way == "all_reduce";
  return Ok();
}

StatusOr<fleet::JobSpec> job_spec_of(const Json& json, fleet::EnvironmentReader environment) {
  JsonFields fields(json, "");
  fleet::JobSpec spec;
  MILLRACE_RETURN_IF_ERROR(read_mode(fields, spec));
  MILLRACE_RETURN_IF_ERROR(read_processes(fields, spec));
  MILLRACE_RETURN_IF_ERROR(read_dense_gradients(fields, spec));
  MILLRACE_RETURN_IF_ERROR(read_tables(fields.find("fleet_desc_configs"), spec.strategy));
  MILLRACE_ASSIGN_OR_RETURN(
      const ConfigDict trainer,
      read_config_dict(fields.find("trainer_desc_configs"), "trainer_desc_configs"));
  MILLRACE_RETURN_IF_ERROR(spec.strategy.set_trainer_desc_configs(trainer));
  MILLRACE_ASSIGN_OR_RETURN(const ConfigDict store,
                            read_config_dict(fields.find("fs_client_param"), "fs_client_param"));
  MILLRACE_RETURN_IF_ERROR(spec.strategy.set_fs_client_param(store));
  MILLRACE_ASSIGN_OR_RETURN(spec.environment,
                            read_environment(fields.find("env"), std::move(environment)));
  bool adam_d2sum = false;
  bool all_optimizers = false;
  MILLRACE_RETURN_IF_ERROR(
      fields.boolean("adam_d2sum", adam_d2sum).boolean("all_optimizers", all_optimizers).finish());
  spec.strategy.set_adam_d2sum(adam_d2sum);
  spec.strategy.set_all_optimizers(all_optimizers);
  return spec;
}

}  // namespace

StatusOr<fleet::JobSpec> parse_fleet_config(const std::string& text,
                                            fleet::EnvironmentReader environment) {
  MILLRACE_ASSIGN_OR_RETURN(const Json json, parse_json_object(text));
  return job_spec_of(json, std::move(environment));
}

StatusOr<fleet::JobSpec> read_fleet_config(const std::string& path,
                                           fleet::EnvironmentReader environment) {
  MILLRACE_ASSIGN_OR_RETURN(const std::string text, read_file(path, kFleetConfigMaxConfigBytes));
  StatusOr<fleet::JobSpec> spec = parse_fleet_config(text, std::move(environment));
  if (!spec.ok()) return std::move(spec).status().in_file(path);
  return spec;
}

}  // namespace millrace::jobs

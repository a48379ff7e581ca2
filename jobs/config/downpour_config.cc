#include "jobs/config/downpour_config.h"

#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "framework/base/errors.h"
#include "framework/base/file.h"
#include "jobs/config/fleet_config.h"
#include "jobs/config/json_fields.h"
#include "transpiler/distribute/endpoints.h"

namespace millrace::jobs {

namespace downpour_config {

using Json = nlohmann::json;

constexpr int64_t kMaxBytes = 64 << 20;
constexpr int kMaxWorkers = 65'536;

Status read_loss(const Json& json, const std::string& path, DownpourConfig::Loss& out) {
  if (json.is_string()) {
    out.name = json.get<std::string>();
    return Ok();
  }
  return JsonFields(json, path)
      .text("program", out.program)
      .text("loss", out.name)
      .require("loss")
      .finish();
}

Status read_losses(JsonFields& fields, std::vector<DownpourConfig::Loss>& out) {
  const Json* const json = fields.require("losses").find("losses");
  MILLRACE_RETURN_IF_ERROR(fields.status());
  if (!json->is_array() || json->empty())
    return InvalidArgument("'losses': expected a list with at least one loss, found {}",
                           json->is_array() ? "an empty one" : json_kind(*json));
  for (size_t i = 0; i < json->size(); ++i)
    MILLRACE_RETURN_IF_ERROR(
        read_loss((*json)[i], fmt::format("losses[{}]", i), out.emplace_back()));
  return Ok();
}

Status read_processes(JsonFields& fields, fleet::JobSpec& spec) {
  std::string servers;
  int workers = 0;
  MILLRACE_RETURN_IF_ERROR(fields.text("pservers", servers).whole("trainers", workers).status());
  if (servers.empty() != (workers == 0))
    return InvalidArgument("'pservers' and 'trainers': expected both or neither");
  if (servers.empty()) return Ok();
  if (workers < 1 || workers > kMaxWorkers)
    return InvalidArgument("'trainers': expected a whole number from 1 to {}, found {}",
                           kMaxWorkers, workers);
  spec.workers = workers;
  MILLRACE_ASSIGN_OR_RETURN(spec.servers, transpiler::split_endpoints(servers, "'pservers'"));
  return Ok();
}

Status read_options(JsonFields& fields, fleet::DownpourOptions& out) {
  std::string start;
  fields.whole("window", out.window)
      .boolean("early", out.early)
      .number("learning_rate", out.learning_rate)
      .boolean("use_cvm", out.use_cvm)
      .strings("data_norm_names", out.data_norm_names)
      .text("fleet_desc_file", start)
      .boolean("program_config_messages", out.program_config_messages);
  MILLRACE_RETURN_IF_ERROR(fields.status());
  if (out.window < 1) return InvalidArgument("'window': expected at least 1, found {}", out.window);
  MILLRACE_ASSIGN_OR_RETURN(out.sparse_configs,
                            read_config_dict(fields.find("sparse_configs"), "sparse_configs"));
  MILLRACE_ASSIGN_OR_RETURN(out.dense_configs,
                            read_config_dict(fields.find("dense_configs"), "dense_configs"));
  MILLRACE_ASSIGN_OR_RETURN(out.data_norm_configs,
                            read_config_dict(fields.find("datanorm_configs"), "datanorm_configs"));
  if (start.empty()) return Ok();
  MILLRACE_ASSIGN_OR_RETURN(out.fleet_desc, read_file(start, kMaxBytes));
  return Ok();
}

StatusOr<DownpourConfig> parse(const std::string& text) {
  MILLRACE_ASSIGN_OR_RETURN(const Json json, parse_json_object(text));
  JsonFields fields(json, "");
  DownpourConfig out;
  MILLRACE_RETURN_IF_ERROR(read_losses(fields, out.losses));
  MILLRACE_RETURN_IF_ERROR(read_processes(fields, out.spec));
  MILLRACE_RETURN_IF_ERROR(read_options(fields, out.options));
  MILLRACE_RETURN_IF_ERROR(fields.finish());
  return out;
}

}  // namespace downpour_config

StatusOr<DownpourConfig> read_downpour_config(const std::string& path,
                                              fleet::EnvironmentReader environment) {
  using namespace downpour_config;
  MILLRACE_ASSIGN_OR_RETURN(const std::string text, read_file(path, kMaxBytes));
  StatusOr<DownpourConfig> config = parse(text);
  if (!config.ok()) return std::move(config).status().in_file(path);
  config->spec.environment = std::move(environment);
  return config;
}

}  // namespace millrace::jobs

#include "jobs/config/minimize_config.h"

#include <cstdio>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "framework/base/errors.h"
#include "framework/base/file.h"
#include "jobs/config/json_fields.h"
#include "jobs/config/optimizer_config.h"

namespace millrace::jobs {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMinimizeConfigMaxConfigBytes = 64 << 20;

// Parses "L1Decay, coeff=0.001000", the form that the original prints.
StatusOr<Regularizer> printed_regularizer(const std::string& text, const std::string& path) {
  char kind = 0;
  double coeff = 0;
  if (std::sscanf(text.c_str(), "L%cDecay, coeff=%lf", &kind, &coeff) == 2) {
    if (kind == '1') return Regularizer(L1Decay{coeff});
    if (kind == '2') return Regularizer(L2Decay{coeff});
  }
  return InvalidArgument("'{}': expected \"L1Decay, coeff=C\" or \"L2Decay, coeff=C\", found {}",
                         path, json_kind(Json(text)));
}

// Reads the parameters in the order of their creation, which a serialized program does not keep,
// and their properties. Parameters that are not trained are added to no_grad.
Status read_parameter(const Json& json, const std::string& path, MinimizeOptions& options,
                      std::vector<Status>& unread) {
  JsonFields fields(json, path);
  std::string name;
  bool trainable = true;
  ParameterOptions own;
  fields.text("name", name)
      .require("name")
      .boolean("trainable", trainable)
      .number("learning_rate", own.learning_rate)
      .boolean("need_clip", own.need_clip);
  fields.ignore({"shape"});  // the program has it
  MILLRACE_RETURN_IF_ERROR(fields.status());
  if (const Json* const regularizer = fields.find("regularizer")) {
    const std::string way = fields.path_of("regularizer");
    if (regularizer->is_string()) {
      MILLRACE_ASSIGN_OR_RETURN(own.regularizer,
                                printed_regularizer(regularizer->get<std::string>(), way));
    } else {
      MILLRACE_ASSIGN_OR_RETURN(own.regularizer, read_regularizer(*regularizer, way));
    }
  }
  if (const Json* const clip = fields.find("clip")) {
    MILLRACE_ASSIGN_OR_RETURN(own.clip, read_clip(*clip, fields.path_of("clip")));
  }
  for (Status& each : fields.unknown()) unread.push_back(std::move(each));
  if (trainable)
    options.parameters.push_back(name);
  else
    options.no_grad.insert(name);
  options.parameter_options[name] = own;
  return Ok();
}

// {"var": {"min": -0.01, "max": 0.02}}: the programs do not carry error clips.
Status read_error_clips(const Json& json, MinimizeOptions& options) {
  if (!json.is_object())
    return InvalidArgument("'error_clip': expected an object, found {}", json_kind(json));
  for (const auto& [var, bounds] : json.items()) {
    JsonFields fields(bounds, "error_clip." + var);
    double min = 0;
    double max = 0;
    MILLRACE_RETURN_IF_ERROR(
        fields.number("min", min).number("max", max).require("min").require("max").finish());
    options.error_clips[var] = {static_cast<float>(min), static_cast<float>(max)};
  }
  return Ok();
}

// Reads the options that apply to every loss.
StatusOr<MinimizeOptions> read_common(JsonFields& top, std::vector<Status>& unread) {
  MinimizeOptions options;
  std::vector<std::string> no_grad;
  MILLRACE_RETURN_IF_ERROR(top.strings("no_grad_set", no_grad).status());
  options.no_grad.insert(no_grad.begin(), no_grad.end());
  if (const Json* const parameters = top.find("parameters")) {
    if (!parameters->is_array())
      return InvalidArgument("'parameters': expected a list, found {}", json_kind(*parameters));
    for (size_t i = 0; i < parameters->size(); ++i) {
      MILLRACE_RETURN_IF_ERROR(
          read_parameter((*parameters)[i], fmt::format("parameters[{}]", i), options, unread));
    }
  }
  if (const Json* const clips = top.find("error_clip"))
    MILLRACE_RETURN_IF_ERROR(read_error_clips(*clips, options));
  return options;
}

StatusOr<std::map<std::string, int64_t>> read_name_scopes(JsonFields& top) {
  std::map<std::string, int64_t> scopes;
  const Json* const json = top.find("name_scopes");
  if (json == nullptr) return scopes;
  if (!json->is_object())
    return InvalidArgument("'name_scopes': expected an object, found {}", json_kind(*json));
  for (const auto& [prefix, count] : json->items()) {
    if (!count.is_number_unsigned()) {
      return InvalidArgument("'name_scopes.{}': expected a number of openings, found {}", prefix,
                             json_kind(count));
    }
    scopes[prefix] = count.get<int64_t>();
  }
  return scopes;
}

// Members of the references' files (config.json) that say how they were made and what came of it.
// "loss" repeats the first of "losses".
void ignore_reference_facts(JsonFields& top) {
  top.ignore({"source", "program", "steps", "random_seed", "engine", "loss", "fetch_list"})
      .ignore({"param_grad", "param_grad_after_minimize", "sparse_grads", "update_ops"})
      .ignore({"feeds", "persistables", "blocks", "op_counts"})
      .ignore({"tolerance", "directional_check", "noise_growth"});
}

StatusOr<MinimizeConfig> minimize_config_of(const Json& json) {
  JsonFields top(json, "");
  MinimizeConfig config;
  MILLRACE_ASSIGN_OR_RETURN(config.name_scopes, read_name_scopes(top));
  MILLRACE_ASSIGN_OR_RETURN(const MinimizeOptions common, read_common(top, config.unread));
  std::vector<std::string> losses;
  MILLRACE_RETURN_IF_ERROR(top.strings("losses", losses).status());
  if (losses.empty()) return InvalidArgument("'losses': expected at least one name, found none");
  const Json* const optimizers = top.find("optimizer");
  ignore_reference_facts(top);
  for (Status& each : top.unknown()) config.unread.push_back(std::move(each));
  config.has_optimizers = optimizers != nullptr;
  if (optimizers != nullptr && (!optimizers->is_array() || optimizers->size() != losses.size())) {
    return InvalidArgument(
        "'optimizer': expected a list of {}, one a loss, found {}", losses.size(),
        optimizers->is_array() ? fmt::format("{}", optimizers->size()) : json_kind(*optimizers));
  }
  for (size_t i = 0; i < losses.size(); ++i) {
    config.losses.push_back({losses[i], common});
    if (optimizers == nullptr) continue;
    MILLRACE_RETURN_IF_ERROR(read_optimizer((*optimizers)[i], fmt::format("optimizer[{}]", i),
                                            losses[i], config.losses.back().options));
    if (std::holds_alternative<SteppedRate>(config.losses.back().options.learning_rate))
      config.losses.back().schedule = (*optimizers)[i]["schedule"].dump();
  }
  return config;
}

}  // namespace

StatusOr<MinimizeConfig> parse_minimize_config(const std::string& text) {
  MILLRACE_ASSIGN_OR_RETURN(const Json json, parse_json_object(text));
  return minimize_config_of(json);
}

StatusOr<MinimizeConfig> read_minimize_config(const std::string& path) {
  MILLRACE_ASSIGN_OR_RETURN(const std::string text, read_file(path, kMinimizeConfigMaxConfigBytes));
  StatusOr<MinimizeConfig> config = parse_minimize_config(text);
  if (!config.ok()) return std::move(config).status().in_file(path);
  return config;
}

}  // namespace millrace::jobs

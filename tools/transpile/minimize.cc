#include "tools/transpile/minimize.h"

#include <filesystem>

#include <nlohmann/json.hpp>

#include "framework/base/errors.h"
#include "framework/base/file.h"
#include "framework/read_program.h"
#include "ops/backward/append_backward.h"
#include "ops/backward/error_clip.h"
#include "ops/verify.h"
#include "tools/common/program_options.h"
#include "tools/transpile/program_form.h"

namespace millrace::tools {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

constexpr int64_t kMaxConfigBytes = 64 << 20;

StatusOr<std::vector<std::string>> strings(const Json& json, const std::string& key) {
  std::vector<std::string> out;
  const auto found = json.find(key);
  if (found == json.end() || found->is_null()) return out;
  if (!found->is_array()) return InvalidArgument("'{}': expected a list of names", key);
  for (const Json& item : *found) {
    if (!item.is_string()) return InvalidArgument("'{}': expected a list of names", key);
    out.push_back(item.get<std::string>());
  }
  return out;
}

// Parameters in the order of their creation, which a serialized program does not keep; those that
// are not trained join no_grad.
Status read_parameters(const Json& config, ops::BackwardRequest& request) {
  const auto found = config.find("parameters");
  if (found == config.end()) return Ok();
  for (const Json& parameter : *found) {
    const auto name = parameter.find("name");
    if (!parameter.is_object() || name == parameter.end() || !name->is_string())
      return InvalidArgument("'parameters': expected objects with a name");
    const bool trainable = parameter.value("trainable", true);
    if (trainable)
      request.parameters.push_back(name->get<std::string>());
    else
      request.no_grad.insert(name->get<std::string>());
  }
  return Ok();
}

// {"var": {"min": -0.01, "max": 0.02}}: the programs do not carry error clips.
Status read_error_clips(const Json& config, ops::BackwardRequest& request) {
  const auto found = config.find("error_clip");
  if (found == config.end()) return Ok();
  std::map<std::string, ops::ErrorClip> clips;
  for (const auto& [var, bounds] : found->items()) {
    if (!bounds.is_object() || !bounds.contains("min") || !bounds["min"].is_number() ||
        !bounds.contains("max") || !bounds["max"].is_number())
      return InvalidArgument("'error_clip': expected numbers min and max for '{}'", var);
    clips[var] = {bounds["min"].get<float>(), bounds["max"].get<float>()};
  }
  request.after_append = ops::clip_errors(std::move(clips));
  return Ok();
}

// What is asked for one loss: the optimizer of that loss may name its parameters.
StatusOr<ops::BackwardRequest> request_for(const Json& config, const std::string& loss,
                                           size_t index) {
  ops::BackwardRequest request;
  request.loss = loss;
  request.earlier_calls = static_cast<int>(index);
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<std::string> no_grad, strings(config, "no_grad_set"));
  request.no_grad.insert(no_grad.begin(), no_grad.end());
  MILLRACE_RETURN_IF_ERROR(read_parameters(config, request));
  MILLRACE_RETURN_IF_ERROR(read_error_clips(config, request));
  const auto optimizers = config.find("optimizer");
  if (optimizers != config.end() && optimizers->is_array() && index < optimizers->size()) {
    MILLRACE_ASSIGN_OR_RETURN(std::vector<std::string> own,
                              strings((*optimizers)[index], "parameter_list"));
    if (!own.empty()) request.parameters = std::move(own);
  }
  return request;
}

StatusOr<Json> read_config(const std::string& path) {
  MILLRACE_ASSIGN_OR_RETURN(const std::string text, read_file(path, kMaxConfigBytes));
  Json config = Json::parse(text, nullptr, false);
  if (!config.is_object()) return InvalidArgument("expected a JSON object").in_file(path);
  return config;
}

}  // namespace

StatusOr<int> minimize(Tool& tool, const TranspileOptions& options) {
  if (tool.common().output.empty())
    return Status(StatusCode::kUsage, "-o FOLDER is required with --minimize");
  if (!options.backward_only) {
    return Unimplemented(
        "--minimize: this build appends gradients only (--backward-only), no optimizer");
  }
  const auto registry = ops::standard_registry();
  MILLRACE_ASSIGN_OR_RETURN(const std::unique_ptr<Program> program,
                            read_program(tool, options.program));
  if (Status status = ops::check_program(*registry, *program); !status.ok())
    return std::move(status).in_file(options.program);
  MILLRACE_ASSIGN_OR_RETURN(const Json config, read_config(options.minimize));
  StatusOr<std::vector<std::string>> losses = strings(config, "losses");
  if (!losses.ok()) return std::move(losses).status().in_file(options.minimize);
  if (losses->empty())
    return InvalidArgument("'losses': expected at least one name").in_file(options.minimize);
  for (size_t i = 0; i < losses->size(); ++i) {
    StatusOr<ops::BackwardRequest> request = request_for(config, (*losses)[i], i);
    if (!request.ok()) return std::move(request).status().in_file(options.minimize);
    const auto pairs = ops::append_backward(*registry, *program, *request);
    if (!pairs.ok()) return Status(pairs.status()).in_file(options.program);
  }
  if (options.verify) {
    if (Status status = ops::check_program(*registry, *program); !status.ok()) {
      return Internal("backward made a program that does not verify: {}", status.message())
          .at(status.location());
    }
  }
  const fs::path folder = fs::path(tool.common().output) / "backward";
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return IoError("cannot create folder '{}': {}", folder.string(), error.message());
  MILLRACE_RETURN_IF_ERROR(tool.write_file((folder / "__model__").string(),
                                           serialize(*program, options.format == "text")));
  return kDone;
}

}  // namespace millrace::tools

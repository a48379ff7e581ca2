#include "executor/session.h"

#include <fmt/format.h>

#include "executor/add_custom_ops.h"
#include "executor/array_values.h"
#include "executor/executor.h"
#include "executor/feed_targets.h"
#include "executor/feed_values.h"
#include "executor/gpu/open_device.h"
#include "executor/inference_model.h"
#include "executor/parallel/parallel_executor.h"
#include "framework/base/errors.h"
#include "framework/base/of_var.h"
#include "framework/read_program.h"
#include "io/lacking_vars.h"
#include "io/model_folder.h"
#include "transpiler/parallel/parallel.h"

namespace millrace {
namespace {

using executor::NamedValues;

Status check_session_options(const SessionOptions& options) {
  if (options.threads < 1)
    return InvalidArgument("options.threads: expected at least 1, found {}", options.threads);
  if (options.devices < 1)
    return InvalidArgument("options.devices: expected at least 1, found {}", options.devices);
  if (options.devices == 1 && !options.loss.empty())
    return InvalidArgument("options.loss '{}' has no effect on one device", options.loss);
  return Ok();
}

StatusOr<executor::Executor> executor_for(const SessionOptions& options) {
  MILLRACE_RETURN_IF_ERROR(check_session_options(options));
  MILLRACE_ASSIGN_OR_RETURN(auto runtime,
                            executor::runtime_with(options.custom_ops, options.allow_dir));
  MILLRACE_ASSIGN_OR_RETURN(auto gpu,
                            executor::open_device(options.device, {.tf32 = options.tf32_products,
                                                                   .bf16 = options.bf16_products}));
  if (gpu != nullptr && (options.devices > 1 || options.debug_memory))
    return Unimplemented("device '{}' with {}", options.device,
                         options.devices > 1 ? "several devices" : "debug_memory");
  return executor::Executor(std::move(runtime), {.threads = options.threads,
                                                 .seed = options.seed,
                                                 .optimize = options.optimize,
                                                 .bf16_products = options.bf16_products,
                                                 .debug_memory = options.debug_memory,
                                                 .gpu = std::move(gpu)});
}

// The loss whose initial gradient the program sets; empty for programs that do not train.
StatusOr<std::string> find_loss(const Program& program) {
  std::vector<std::string> losses = transpiler::trained_losses(program);
  if (losses.size() == 1) return losses.front();
  if (!transpiler::is_training_program(program)) return std::string();
  return Status(StatusCode::kInvalidArgument,
                fmt::format("the program trains {} losses; select one in SessionOptions::loss",
                            losses.size()));
}

// Kernels rely on the declared type and dims of a parameter: another shape would be broadcast.
// Errors: kInvalidArgument with the var.
Status fit_var(const Var& var, Value& given) {
  io::ParamSpec spec{.name = var.name().str(), .kind = var.kind(), .dtype = {}, .dims = {}};
  if (var.spec().has_tensor()) {
    spec.dtype = var.dtype();
    spec.dims.emplace(var.dims().begin(), var.dims().end());
  }
  Status status = io::fit_declared(given, spec);
  if (const auto* const tensor = given.get_if<Tensor>(); status.ok() && tensor != nullptr)
    status = tensor->lod().check(tensor->rank() == 0 ? 1 : tensor->dim(0));
  if (status.ok()) return status;
  return of_var(Status(StatusCode::kInvalidArgument, status.message()), spec.name);
}

}  // namespace

struct Session::Parts {
  std::unique_ptr<Program> program;
  std::unique_ptr<Scope> scope = std::make_unique<Scope>();
  std::unique_ptr<executor::PreparedProgram> prepared;
  std::unique_ptr<executor::ParallelExecutor> parallel;  ///< used instead for several devices
  NamedValues feeds;           ///< kept, so that a run with the same shapes allocates nothing
  std::vector<Value> results;  ///< likewise

  Status prepare(const executor::Executor& runner) {
    MILLRACE_ASSIGN_OR_RETURN(prepared, runner.prepare(*program, *scope));
    return Ok();
  }
  Status prepare_devices(const SessionOptions& options) {
    MILLRACE_ASSIGN_OR_RETURN(auto runtime,
                              executor::runtime_with(options.custom_ops, options.allow_dir));
    executor::ParallelOptions settings;
    settings.devices = options.devices;
    settings.seed = options.seed;
    settings.optimize = options.optimize;
    settings.bf16_products = options.bf16_products;
    settings.debug_memory = options.debug_memory;
    settings.loss_name = options.loss;
    if (settings.loss_name.empty()) {
      MILLRACE_ASSIGN_OR_RETURN(settings.loss_name, find_loss(*program));
    }
    MILLRACE_ASSIGN_OR_RETURN(
        parallel, executor::ParallelExecutor::create(std::move(runtime), *program, *scope, settings,
                                                     options.threads));
    return Ok();
  }
  /// Copies the present value of a var of the caller's scope to the other devices.
  Status spread(const std::string& name) const {
    const Value* const value = scope->find_local(name);
    if (parallel == nullptr || value == nullptr || !value->initialized()) return Ok();
    for (int d = 1; d < parallel->device_count(); ++d) {
      if (Value* const copy = parallel->local_scope(d).find_local(name))
        MILLRACE_RETURN_IF_ERROR(executor::copy_value(*value, *copy));
    }
    return Ok();
  }
};

Session::Session(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&&) noexcept = default;
Session::~Session() = default;

StatusOr<Session> Session::open_model(const std::string& folder, const SessionOptions& options) {
  auto parts = std::make_unique<Parts>();
  MILLRACE_ASSIGN_OR_RETURN(const std::string file, io::find_program(folder));
  MILLRACE_ASSIGN_OR_RETURN(parts->program, read_program(file, {}));
  MILLRACE_ASSIGN_OR_RETURN(const executor::Executor runner, executor_for(options));
  if (Status checked = runner.check(*parts->program); !checked.ok())
    return std::move(checked).in_file(file);
  if (!io::persistables_of(*parts->program).empty()) {
    MILLRACE_ASSIGN_OR_RETURN(const std::string params,
                              io::find_params(folder, file, *parts->program));
    MILLRACE_RETURN_IF_ERROR(
        io::load_parameters(params, *parts->program, *parts->scope, {.threads = options.threads}));
  }
  Status status = options.devices > 1 ? parts->prepare_devices(options) : parts->prepare(runner);
  if (!status.ok()) return std::move(status).in_file(file);
  return Session(std::move(parts));
}

StatusOr<Session> Session::open(const Program& program, const Program* startup,
                                const SessionOptions& options) {
  auto parts = std::make_unique<Parts>();
  parts->program = program.clone();
  MILLRACE_ASSIGN_OR_RETURN(const executor::Executor runner, executor_for(options));
  MILLRACE_RETURN_IF_ERROR(runner.check(program));
  if (startup != nullptr) {
    if (Status checked = runner.check(*startup); !checked.ok())
      return std::move(checked).with_note("in the startup program");
    MILLRACE_ASSIGN_OR_RETURN(const auto prepared, runner.prepare(*startup, *parts->scope));
    std::vector<Value> none;
    if (Status status = prepared->run({}, {}, none); !status.ok())
      return std::move(status).with_note("in the startup program");
  }
  MILLRACE_RETURN_IF_ERROR(options.devices > 1 ? parts->prepare_devices(options)
                                               : parts->prepare(runner));
  return Session(std::move(parts));
}

const std::vector<std::string>& Session::inputs() const {
  return parts_->parallel != nullptr ? parts_->parallel->feed_targets()
                                     : parts_->prepared->feed_targets();
}
const std::vector<std::string>& Session::outputs() const {
  return parts_->parallel != nullptr ? parts_->parallel->fetch_targets()
                                     : parts_->prepared->fetch_targets();
}

StatusOr<Arrays> Session::run(const Arrays& feeds, const std::vector<std::string>& fetches) {
  MILLRACE_RETURN_IF_ERROR(executor::check_each_feed(*parts_->program, feeds));
  MILLRACE_RETURN_IF_ERROR(executor::to_values(feeds, parts_->feeds));
  const std::vector<std::string>& wanted = fetches.empty() ? outputs() : fetches;
  MILLRACE_RETURN_IF_ERROR(
      parts_->parallel != nullptr
          ? parts_->parallel->run(executor::ParallelFeeds::split(parts_->feeds), wanted,
                                  parts_->results)
          : parts_->prepared->run(parts_->feeds, wanted, parts_->results));
  return executor::to_arrays(wanted, parts_->results);
}

StatusOr<Array> Session::get(const std::string& name) const {
  const Value* const value = parts_->scope->find_local(name);
  if (value == nullptr)
    return Status(StatusCode::kNotFound, fmt::format("there is no persistable var '{}'", name));
  return executor::to_array(name, *value);
}

Status Session::set(const std::string& name, const Array& value) {
  const Var* const var = parts_->program->root().find_var(name);
  if (var == nullptr || !var->persistable())
    return {StatusCode::kNotFound, fmt::format("there is no persistable var '{}'", name)};
  Value given;
  MILLRACE_ASSIGN_OR_RETURN(given.as<Tensor>(), executor::to_tensor(name, value));
  MILLRACE_RETURN_IF_ERROR(fit_var(*var, given));
  MILLRACE_RETURN_IF_ERROR(
      parts_->scope->local(name).as<Tensor>().copy_from(*given.get_if<Tensor>()));
  return parts_->spread(name);
}

Status Session::load_params(const std::string& path, std::vector<std::string>* kept) {
  std::vector<std::string> lacking = io::kept_vars(path, *parts_->program, *parts_->scope);
  if (kept == nullptr && !lacking.empty())
    return NotFound("expected all persistable vars of the program, found no {}",
                    io::short_list(lacking))
        .in_file(path)
        .with_hint("with `kept`, load_params() leaves them as they are");
  MILLRACE_RETURN_IF_ERROR(io::load_parameters(path, *parts_->program, *parts_->scope));
  if (kept != nullptr) *kept = std::move(lacking);
  for (const std::string& name : parts_->scope->names())
    MILLRACE_RETURN_IF_ERROR(parts_->spread(name));
  return Ok();
}

Status Session::save_params(const std::string& path) const {
  return io::save_parameters(path, *parts_->program, *parts_->scope);
}

Status Session::save_model(const std::string& folder, const std::vector<std::string>& inputs,
                           const std::vector<std::string>& outputs) const {
  return executor::save_inference_model(folder, *parts_->program, *ops::standard_registry(),
                                        *parts_->scope, inputs, outputs);
}

}  // namespace millrace

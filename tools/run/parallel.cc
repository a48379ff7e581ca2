#include "tools/run/parallel.h"

#include <map>
#include <optional>

#include "executor/feed_values.h"
#include "executor/parallel/strategy_fields.h"
#include "fleet/launch/job_environment.h"
#include "framework/base/errors.h"
#include "framework/names.h"
#include "io/npz.h"
#include "ops/verify.h"
#include "tools/common/program_options.h"
#include "tools/run/gpu.h"
#include "transpiler/parallel/parallel.h"

namespace millrace::tools {
namespace {

using executor::NamedValues;
using executor::ParallelFeeds;
using executor::ParallelOptions;

constexpr int kMostDevices = 1024;

template <typename T>
StatusOr<T> choose(const char* flag, const std::string& text,
                   const std::map<std::string, T>& choices) {
  const auto found = choices.find(text);
  if (found != choices.end()) return found->second;
  std::string expected;
  for (const auto& [word, value] : choices) expected += (expected.empty() ? "" : ", ") + word;
  return Status(StatusCode::kUsage,
                fmt::format("{}: expected one of {}, found '{}'", flag, expected, text));
}

StatusOr<int> parse_count(const char* flag, llvm::StringRef text) {
  int count = 0;
  if (!text.getAsInteger(10, count) && count >= 1 && count <= kMostDevices) return count;
  return Status(StatusCode::kUsage, fmt::format("{}: expected a number of devices from 1 to {}, "
                                                "found '{}'",
                                                flag, kMostDevices, text.str()));
}

// Finds the var whose gradient the program seeds.
StatusOr<std::string> find_loss(const RunOptions& options, const Program& program) {
  const std::vector<std::string> seeds = transpiler::loss_gradients(program);
  const std::string& given = options.parallel.customized_loss_grad;
  if (!given.empty() && std::find(seeds.begin(), seeds.end(), given) == seeds.end()) {
    return Status(StatusCode::kUsage,
                  fmt::format("--customized-loss-grad: the program does not seed '{}'", given));
  }
  if (!options.parallel.loss.empty()) return options.parallel.loss;
  if (!transpiler::is_training_program(program)) return std::string();
  std::vector<std::string> losses;
  for (const Var& var : program.root().vars()) {
    if (std::find(seeds.begin(), seeds.end(), names::grad(var.name())) != seeds.end())
      losses.push_back(var.name().str());
  }
  if (losses.size() == 1) return losses.front();
  return Status(StatusCode::kUsage,
                fmt::format("found {} losses in the program, expected one or --loss with its name",
                            losses.size()));
}

// "FIELD=VALUE" of --build-strategy and --exec-strategy.
template <typename Strategy>
Status set_fields(const char* flag, const std::vector<std::string>& given, Strategy& strategy) {
  for (const std::string& text : given) {
    const size_t sign = text.find('=');
    if (sign == std::string::npos) {
      return Status(StatusCode::kUsage,
                    fmt::format("{}: expected FIELD=VALUE, found '{}'", flag, text));
    }
    Status status = executor::set_field(strategy, text.substr(0, sign), text.substr(sign + 1));
    if (status.ok()) continue;
    Status usage(StatusCode::kUsage, fmt::format("{}: {}", flag, status.message()));
    return status.hint().empty() ? usage : std::move(usage).with_hint(status.hint());
  }
  return Ok();
}

// "dev1/x" -> 1 and "x".
StatusOr<std::pair<size_t, std::string>> split_member(const std::string& name, size_t devices) {
  const auto [head, rest] = llvm::StringRef(name).split('/');
  size_t device = 0;
  if (head.startswith("dev") && !head.drop_front(3).getAsInteger(10, device) && !rest.empty() &&
      device < devices)
    return std::pair(device, rest.str());
  return InvalidData("feed '{}': expected a name like dev0/x of one of {} devices", name, devices);
}

StatusOr<std::vector<NamedValues>> feeds_by_device(const NamedValues& feeds, size_t devices) {
  std::vector<NamedValues> result(devices);
  for (const auto& [name, value] : feeds) {
    using Member = std::pair<size_t, std::string>;
    MILLRACE_ASSIGN_OR_RETURN(const Member member, split_member(name, devices));
    Value& to = result[member.first][member.second];
    if (const auto* const tensor = value.get_if<Tensor>()) {
      to.as<Tensor>() = tensor->share();
    } else {
      MILLRACE_ASSIGN_OR_RETURN(to, clone(value));
    }
  }
  return result;
}

}  // namespace

StatusOr<ParallelOptions> parallel_options(const Tool& tool, const RunOptions& options, int devices,
                                           const Program& program) {
  const ParallelFlags& flags = options.parallel;
  ParallelOptions result;
  result.devices = devices;
  result.seed = tool.common().seed;
  result.optimize = options.optimize && !options.check_nan;
  result.bf16_products = options.precision == "bf16";
  result.debug_memory = options.debug_memory;
  executor::BuildStrategy& build = result.build_strategy;
  MILLRACE_ASSIGN_OR_RETURN(
      build.reduce_strategy,
      choose<executor::ReduceStrategy>("--reduce-strategy", flags.reduce_strategy,
                                       {{"allreduce", executor::ReduceStrategy::kAllReduce},
                                        {"reduce", executor::ReduceStrategy::kReduce}}));
  MILLRACE_ASSIGN_OR_RETURN(build.gradient_scale_strategy,
                            choose<executor::GradientScale>(
                                "--gradient-scale", flags.gradient_scale,
                                {{"coeff_num_device", executor::GradientScale::kCoeffNumDevice},
                                 {"one", executor::GradientScale::kOne},
                                 {"customized", executor::GradientScale::kCustomized},
                                 {"weighted", executor::GradientScale::kWeighted}}));
  MILLRACE_ASSIGN_OR_RETURN(result.split,
                            choose<executor::SplitRule>("--split", flags.split,
                                                        {{"floor", executor::SplitRule::kFloor},
                                                         {"ceil", executor::SplitRule::kCeil}}));
  MILLRACE_ASSIGN_OR_RETURN(result.loss_name, find_loss(options, program));
  build.sync_batch_norm = flags.sync_batch_norm;
  build.micro_batches = flags.micro_batches;
  build.bucket_bytes = flags.bucket_bytes;
  MILLRACE_RETURN_IF_ERROR(set_fields("--build-strategy", flags.build_strategy, build));
  MILLRACE_RETURN_IF_ERROR(
      set_fields("--exec-strategy", flags.exec_strategy, result.exec_strategy));
  return result;
}

StatusOr<int> device_count(const RunOptions& options) {
  const auto [kind, number] = llvm::StringRef(options.devices).split(':');
  if (kind == "gpu") return 1;
  if (kind != "cpu") {
    return Status(StatusCode::kUsage,
                  fmt::format("--devices: expected cpu:N or gpu:N, found '{}'", options.devices));
  }
  if (!number.empty()) return parse_count("--devices", number);
  const std::optional<std::string> given = fleet::process_environment()("CPU_NUM");
  return given ? parse_count("CPU_NUM", *given) : StatusOr<int>(1);
}

bool wants_parallel(const RunOptions& options, int devices) {
  const ParallelFlags& flags = options.parallel;
  return devices > 1 || flags.feed_mode == "list" || flags.micro_batches > 1 ||
         flags.persistables_of == "all" || !flags.merge_fetches || !flags.loss.empty() ||
         flags.gradient_scale != "coeff_num_device" || !flags.share_vars_program.empty() ||
         !flags.build_strategy.empty() || !flags.exec_strategy.empty();
}

Status open_parallel(const Tool& tool, const RunOptions& options, int devices,
                     const std::shared_ptr<const executor::Runtime>& runtime, Session& session) {
  if (wants_gpu(options)) {
    return Unimplemented(
        "--devices {}: several devices, and processes that sum gradients, run on "
        "the CPU only",
        options.devices);
  }
  if (options.parallel.feed_mode != "split" && options.parallel.feed_mode != "list") {
    return {StatusCode::kUsage, fmt::format("--feed-mode: expected split or list, found '{}'",
                                            options.parallel.feed_mode)};
  }
  if (options.parallel.persistables_of != "first" && options.parallel.persistables_of != "all") {
    return {StatusCode::kUsage, fmt::format("--persistables-of: expected first or all, found '{}'",
                                            options.parallel.persistables_of)};
  }
  MILLRACE_ASSIGN_OR_RETURN(ParallelOptions settings,
                            parallel_options(tool, options, devices, session.program()));
  if (session.link != nullptr) {
    settings.trainers = session.link.get();
    settings.build_strategy.num_trainers = session.link->trainers();
    settings.build_strategy.trainer_id = session.link->trainer_id();
    settings.wait_timeout_ms = options.ranks.wait_ms;
  }
  MILLRACE_ASSIGN_OR_RETURN(session.parallel, executor::ParallelExecutor::create(
                                                  runtime, session.program(), *session.scope,
                                                  settings, tool.common().threads));
  for (const std::string& remark : session.parallel->remarks()) tool.log(LogLevel::kInfo, remark);
  return Ok();
}

Status run_parallel(Session& session, const RunOptions& options, const NamedValues& feeds,
                    const std::vector<std::string>& fetches, NamedValues& results) {
  executor::ParallelExecutor& parallel = *session.parallel;
  std::vector<NamedValues> by_device;
  ParallelFeeds given = ParallelFeeds::rows(feeds, options.parallel.rows_per_device);
  if (options.parallel.feed_mode == "list") {
    MILLRACE_ASSIGN_OR_RETURN(by_device,
                              feeds_by_device(feeds, static_cast<size_t>(parallel.device_count())));
    given = ParallelFeeds::list(by_device);
  }
  if (options.parallel.merge_fetches) {
    std::vector<Value> values;
    MILLRACE_RETURN_IF_ERROR(parallel.run(given, fetches, values));
    for (size_t i = 0; i < fetches.size(); ++i) results[fetches[i]] = std::move(values[i]);
    return Ok();
  }
  std::vector<std::vector<Value>> values;
  MILLRACE_RETURN_IF_ERROR(parallel.run_unmerged(given, fetches, values));
  for (size_t i = 0; i < fetches.size(); ++i) {
    for (size_t d = 0; d < values[i].size(); ++d)
      results[fmt::format("dev{}/{}", d, fetches[i])] = std::move(values[i][d]);
  }
  return Ok();
}

StatusOr<NamedValues> persistables_of_devices(const Session& session) {
  NamedValues values;
  for (const Var& var : session.program().root().vars()) {
    if (!is_state_var(var)) continue;
    for (int d = 0; d < session.parallel->device_count(); ++d) {
      const Value* const value = session.parallel->local_scope(d).find(var.name());
      if (value == nullptr || !value->initialized()) continue;
      MILLRACE_RETURN_IF_ERROR(
          executor::copy_value(*value, values[fmt::format("dev{}/{}", d, var.name().str())]));
    }
  }
  return values;
}

Status run_with_shared_vars(Tool& tool, const RunOptions& options,
                            const std::shared_ptr<const executor::Runtime>& runtime,
                            Session& session) {
  const ParallelFlags& flags = options.parallel;
  if (flags.share_vars_program.empty()) return Ok();
  MILLRACE_ASSIGN_OR_RETURN(const std::unique_ptr<Program> program,
                            read_program(tool, flags.share_vars_program));
  if (Status status = ops::check_program(*runtime->ops, *program); !status.ok())
    return std::move(status).in_file(flags.share_vars_program);
  // the options of the first run, except those that name vars of its program
  RunOptions own = options;
  own.parallel.loss.clear();
  own.parallel.customized_loss_grad.clear();
  MILLRACE_ASSIGN_OR_RETURN(
      ParallelOptions settings,
      parallel_options(tool, own, session.parallel->device_count(), *program));
  settings.share_vars_from = session.parallel.get();
  StatusOr<std::unique_ptr<executor::ParallelExecutor>> parallel =
      executor::ParallelExecutor::create(runtime, *program, *session.scope, settings,
                                         tool.common().threads);
  if (!parallel.ok()) return std::move(parallel).status().in_file(flags.share_vars_program);
  NamedValues feeds;
  if (!flags.share_vars_feed.empty()) {
    MILLRACE_ASSIGN_OR_RETURN(feeds, io::read_values(flags.share_vars_feed));
  }
  const std::vector<std::string>& fetches =
      flags.share_vars_fetch.empty() ? (*parallel)->fetch_targets() : flags.share_vars_fetch;
  std::vector<Value> values;
  if (Status status = (*parallel)->run(ParallelFeeds::split(feeds), fetches, values); !status.ok())
    return std::move(status).in_file(flags.share_vars_program);
  if (flags.share_vars_output.empty()) return Ok();
  NamedValues results;
  for (size_t i = 0; i < fetches.size(); ++i) results[fetches[i]] = std::move(values[i]);
  MILLRACE_ASSIGN_OR_RETURN(const std::string bytes, io::npz_bytes(results));
  return tool.write_file(flags.share_vars_output, bytes);
}

}  // namespace millrace::tools

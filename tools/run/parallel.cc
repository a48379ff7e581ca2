#include "tools/run/parallel.h"

#include <map>
#include <optional>

#include "executor/gpu/open_device.h"
#include "executor/parallel/strategy_fields.h"
#include "fleet/launch/job_environment.h"
#include "framework/base/errors.h"
#include "io/npz.h"
#include "tools/run/session_options.h"
#include "transpiler/parallel/parallel.h"

namespace millrace::tools {
namespace {

using executor::NamedValues;
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
  std::vector<std::string> losses = transpiler::trained_losses(program);
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

}  // namespace

StatusOr<ParallelOptions> parallel_options(const Tool& tool, const RunOptions& options, int devices,
                                           const Program& program) {
  const ParallelFlags& flags = options.parallel;
  ParallelOptions result;
  result.devices = devices;
  result.gpus = options.gpus;
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
  if (kind == "gpu") return executor::count_devices(options.devices);
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

Status run_with_shared_vars(Tool& tool, const RunOptions& options,
                            const std::shared_ptr<const executor::Runtime>& runtime,
                            jobs::Session& session) {
  const ParallelFlags& flags = options.parallel;
  if (flags.share_vars_program.empty()) return Ok();
  MILLRACE_ASSIGN_OR_RETURN(jobs::SessionOptions own, session_options(tool, options));
  const int devices = session.parallel->device_count();
  // the options of the first run, except those that name vars of its program
  RunOptions unnamed = options;
  unnamed.parallel.loss.clear();
  unnamed.parallel.customized_loss_grad.clear();
  own.parallel = [&tool, &unnamed, devices](const Program& program) {
    return parallel_options(tool, unnamed, devices, program);
  };
  MILLRACE_ASSIGN_OR_RETURN(
      const NamedValues results,
      jobs::run_with_shared_vars(
          {flags.share_vars_program, flags.share_vars_feed, flags.share_vars_fetch}, own, runtime,
          session));
  if (flags.share_vars_output.empty()) return Ok();
  MILLRACE_ASSIGN_OR_RETURN(const std::string bytes, io::npz_bytes(results));
  return tool.write_file(flags.share_vars_output, bytes);
}

}  // namespace millrace::tools

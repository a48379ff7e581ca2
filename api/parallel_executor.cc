#include "api/parallel_executor.h"

#include <utility>

#include "api/internals.h"
#include "executor/add_custom_ops.h"
#include "executor/array_values.h"
#include "executor/collective/group_link.h"
#include "executor/feed_targets.h"
#include "executor/feed_values.h"
#include "executor/gpu/open_device.h"
#include "executor/parallel/parallel_executor.h"
#include "framework/base/errors.h"
#include "ops/verify.h"

namespace millrace::api {

struct ParallelExecutor::Parts {
  std::shared_ptr<void> vars;  ///< keeps the vars alive that the devices share with others
  std::optional<Ranks> ranks;
  std::unique_ptr<executor::TrainerLink> link;  ///< to the other ranks; null: there are none
  std::unique_ptr<executor::ParallelExecutor> runner;
  executor::NamedValues feeds;       ///< kept, so that a run with the same shapes allocates less
  std::vector<Value> results;        ///< likewise
  std::unique_ptr<Program> program;  ///< as given
  std::string updated;               ///< first parameter that the program updates; empty: none
  std::string device;                ///< as in the options
  std::vector<std::shared_ptr<gpu::Context>> gpus;  ///< of the devices; empty: CPU devices

  /// Lets the ranks train the program together.
  Status join(const ParallelOptions& options, executor::ParallelOptions& settings);
};

Status ParallelExecutor::Parts::join(const ParallelOptions& options,
                                     executor::ParallelOptions& settings) {
  ranks = options.ranks;
  executor::CollectiveGroup* const group = Internals::group(ranks);
  const int size = group == nullptr ? 1 : group->size();
  const int rank = group == nullptr ? 0 : group->rank();
  BuildStrategy& build = settings.build_strategy;
  if (build.num_trainers != 1 && build.num_trainers != size)
    return InvalidArgument(
        "build_strategy.num_trainers: expected {}, the size of options.ranks, found {}", size,
        build.num_trainers);
  if (build.trainer_id != 0 && build.trainer_id != rank)
    return InvalidArgument(
        "build_strategy.trainer_id: expected {}, the rank of options.ranks, found {}", rank,
        build.trainer_id);
  if (group == nullptr) return Ok();
  build.num_trainers = size;
  build.trainer_id = rank;
  // one group, or groups of one rank, are not a hierarchy
  const int inter = build.hierarchical_allreduce_inter_nranks;
  const bool divides = build.use_hierarchical_allreduce && inter > 1 && inter < size;
  MILLRACE_ASSIGN_OR_RETURN(link, executor::make_group_link(*group, divides ? inter : 0));
  settings.trainers = link.get();
  return Ok();
}

namespace parallel_executor {
namespace {

// Opens the GPUs, and counts the devices. Two executors with the same vars have the same GPUs.
Status choose_devices(const ParallelOptions& options, const std::string& shared_device,
                      const std::vector<std::shared_ptr<gpu::Context>>& shared_gpus,
                      executor::ParallelOptions& settings) {
  settings.devices = options.devices;
  settings.gpus = shared_gpus;
  if (options.share_vars_from == nullptr) {
    MILLRACE_ASSIGN_OR_RETURN(
        settings.gpus, executor::open_devices(options.device, {.bf16 = options.bf16_products}));
  } else if (options.device != shared_device) {
    return InvalidArgument("options.device: expected '{}' as in share_vars_from, found '{}'",
                           shared_device, options.device);
  }
  if (settings.gpus.empty()) return Ok();
  const auto count = static_cast<int>(settings.gpus.size());
  if (options.devices != 1 && options.devices != count)
    return InvalidArgument("options.devices: expected {} for device '{}', found {}", count,
                           options.device, options.devices);
  settings.devices = count;
  return Ok();
}

}  // namespace
}  // namespace parallel_executor

ParallelExecutor::ParallelExecutor(std::shared_ptr<Parts> parts) : parts_(std::move(parts)) {}
ParallelExecutor::ParallelExecutor(ParallelExecutor&&) noexcept = default;
ParallelExecutor& ParallelExecutor::operator=(ParallelExecutor&&) noexcept = default;
ParallelExecutor::~ParallelExecutor() = default;

StatusOr<ParallelExecutor> ParallelExecutor::create(const Program& program, const Scope& scope,
                                                    const ParallelOptions& options) {
  if (options.threads < 1)
    return InvalidArgument("options.threads: expected at least 1, found {}", options.threads);
  MILLRACE_ASSIGN_OR_RETURN(auto runtime,
                            executor::runtime_with(options.custom_ops, options.allow_dir,
                                                   Internals::rings(options.ranks)));
  MILLRACE_RETURN_IF_ERROR(ops::check_program(*runtime->ops, program));
  executor::ParallelOptions settings;
  settings.loss_name = options.loss_name;
  auto parts = std::make_shared<Parts>();
  parts->vars = Internals::state(scope);
  parts->device = options.device;
  if (options.share_vars_from != nullptr) {
    const std::shared_ptr<Parts>& from = options.share_vars_from->parts_.pointer();
    settings.share_vars_from = from->runner.get();
    parts->vars = from;
    parts->gpus = from->gpus;
    parts->device = from->device;
  }
  MILLRACE_RETURN_IF_ERROR(
      parallel_executor::choose_devices(options, parts->device, parts->gpus, settings));
  parts->gpus = settings.gpus;
  settings.exec_strategy = options.exec_strategy;
  settings.build_strategy = options.build_strategy;
  settings.split = options.split;
  settings.optimize = options.optimize;
  settings.bf16_products = options.bf16_products;
  settings.debug_memory = options.debug_memory;
  settings.seed = options.seed;
  settings.wait_timeout_ms = options.wait_timeout_ms;
  MILLRACE_RETURN_IF_ERROR(parts->join(options, settings));
  MILLRACE_ASSIGN_OR_RETURN(parts->runner, executor::ParallelExecutor::create(
                                               std::move(runtime), program, Internals::vars(scope),
                                               settings, options.threads));
  parts->updated = updated_var(program);
  parts->program = program.clone();
  return ParallelExecutor(std::move(parts));
}

StatusOr<Arrays> ParallelExecutor::run(const Arrays& feeds,
                                       const std::vector<std::string>& fetches) {
  MILLRACE_RETURN_IF_ERROR(executor::check_each_feed(*parts_->program, feeds));
  MILLRACE_RETURN_IF_ERROR(executor::to_values(feeds, parts_->feeds));
  MILLRACE_RETURN_IF_ERROR(
      parts_->runner->run(executor::ParallelFeeds::split(parts_->feeds), fetches, parts_->results));
  return executor::to_arrays(fetches, parts_->results);
}

StatusOr<Arrays> ParallelExecutor::run(const std::vector<Arrays>& feeds,
                                       const std::vector<std::string>& fetches) {
  std::vector<executor::NamedValues> values(feeds.size());
  for (size_t d = 0; d < feeds.size(); ++d) {
    MILLRACE_RETURN_IF_ERROR(executor::check_each_feed(*parts_->program, feeds[d]));
    MILLRACE_RETURN_IF_ERROR(executor::to_values(feeds[d], values[d]));
  }
  MILLRACE_RETURN_IF_ERROR(
      parts_->runner->run(executor::ParallelFeeds::list(values), fetches, parts_->results));
  return executor::to_arrays(fetches, parts_->results);
}

StatusOr<std::map<std::string, std::vector<Array>>> ParallelExecutor::run_unmerged(
    const Arrays& feeds, const std::vector<std::string>& fetches) {
  MILLRACE_RETURN_IF_ERROR(executor::check_each_feed(*parts_->program, feeds));
  MILLRACE_RETURN_IF_ERROR(executor::to_values(feeds, parts_->feeds));
  std::vector<std::vector<Value>> results;
  MILLRACE_RETURN_IF_ERROR(parts_->runner->run_unmerged(
      executor::ParallelFeeds::split(parts_->feeds), fetches, results));
  std::map<std::string, std::vector<Array>> arrays;
  for (size_t i = 0; i < fetches.size(); ++i) {
    std::vector<Array>& of_devices = arrays[fetches[i]];
    of_devices.clear();
    for (const Value& value : results[i]) {
      MILLRACE_ASSIGN_OR_RETURN(Array array, executor::to_array(fetches[i], value));
      of_devices.push_back(std::move(array));
    }
  }
  return arrays;
}

StatusOr<EpochResult> ParallelExecutor::train_from_dataset(Dataset& dataset,
                                                           const EpochOptions& options) {
  return run_over(
      dataset, options, parts_->link == nullptr ? nullptr : Internals::group(parts_->ranks),
      [this](const executor::NamedValues& feeds, const std::vector<std::string>& fetches,
             std::vector<Value>& results) {
        return parts_->runner->run(executor::ParallelFeeds::split(feeds), fetches, results);
      });
}

StatusOr<EpochResult> ParallelExecutor::infer_from_dataset(Dataset& dataset,
                                                           const EpochOptions& options) {
  MILLRACE_RETURN_IF_ERROR(check_infers(parts_->updated));
  return train_from_dataset(dataset, options);
}

StatusOr<Array> ParallelExecutor::get(int device, const std::string& name) const {
  if (device < 0 || device >= device_count())
    return NotFound("device {}: expected one of {} devices", device, device_count());
  const Value* const value = parts_->runner->local_scope(device).find_local(name);
  if (value == nullptr) return NotFound("device {} has no persistable var '{}'", device, name);
  return executor::to_array(name, *value);
}

Status ParallelExecutor::spread(const std::string& name) {
  const Value* const value = parts_->runner->local_scope(0).find_local(name);
  if (value == nullptr || !value->initialized())
    return NotFound("device 0 has no persistable var '{}' with a value", name);
  for (int d = 1; d < device_count(); ++d) {
    if (Value* const copy = parts_->runner->local_scope(d).find_local(name))
      MILLRACE_RETURN_IF_ERROR(executor::copy_value(*value, *copy));
  }
  return Ok();
}

int ParallelExecutor::device_count() const {
  return parts_->runner->device_count();
}
int64_t ParallelExecutor::runs() const {
  return parts_->runner->runs();
}
void ParallelExecutor::drop_local_exe_scopes() {
  parts_->runner->drop_local_exe_scopes();
}
const std::vector<std::string>& ParallelExecutor::remarks() const {
  return parts_->runner->remarks();
}
std::string ParallelExecutor::plan_text() const {
  return parts_->runner->plan_text();
}

}  // namespace millrace::api

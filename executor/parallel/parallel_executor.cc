#include "executor/parallel/parallel_executor.h"

#include <algorithm>
#include <mutex>

#include <fmt/ranges.h>

#include "executor/feed_targets.h"
#include "executor/parallel/device_links.h"
#include "executor/parallel/device_programs.h"
#include "executor/parallel/device_scopes.h"
#include "executor/parallel/device_threads.h"
#include "executor/parallel/exchange_group.h"
#include "executor/parallel/merge_fetches.h"
#include "executor/parallel/replica.h"
#include "executor/parallel/shared_updates.h"
#include "executor/parallel/start_values.h"
#include "executor/print_plan.h"
#include "framework/base/errors.h"
#include "kernels/random_state.h"
#include "transpiler/parallel/parallel.h"
#include "transpiler/roles.h"

namespace millrace::executor {
namespace {

// The first error of a step on any device. An error of a device itself says more than that another
// device was lost.
class FirstError {
 public:
  void report(int device, Status status) {
    const std::lock_guard lock(mutex_);
    const bool says_more =
        status_.code() == StatusCode::kDistributed && status.code() != StatusCode::kDistributed;
    if (device_ >= 0 && !says_more) return;
    device_ = device;
    status_ = std::move(status);
  }
  [[nodiscard]] int device() const { return device_; }
  [[nodiscard]] const Status& status() const { return status_; }

 private:
  std::mutex mutex_;
  int device_ = -1;
  Status status_;
};

int threads_of_device(const ParallelOptions& options, int threads, int device) {
  const int asked = options.exec_strategy.num_threads;
  const int budget = std::max(asked > 0 ? asked : threads, options.devices);
  return budget / options.devices + (device < budget % options.devices ? 1 : 0);
}

}  // namespace

struct ParallelExecutor::Parts {
  std::shared_ptr<const Runtime> runtime;
  std::unique_ptr<Program> given;
  bool training = false;
  std::vector<std::string> seeds;  ///< initial gradients of losses that are fed, not computed
  Scope* scope = nullptr;
  DeviceScopes scopes;
  std::unique_ptr<ExchangeGroup> group;
  std::unique_ptr<SharedUpdates> updates;
  SharedVars shared;
  /// Values that devices update independently: of device 0, and of another device.
  std::vector<std::pair<Value*, Value*>> updated_apart;
  std::vector<std::unique_ptr<Replica>> replicas;
  std::unique_ptr<DeviceThreads> threads;
  std::unique_ptr<DeviceLinks> links;  ///< null: values travel by host memory

  /// Of the last run, by device.
  std::vector<std::vector<DeviceFeed>> feeds;
  std::vector<std::vector<Value>> results;
  std::vector<Status> statuses;

  int threads_granted = 1;
  std::vector<std::string> kept;       ///< fetches and feeds that passes must keep
  std::vector<OpObserver*> observers;  ///< by device

  ~Parts() {
    if (links != nullptr) links->leave(*threads);
  }
  Status compile(const ParallelOptions& options, std::vector<std::string>& remarks);
  void find_updated_apart();
  Status separate_states() const;
  void watch_updates() const;
  [[nodiscard]] bool is_active(size_t device) const { return !feeds[device].empty(); }
  Status divide_feeds(const ParallelOptions& options, const ParallelFeeds& given_feeds);
  Status check_names(const ParallelFeeds& given_feeds) const;
  Status weigh(const ParallelOptions& options);
  Status check_seeds() const;
  Status explain(const FirstError& error, int64_t step) const;
};

ParallelExecutor::ParallelExecutor(const ParallelOptions& options, std::unique_ptr<Parts> parts)
    : options_(options), parts_(std::move(parts)) {}

ParallelExecutor::~ParallelExecutor() = default;

StatusOr<std::unique_ptr<ParallelExecutor>> ParallelExecutor::create(
    std::shared_ptr<const Runtime> runtime, const Program& program, Scope& scope,
    const ParallelOptions& options, int threads) {
  MILLRACE_RETURN_IF_ERROR(check_options(options, program));
  std::unique_ptr<ParallelExecutor> result(
      new ParallelExecutor(options, std::make_unique<Parts>()));
  Parts& parts = *result->parts_;
  parts.runtime = runtime;
  parts.given = program.clone();
  parts.training = transpiler::is_training_program(program);
  const BuildStrategy& build = options.build_strategy;
  if (build.gradient_scale_strategy == GradientScale::kCustomized ||
      build.gradient_scale_strategy == GradientScale::kWeighted)
    parts.seeds = transpiler::loss_gradients(program);
  result->feed_targets_ = targets_of(program, "feed");
  result->fetch_targets_ = targets_of(program, "fetch");
  result->remarks_ = option_remarks(options);
  parts.scope = &scope;
  parts.threads_granted = threads;
  parts.observers.resize(static_cast<size_t>(options.devices));
  parts.threads = std::make_unique<DeviceThreads>(options.devices);
  if (options.gpus.size() > 1 && build.num_trainers == 1)
    parts.links = std::make_unique<DeviceLinks>(options.gpus, options.wait_timeout_ms);
  MILLRACE_RETURN_IF_ERROR(parts.compile(options, result->remarks_));
  if (parts.links != nullptr) MILLRACE_RETURN_IF_ERROR(parts.links->join(*parts.threads));
  return result;
}

// Makes and compiles the program of every device; the scopes of the devices are kept.
Status ParallelExecutor::Parts::compile(const ParallelOptions& options,
                                        std::vector<std::string>& remarks) {
  const BuildStrategy& build = options.build_strategy;
  std::vector<std::unique_ptr<Program>> programs;
  MILLRACE_ASSIGN_OR_RETURN(programs,
                            make_device_programs(*given, *runtime->ops, options, kept, remarks));
  std::vector<uint64_t> positions;  // random positions of programs that are compiled again
  for (const auto& replica : replicas)
    positions.push_back(kernels::random_position(replica->runner().device()));
  replicas.clear();
  if (scopes.scopes.empty()) {
    if (build.num_trainers > 1)
      MILLRACE_RETURN_IF_ERROR(share_start_values(*given, *scope, *options.trainers));
    MILLRACE_ASSIGN_OR_RETURN(scopes, make_device_scopes(*scope, programs, options));
  }
  ExchangeOptions exchange;
  exchange.devices = options.devices;
  const int kernel_exchange = count_exchanges(*programs.front());
  exchange.exchanges = kernel_exchange + 1;
  shared = shared_vars(*programs.front());
  exchange.runners = options.exec_strategy.num_threads;
  exchange.timeout_ms = options.wait_timeout_ms;
  exchange.trainers = build.num_trainers > 1 ? options.trainers : nullptr;
  group = std::make_unique<ExchangeGroup>(exchange);
  updates = std::make_unique<SharedUpdates>(*group, shared.updates);
  watch_updates();
  for (int d = 0; d < options.devices; ++d) {
    ReplicaOptions settings;
    settings.device = d;
    settings.threads = threads_of_device(options, threads_granted, d);
    // devices are numbered over all processes
    settings.seed = options.seed + static_cast<uint64_t>(build.trainer_id) *
                                       static_cast<uint64_t>(options.devices) * kSeedStep;
    settings.shares_memory = build.memory_optimize.value_or(true);
    settings.in_place = build.enable_inplace;
    settings.dry_run = options.exec_strategy.dry_run;
    settings.debug_memory = options.debug_memory;
    settings.micro_batches = build.micro_batches;
    const auto index = static_cast<size_t>(d);
    if (!options.gpus.empty()) settings.gpu = options.gpus[index];
    MILLRACE_ASSIGN_OR_RETURN(
        std::unique_ptr<Replica> replica,
        Replica::create(runtime, std::move(programs[index]), *scopes.scopes[index], settings));
    replica->join(*group, kernel_exchange, *updates, links.get(), options.trainers_on_gpu);
    replica->runner().observe(observers[index]);
    if (!positions.empty())
      kernels::set_random_position(replica->runner().device(), positions[index]);
    replicas.push_back(std::move(replica));
  }
  find_updated_apart();
  return Ok();
}

// An observer between ops must not see values that other devices still write.
void ParallelExecutor::Parts::watch_updates() const {
  updates->wait_each(std::any_of(observers.begin(), observers.end(),
                                 [](const OpObserver* observer) { return observer != nullptr; }));
}

void ParallelExecutor::Parts::find_updated_apart() {
  updated_apart.clear();
  for (size_t d = 1; d < replicas.size(); ++d) {
    for (const CompiledOp& compiled : replicas[d]->runner().compiled_ops()) {
      const Op& op = *compiled.op;
      if (!transpiler::role::is_optimizer(op) || op.has_attr("shared_update")) continue;
      for (const llvm::StringRef name : op.output_names()) {
        Value* const own = replicas[d]->runner().find(name);
        Value* const first = replicas[0]->runner().find(name);
        if (own != nullptr && first != nullptr && own != first)
          updated_apart.emplace_back(first, own);
      }
    }
  }
}

// Another executor, or an earlier run of this one, may have left states that all devices share in
// memory.
Status ParallelExecutor::Parts::separate_states() const {
  for (const auto& [first, own] : updated_apart) {
    const auto* const original = first->get_if<Tensor>();
    auto* const state = own->get_if<Tensor>();
    if (original == nullptr || state == nullptr || !state->initialized() ||
        !state->shares_memory_with(*original))
      continue;
    MILLRACE_ASSIGN_OR_RETURN(*state, original->clone());
  }
  return Ok();
}

Status ParallelExecutor::Parts::check_names(const ParallelFeeds& given_feeds) const {
  if (given_feeds.values != nullptr) return check_feed_names(*given, *given_feeds.values);
  for (const NamedValues& of_device : given_feeds.devices)
    MILLRACE_RETURN_IF_ERROR(check_feed_names(*given, of_device));
  return Ok();
}

Status ParallelExecutor::Parts::divide_feeds(const ParallelOptions& options,
                                             const ParallelFeeds& given_feeds) {
  SplitSettings settings;
  settings.devices = options.devices;
  settings.rule = options.split;
  settings.training = training;
  settings.given = given_feeds.rows_per_device;
  std::vector<DeviceFeed> divided(static_cast<size_t>(options.devices));
  MILLRACE_RETURN_IF_ERROR(check_names(given_feeds));
  if (given_feeds.values == nullptr) {
    MILLRACE_ASSIGN_OR_RETURN(divided, list_feeds(*given, given_feeds.devices, settings));
  } else if (!given_feeds.values->empty()) {
    MILLRACE_ASSIGN_OR_RETURN(divided, split_feeds(*given, *given_feeds.values, settings));
  }
  const bool some = std::any_of(divided.begin(), divided.end(),
                                [](const DeviceFeed& feed) { return feed.rows > 0; });
  feeds.resize(divided.size());
  for (size_t d = 0; d < divided.size(); ++d) {
    feeds[d].clear();
    // in inference devices without rows have nothing to do
    if (some && !training && divided[d].rows == 0) continue;
    MILLRACE_ASSIGN_OR_RETURN(
        feeds[d], split_micro_batches(*given, std::move(divided[d]),
                                      training ? options.build_strategy.micro_batches : 1));
  }
  return options.build_strategy.gradient_scale_strategy == GradientScale::kWeighted ? weigh(options)
                                                                                    : Ok();
}

// Sets the initial gradient of each part to its share of the rows, so that the sum of means is the
// mean over all rows.
Status ParallelExecutor::Parts::weigh(const ParallelOptions& options) {
  int64_t rows = 0;
  for (const std::vector<DeviceFeed>& of_device : feeds) {
    for (const DeviceFeed& part : of_device) rows += part.rows;
  }
  // processes may have other numbers of rows
  if (options.build_strategy.num_trainers > 1) {
    MILLRACE_RETURN_IF_ERROR(
        options.trainers->all_reduce(DType::kInt64, reinterpret_cast<std::byte*>(&rows), 1, 0));
  }
  if (rows == 0)
    return InvalidArgument(
        "gradient_scale_strategy weighted: no fed var has rows from which to compute weights");
  const auto all = static_cast<double>(rows);
  for (std::vector<DeviceFeed>& of_device : feeds) {
    for (DeviceFeed& part : of_device) {
      for (const std::string& name : seeds) {
        const Var* const var = given->root().find_var(name);
        Dims dims = var == nullptr ? Dims{1} : Dims(var->dims().begin(), var->dims().end());
        std::replace(dims.begin(), dims.end(), int64_t{-1}, int64_t{1});
        auto& tensor = part.values[name].as<Tensor>();
        MILLRACE_ASSIGN_OR_RETURN(tensor, Tensor::create(DType::kFloat32, dims));
        std::fill_n(tensor.data<float>(), tensor.numel(),
                    static_cast<float>(static_cast<double>(part.rows) / all));
      }
    }
  }
  return Ok();
}

Status ParallelExecutor::Parts::check_seeds() const {
  for (size_t d = 0; d < feeds.size(); ++d) {
    for (const DeviceFeed& part : feeds[d]) {
      for (const std::string& name : seeds) {
        if (part.values.contains(name)) continue;
        Location place;
        place.var = name;
        return InvalidArgument(
                   "gradient_scale_strategy customized: device {} is not fed the gradient of the "
                   "loss",
                   d)
            .at(std::move(place));
      }
    }
  }
  return Ok();
}

// Adds the location of the error in the original program, and what the step has changed.
Status ParallelExecutor::Parts::explain(const FirstError& error, int64_t step) const {
  const auto device = static_cast<size_t>(error.device());
  Status status = error.status();
  Location place = status.location();
  if (place.block == 0 && place.op >= 0) {
    place.op = given_index(*given, replicas[device]->program(), place.op);
    status = std::move(status).at(std::move(place));
  }
  if (replicas.size() > 1 || step > 0)
    status = std::move(status).with_note(fmt::format("on device {} in step {}", device, step));
  if (!training) return status;
  std::vector<size_t> updated;
  for (size_t d = 0; d < statuses.size(); ++d) {
    const int64_t op = statuses[d].location().op;
    const bool in_sub_block = statuses[d].location().block > 0;
    const int64_t first_update = replicas[d]->first_update();
    const bool waits_for_others =
        op == first_update && replicas[d]->shares_first_update() && !updates->begun();
    const bool before =
        !statuses[d].ok() && !in_sub_block && (op < first_update || waits_for_others);
    if (!before) updated.push_back(d);
  }
  if (updated.empty()) {
    return std::move(status).with_note(
        "parameters are unchanged by the step; batch statistics may have changed");
  }
  return std::move(status).with_note(
      fmt::format("parameters may have been partly updated, on devices {}; load a checkpoint to "
                  "continue",
                  fmt::join(updated, ", ")));
}

// Makes sure that the devices have the fetched vars, including sums of fetched gradients, and that
// fed vars are not shared between devices.
Status ParallelExecutor::provide(const ParallelFeeds& feeds,
                                 const std::vector<std::string>& fetches) {
  const size_t before = parts_->kept.size();
  const auto keep_fed = [&](const NamedValues& values) {
    for (const auto& [name, value] : values) {
      if (parts_->shared.persistable.erase(name) > 0) parts_->kept.push_back(name);
    }
  };
  if (feeds.values != nullptr) keep_fed(*feeds.values);
  for (const NamedValues& of_device : feeds.devices) keep_fed(of_device);
  for (const std::string& name : fetches) {
    if (parts_->shared.grads.erase(name) > 0) parts_->kept.push_back(name);
  }
  const bool shares_less = parts_->kept.size() > before;
  for (const std::string& name : fetches) {
    const bool is_there =
        std::any_of(parts_->replicas.begin(), parts_->replicas.end(),
                    [&](const auto& replica) { return replica->runner().find(name) != nullptr; });
    const Block& root = parts_->given->root();
    if (!is_there && (root.has_readers(name) || root.has_writers(name)))
      parts_->kept.push_back(name);
  }
  if (parts_->kept.size() == before || !(options_.optimize || shares_less)) return Ok();
  std::vector<std::string> repeated;
  return parts_->compile(options_, repeated);
}

Status ParallelExecutor::check_fetches(const std::vector<std::string>& fetches) const {
  for (const std::string& name : fetches) {
    const bool known =
        std::any_of(parts_->replicas.begin(), parts_->replicas.end(),
                    [&](const auto& replica) { return replica->find(name) != nullptr; }) ||
        parts_->given->root().find_var(name) != nullptr;
    if (!known) return NotFound("fetch: the program has no var '{}'", name);
  }
  return Ok();
}

Status ParallelExecutor::run_devices(const ParallelFeeds& feeds,
                                     const std::vector<std::string>& fetches) {
  Parts& parts = *parts_;
  MILLRACE_RETURN_IF_ERROR(check_fetches(fetches));
  MILLRACE_RETURN_IF_ERROR(provide(feeds, fetches));
  MILLRACE_RETURN_IF_ERROR(parts.divide_feeds(options_, feeds));
  MILLRACE_RETURN_IF_ERROR(parts.check_seeds());
  parts.results.resize(parts.replicas.size());
  parts.statuses.assign(parts.replicas.size(), Ok());
  FirstError error;
  MILLRACE_RETURN_IF_ERROR(parts.separate_states());
  if (parts.links != nullptr) MILLRACE_RETURN_IF_ERROR(parts.links->join(*parts.threads));
  parts.group->reset();
  parts.updates->reset();
  parts.threads->run([&](int device) {
    const auto d = static_cast<size_t>(device);
    if (!parts.is_active(d)) return;
    parts.group->enter();
    Status status;
    for (int i = 0; i < options_.exec_strategy.num_iteration_per_run && status.ok(); ++i)
      status = parts.replicas[d]->run(parts.feeds[d], fetches, parts.results[d]);
    if (!status.ok()) {
      error.report(device, status);
      parts.group->fail();
      if (parts.links != nullptr) parts.links->abort(device, status);
    }
    parts.group->leave();
    parts.statuses[d] = std::move(status);
  });
  Status status = error.device() < 0 ? Ok() : parts.explain(error, runs_);
  if (!status.ok() && options_.trainers_on_gpu != nullptr) options_.trainers_on_gpu->abort(status);
  if (!status.ok() && options_.build_strategy.num_trainers > 1) options_.trainers->abort(status);
  count_run();
  return status;
}

void ParallelExecutor::count_run() {
  ++runs_;
  if (++runs_since_drop_ >= options_.exec_strategy.num_iteration_per_drop_scope)
    drop_local_exe_scopes();
}

void ParallelExecutor::drop_local_exe_scopes() {
  if (runs_since_drop_ > 0) {
    for (const std::unique_ptr<Replica>& replica : parts_->replicas) replica->drop_temporaries();
  }
  runs_since_drop_ = 0;
}

Status ParallelExecutor::run(const ParallelFeeds& feeds, const std::vector<std::string>& fetches,
                             std::vector<Value>& results) {
  MILLRACE_RETURN_IF_ERROR(run_devices(feeds, fetches));
  results.resize(fetches.size());
  for (size_t i = 0; i < fetches.size(); ++i) {
    llvm::SmallVector<const Value*, 8> parts;
    for (size_t d = 0; d < parts_->results.size(); ++d) {
      if (!parts_->is_active(d)) continue;
      const std::vector<Value>& of_device = parts_->results[d];
      for (size_t at = i; at < of_device.size(); at += fetches.size())
        parts.push_back(&of_device[at]);
    }
    MILLRACE_RETURN_IF_ERROR(merge_parts(fetches[i], parts, results[i]));
  }
  return Ok();
}

Status ParallelExecutor::run_unmerged(const ParallelFeeds& feeds,
                                      const std::vector<std::string>& fetches,
                                      std::vector<std::vector<Value>>& results) {
  MILLRACE_RETURN_IF_ERROR(run_devices(feeds, fetches));
  results.clear();
  results.resize(fetches.size());
  for (size_t d = 0; d < parts_->results.size(); ++d) {
    if (!parts_->is_active(d)) continue;
    std::vector<Value>& of_device = parts_->results[d];
    for (size_t at = 0; at < of_device.size(); ++at)
      results[at % fetches.size()].push_back(std::move(of_device[at]));
    of_device.clear();
  }
  return Ok();
}

Scope& ParallelExecutor::local_scope(int device) const {
  return *parts_->scopes.scopes[static_cast<size_t>(device)];
}

void ParallelExecutor::observe(int device, OpObserver* observer) {
  parts_->observers[static_cast<size_t>(device)] = observer;
  parts_->replicas[static_cast<size_t>(device)]->runner().observe(observer);
  parts_->watch_updates();
}

uint64_t ParallelExecutor::random_position(int device) const {
  return kernels::random_position(parts_->replicas[static_cast<size_t>(device)]->runner().device());
}

void ParallelExecutor::set_random_position(int device, uint64_t position) {
  kernels::set_random_position(parts_->replicas[static_cast<size_t>(device)]->runner().device(),
                               position);
}

const GpuOps* ParallelExecutor::gpu(int device) const {
  return parts_->replicas[static_cast<size_t>(device)]->runner().gpu();
}

int64_t ParallelExecutor::memory_bytes(int device) const {
  return parts_->replicas[static_cast<size_t>(device)]->runner().arena().bytes();
}

std::string ParallelExecutor::plan_text() const {
  std::string text;
  for (const std::string& remark : remarks_) text += "# " + remark + "\n";
  for (int d = 0; d < options_.devices; ++d) {
    text +=
        fmt::format("device {}: {}\n", d, device_pipeline(options_, d, parts_->kept).to_string());
    text += print_plan(parts_->replicas[static_cast<size_t>(d)]->runner());
  }
  return text;
}

}  // namespace millrace::executor

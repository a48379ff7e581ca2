#include "api/executor.h"

#include <optional>
#include <utility>

#include "api/internals.h"
#include "executor/add_custom_ops.h"
#include "executor/array_values.h"
#include "executor/executor.h"
#include "executor/feed_targets.h"
#include "executor/gpu/open_device.h"
#include "executor/parallel/replica.h"
#include "executor/parallel/worker_programs.h"
#include "framework/base/errors.h"
#include "jobs/run/collective_ops.h"

namespace millrace::api {
namespace {

StatusOr<std::vector<Array>> list_of(const std::string& name, const TensorArray& tensors) {
  std::vector<Array> arrays(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!tensors[i].initialized()) continue;
    Value element;
    element.as<Tensor>() = tensors[i].share();
    MILLRACE_ASSIGN_OR_RETURN(arrays[i], executor::to_array(name, element));
  }
  return arrays;
}

StatusOr<FetchedValue> fetched(const std::string& name, const Value& value) {
  if (value.holds<SelectedRows>()) {
    MILLRACE_ASSIGN_OR_RETURN(Rows rows, rows_of(name, value));
    return FetchedValue(std::move(rows));
  }
  if (const auto* const tensors = value.get_if<TensorArray>()) {
    MILLRACE_ASSIGN_OR_RETURN(std::vector<Array> arrays, list_of(name, *tensors));
    return FetchedValue(std::move(arrays));
  }
  MILLRACE_ASSIGN_OR_RETURN(Array array, executor::to_array(name, value));
  return FetchedValue(std::move(array));
}

}  // namespace

struct PreparedProgram::Parts {
  std::shared_ptr<void> scope;  ///< keeps the vars alive that the program refers to
  std::unique_ptr<executor::PreparedProgram> program;
  executor::NamedValues feeds;  ///< in the caller's memory, so empty between runs
  std::vector<Value> results;   ///< kept, so that a run with the same shapes allocates less
  /// The ranks that run the program together; null: it has no collective ops, or there are none.
  executor::CollectiveGroup* group = nullptr;

  // A pass with several threads that share the variables.
  StatusOr<EpochResult> run_in_threads(Dataset& dataset, const EpochOptions& options) const;

  Status run(const ArrayViews& given, const std::vector<std::string>& wanted) {
    MILLRACE_RETURN_IF_ERROR(executor::check_each_feed(program->given(), given));
    Status status = executor::borrow_values(given, feeds);
    if (status.ok()) status = program->run(feeds, wanted, results);
    feeds.clear();
    return tell_ranks(group, std::move(status));
  }
  StatusOr<EpochResult> train(Dataset& dataset, const EpochOptions& options) {
    return run_over(
        dataset, options, group,
        [this](const executor::NamedValues& fed, const std::vector<std::string>& fetches,
               std::vector<Value>& values) { return program->run(fed, fetches, values); });
  }
};

StatusOr<EpochResult> PreparedProgram::Parts::run_in_threads(Dataset& dataset,
                                                             const EpochOptions& options) const {
  MILLRACE_ASSIGN_OR_RETURN(const auto workers, executor::WorkerPrograms::create(
                                                    *program, options.threads, options.fetches));
  const std::vector<executor::VarUse> all = workers->all_vars();
  EpochOptions how = options;
  how.threads = 1;  // those of run_over()
  if (options.on_print) {
    how.on_print = [&](const EpochStep& step) {
      const executor::HeldVars held(all);  // it may use the variables
      return options.on_print(step);
    };
  }
  StatusOr<EpochResult> result =
      run_over(dataset, how,
               [&workers](int worker, int64_t, const executor::NamedValues& given,
                          const std::vector<std::string>&, std::vector<Value>& values) {
                 return workers->run(worker, given, values);
               },
               {.count = options.threads});
  workers->finish();
  return result;
}

PreparedProgram::PreparedProgram(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
PreparedProgram::PreparedProgram(PreparedProgram&&) noexcept = default;
PreparedProgram& PreparedProgram::operator=(PreparedProgram&&) noexcept = default;
PreparedProgram::~PreparedProgram() = default;

uint64_t PreparedProgram::random_position() const {
  return parts_->program->random_position();
}
void PreparedProgram::set_random_position(uint64_t position) {
  parts_->program->set_random_position(position);
}

StatusOr<EpochResult> PreparedProgram::train_from_dataset(Dataset& dataset,
                                                          const EpochOptions& options) {
  if (options.threads > 1 && parts_->group == nullptr)
    return parts_->run_in_threads(dataset, options);
  return parts_->train(dataset, options);
}

StatusOr<EpochResult> PreparedProgram::infer_from_dataset(Dataset& dataset,
                                                          const EpochOptions& options) {
  MILLRACE_RETURN_IF_ERROR(check_infers(updated_var(parts_->program->given())));
  return train_from_dataset(dataset, options);
}

const std::vector<std::string>& PreparedProgram::inputs() const {
  return parts_->program->feed_targets();
}
const std::vector<std::string>& PreparedProgram::outputs() const {
  return parts_->program->fetch_targets();
}
std::string PreparedProgram::plan_text() const {
  return parts_->program->plan_text();
}

StatusOr<Arrays> PreparedProgram::run(const Arrays& feeds,
                                      const std::vector<std::string>& fetches) {
  const std::vector<std::string>& wanted = fetches.empty() ? outputs() : fetches;
  MILLRACE_RETURN_IF_ERROR(parts_->run(views_of(feeds), wanted));
  return executor::to_arrays(wanted, parts_->results);
}

StatusOr<std::map<std::string, FetchedValue>> PreparedProgram::run_any(
    const ArrayViews& feeds, const std::vector<std::string>& fetches) {
  const std::vector<std::string>& wanted = fetches.empty() ? outputs() : fetches;
  MILLRACE_RETURN_IF_ERROR(parts_->run(feeds, wanted));
  std::map<std::string, FetchedValue> values;
  for (size_t i = 0; i < wanted.size(); ++i) {
    MILLRACE_ASSIGN_OR_RETURN(values[wanted[i]], fetched(wanted[i], parts_->results[i]));
  }
  return values;
}

struct Executor::Parts {
  executor::Executor runner;
  executor::CollectiveGroup* group = nullptr;  ///< all ranks
  std::optional<uint64_t> position;            ///< of random numbers after the last run()

  // Runs a program that continues the random numbers.
  template <typename F>
  auto continued(PreparedProgram& prepared, const F& run) {
    if (position) prepared.set_random_position(*position);
    auto results = run();
    position = prepared.random_position();
    return results;
  }
};

Executor::Executor(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Executor::Executor(Executor&&) noexcept = default;
Executor& Executor::operator=(Executor&&) noexcept = default;
Executor::~Executor() = default;

StatusOr<Executor> Executor::create(const ExecutorOptions& options) {
  if (options.threads < 1)
    return InvalidArgument("options.threads: expected at least 1, found {}", options.threads);
  MILLRACE_ASSIGN_OR_RETURN(auto runtime,
                            executor::runtime_with(options.custom_ops, options.allow_dir,
                                                   Internals::rings(options.ranks)));
  executor::ExecutorOptions settings;
  settings.threads = options.threads;
  settings.seed = options.seed;
  if (options.ranks)
    settings.seed += static_cast<uint64_t>(options.ranks->rank()) * executor::kSeedStep;
  settings.optimize = options.optimize;
  settings.bf16_products = options.bf16_products;
  settings.inter_op = options.inter_op;
  settings.debug_memory = options.debug_memory;
  MILLRACE_ASSIGN_OR_RETURN(settings.gpu,
                            executor::open_device(options.device, {.tf32 = options.tf32_products,
                                                                   .bf16 = options.bf16_products}));
  if (settings.gpu != nullptr && (options.debug_memory || options.inter_op))
    return Unimplemented("options.{} with device '{}'",
                         options.debug_memory ? "debug_memory" : "inter_op", options.device);
  return Executor(
      std::unique_ptr<Parts>(new Parts{executor::Executor(std::move(runtime), std::move(settings)),
                                       Internals::group(options.ranks), std::nullopt}));
}

StatusOr<PreparedProgram> Executor::prepare(const Program& program, const Scope& scope) const {
  MILLRACE_RETURN_IF_ERROR(parts_->runner.check(program));
  auto parts = std::make_unique<PreparedProgram::Parts>();
  parts->scope = Internals::state(scope);
  MILLRACE_ASSIGN_OR_RETURN(parts->program,
                            parts_->runner.prepare(program, Internals::vars(scope)));
  if (jobs::has_collective_ops(program)) parts->group = parts_->group;
  return PreparedProgram(std::move(parts));
}

StatusOr<Arrays> Executor::run(const Program& program, const Scope& scope, const Arrays& feeds,
                               const std::vector<std::string>& fetches) {
  MILLRACE_ASSIGN_OR_RETURN(PreparedProgram prepared, prepare(program, scope));
  return parts_->continued(prepared, [&] { return prepared.run(feeds, fetches); });
}

StatusOr<EpochResult> Executor::train_from_dataset(const Program& program, const Scope& scope,
                                                   Dataset& dataset, const EpochOptions& options) {
  MILLRACE_ASSIGN_OR_RETURN(PreparedProgram prepared, prepare(program, scope));
  return parts_->continued(prepared, [&] { return prepared.train_from_dataset(dataset, options); });
}

StatusOr<EpochResult> Executor::infer_from_dataset(const Program& program, const Scope& scope,
                                                   Dataset& dataset, const EpochOptions& options) {
  MILLRACE_ASSIGN_OR_RETURN(PreparedProgram prepared, prepare(program, scope));
  return parts_->continued(prepared, [&] { return prepared.infer_from_dataset(dataset, options); });
}

}  // namespace millrace::api

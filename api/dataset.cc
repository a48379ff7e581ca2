#include "api/dataset.h"

#include <algorithm>
#include <exception>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <llvm/ADT/ScopeExit.h>

#include "api/internals.h"
#include "executor/array_values.h"
#include "framework/base/errors.h"
#include "framework/base/exceptions.h"
#include "framework/base/json_writer.h"
#include "framework/program.h"
#include "jobs/data/divided_steps.h"
#include "jobs/data/slot_data.h"
#include "jobs/run/epoch.h"
#include "jobs/stats/fetches_line.h"
#include "transpiler/roles.h"

namespace millrace::api {
namespace {

Status check_dataset_options(const DatasetOptions& options) {
  if (options.files.empty() && options.arrow.empty())
    return InvalidArgument("options.files: expected at least one file");
  if (!options.files.empty() && !options.arrow.empty())
    return InvalidArgument("expected one of options.files and options.arrow");
  if (!options.arrow.empty() && (!options.pipe_command.empty() || options.allow_pipe_command))
    return InvalidArgument("options.pipe_command has no effect on options.arrow");
  const int described = static_cast<int>(!options.use_vars.empty()) +
                        static_cast<int>(!options.slots.empty()) +
                        static_cast<int>(!options.slots_text.empty());
  if (described != 1)
    return InvalidArgument(
        "expected one of options.use_vars, options.slots and options.slots_text, found {}",
        described);
  if (options.allow_pipe_command && !options.use_vars.empty())
    return InvalidArgument("options.allow_pipe_command has no effect: there is no description");
  if (options.batch_size < 0)
    return InvalidArgument("options.batch_size: expected at least 0, found {}", options.batch_size);
  if (options.reader_threads < 0)
    return InvalidArgument("options.reader_threads: expected at least 0, found {}",
                           options.reader_threads);
  if (options.divide == DatasetDivide::kNone && (options.trainer != 0 || options.trainers != 1))
    return InvalidArgument("options.trainer and options.trainers have no effect without divide");
  if (options.reshuffle_epochs &&
      (!options.in_memory || options.divide != DatasetDivide::kExamples))
    return InvalidArgument(
        "options.reshuffle_epochs: expected options.in_memory and options.divide examples");
  return Ok();
}

// A command that the caller states is one that it allows.
Status take_command(const DatasetOptions& options, io::SlotsFile& slots) {
  if (options.pipe_command.empty()) return Ok();
  if (!slots.pipe_command.empty())
    return InvalidArgument(
        "options.pipe_command: the description of the slots has another one, '{}'",
        slots.pipe_command);
  if (options.pipe_command != "cat") slots.pipe_command = options.pipe_command;
  return Ok();
}

// Replaces the examples. Errors: a source that cannot be opened, or with the name of another one.
Status take_sources(const std::vector<ArrowSource>& sources, jobs::FeedOptions& feeds) {
  feeds.files.clear();
  feeds.streams.clear();
  for (const ArrowSource& source : sources) {
    if (!source.open)
      return InvalidArgument("options.arrow: source '{}' has no function that opens it",
                             source.name);
    if (!feeds.streams.emplace(source.name, source.open).second)
      return InvalidArgument("options.arrow: two sources have the name '{}'", source.name);
    feeds.files.push_back(source.name);
  }
  return Ok();
}

jobs::FeedOptions feed_options_of(const DatasetOptions& options) {
  jobs::FeedOptions feeds;
  feeds.files = options.files;
  feeds.allow_pipe_command = options.allow_pipe_command || !options.pipe_command.empty();
  feeds.in_memory = options.in_memory;
  feeds.reader_threads = options.reader_threads;
  feeds.batch_size = options.batch_size;
  feeds.shuffle = false;  // local_shuffle() does
  feeds.seed = options.seed;
  feeds.drop_last = options.drop_last;
  if (options.divide == DatasetDivide::kFiles) feeds.divide = jobs::Divide::kFiles;
  if (options.divide == DatasetDivide::kExamples) feeds.divide = jobs::Divide::kExamples;
  feeds.reshuffle_epochs = options.reshuffle_epochs;
  feeds.trainer = options.trainer;
  feeds.trainers = options.trainers;
  return feeds;
}

StatusOr<io::SlotsFile> dataset_slots(const Program& program, const DatasetOptions& options) {
  if (!options.slots.empty()) return jobs::read_slots(options.slots, program);
  if (!options.slots_text.empty()) {
    StatusOr<io::SlotsFile> slots = io::parse_slots(options.slots_text, program);
    if (!slots.ok()) return std::move(slots).status().with_note("in options.slots_text");
    return slots;
  }
  JsonWriter names(0);
  if (!options.arrow.empty()) names.begin_object().key("format").value("arrow").key("slots");
  names.begin_array();
  for (const std::string& name : options.use_vars) {
    if (program.root().find_var(name) == nullptr)
      return InvalidArgument("options.use_vars: the program has no var '{}'", name);
    names.value(name);
  }
  names.end_array();
  if (!options.arrow.empty()) names.end_object();
  return io::parse_slots(names.take(), program);
}

Status check_epoch_options(const EpochOptions& options) {
  if (options.threads < 1)
    return InvalidArgument("options.threads: expected at least 1, found {}", options.threads);
  if (options.threads > 1)
    return Unimplemented("options.threads {}: only executors and programs on one device have them",
                         options.threads);
  if (options.first_batch < 0)
    return InvalidArgument("options.first_batch: expected at least 0, found {}",
                           options.first_batch);
  if (options.print_period < 1)
    return InvalidArgument("options.print_period: expected at least 1, found {}",
                           options.print_period);
  return Ok();
}

// The options live as long as the result.
jobs::EpochOptions epoch_options_of(const EpochOptions& options) {
  jobs::EpochOptions how;
  how.fetches = options.fetches;
  how.first_batch = options.first_batch;
  how.print_period = options.print_period;
  if (!options.on_print) return how;
  how.print = [&options](const jobs::BatchFacts& facts) -> Status {
    EpochStep step{facts.batch, facts.examples, {}, {}};
    MILLRACE_ASSIGN_OR_RETURN(step.fetches, executor::to_arrays(*facts.values));
    step.text = jobs::fetches_line(facts.batch, options.fetches, *facts.values);
    return options.on_print(step);
  };
  return how;
}

}  // namespace

struct Dataset::Parts {
  jobs::FeedOptions feeds;
  io::SlotsFile slots;
  std::unique_ptr<jobs::SlotData> data;
  std::thread preloading;  ///< joinable from preload() to wait_preload()
  Status preloaded;        ///< what it has found
  bool in_epoch = false;   ///< run_over() reads the examples

  ~Parts() {
    if (preloading.joinable()) preloading.join();
  }
  [[nodiscard]] Status may(const char* call) const {
    if (in_epoch) return InvalidArgument("{}: an epoch is running over the data set", call);
    if (!preloading.joinable()) return Ok();
    return InvalidArgument("{}: the data set is being read, call wait_preload() first", call);
  }
  [[nodiscard]] Status may_with_ranks(const EpochOptions& options) const;
  // Errors for calls that need examples in memory.
  [[nodiscard]] Status may_in_memory(const char* call) const {
    MILLRACE_RETURN_IF_ERROR(may(call));
    if (data->in_memory()) return Ok();
    return Unimplemented("{} of a data set that is not in memory", call);
  }
};

Dataset::Dataset(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Dataset::Dataset(Dataset&&) noexcept = default;
Dataset& Dataset::operator=(Dataset&&) noexcept = default;
Dataset::~Dataset() = default;

StatusOr<Dataset> Dataset::create(const Program& program, const DatasetOptions& options) {
  MILLRACE_RETURN_IF_ERROR(check_dataset_options(options));
  auto parts = std::make_unique<Parts>();
  parts->feeds = feed_options_of(options);
  if (!options.arrow.empty()) MILLRACE_RETURN_IF_ERROR(take_sources(options.arrow, parts->feeds));
  MILLRACE_ASSIGN_OR_RETURN(parts->slots, dataset_slots(program, options));
  MILLRACE_RETURN_IF_ERROR(take_command(options, parts->slots));
  MILLRACE_ASSIGN_OR_RETURN(parts->data, jobs::SlotData::find(parts->feeds, parts->slots));
  return Dataset(std::move(parts));
}

Status Dataset::set_files(const std::vector<std::string>& files) {
  MILLRACE_RETURN_IF_ERROR(parts_->may("set_files"));
  if (files.empty()) return InvalidArgument("set_files: expected at least one file");
  if (parts_->slots.format.arrow)
    return InvalidArgument("set_files: the data set has Arrow streams, expected set_arrow");
  jobs::FeedOptions feeds = parts_->feeds;
  feeds.files = files;
  MILLRACE_ASSIGN_OR_RETURN(parts_->data, jobs::SlotData::find(feeds, parts_->slots));
  parts_->feeds = std::move(feeds);
  return Ok();
}

Status Dataset::set_arrow(const std::vector<ArrowSource>& sources) {
  MILLRACE_RETURN_IF_ERROR(parts_->may("set_arrow"));
  if (sources.empty()) return InvalidArgument("set_arrow: expected at least one source");
  if (!parts_->slots.format.arrow)
    return InvalidArgument("set_arrow: the data set has files, expected set_files");
  jobs::FeedOptions feeds = parts_->feeds;
  MILLRACE_RETURN_IF_ERROR(take_sources(sources, feeds));
  MILLRACE_ASSIGN_OR_RETURN(parts_->data, jobs::SlotData::find(feeds, parts_->slots));
  parts_->feeds = std::move(feeds);
  return Ok();
}

std::vector<std::string> Dataset::fed_vars() const {
  std::vector<std::string> names;
  for (const io::Slot& slot : parts_->slots.slots)
    if (slot.is_used) names.push_back(slot.name);
  return names;
}

Status Dataset::load_into_memory() {
  MILLRACE_RETURN_IF_ERROR(parts_->may_in_memory("load_into_memory"));
  return parts_->data->load();
}

Status Dataset::preload() {
  MILLRACE_RETURN_IF_ERROR(parts_->may_in_memory("preload"));
  try {
    parts_->preloading = std::thread([parts = parts_.pointer().get()] {
      parts->preloaded = without_exceptions("in preload", [&] { return parts->data->load(); });
    });
  } catch (const std::exception& error) {
    return Status(StatusCode::kResource, fmt::format("no thread for preload: {}", error.what()));
  }
  return Ok();
}

Status Dataset::wait_preload() {
  if (!parts_->preloading.joinable())
    return InvalidArgument("wait_preload: expected a call of preload() before it");
  parts_->preloading.join();
  return std::exchange(parts_->preloaded, Ok());
}

Status Dataset::release_memory() {
  MILLRACE_RETURN_IF_ERROR(parts_->may_in_memory("release_memory"));
  parts_->data->release();
  return Ok();
}

int64_t Dataset::examples_in_memory() const {
  return parts_->preloading.joinable() ? 0 : parts_->data->loaded_rows();
}

Status Dataset::local_shuffle() {
  MILLRACE_RETURN_IF_ERROR(parts_->may_in_memory("local_shuffle"));
  if (!parts_->data->is_loaded())
    return InvalidArgument("local_shuffle: the examples are not in memory, load them first");
  parts_->data->shuffle();
  return Ok();
}

Status Dataset::global_shuffle(int trainers) {
  MILLRACE_RETURN_IF_ERROR(parts_->may_in_memory("global_shuffle"));
  if (trainers < 1)
    return InvalidArgument("global_shuffle: expected at least 1 trainer, found {}", trainers);
  const bool divided = parts_->feeds.divide == jobs::Divide::kExamples;
  if (trainers > 1 && !divided)
    return Status(
               StatusCode::kUnimplemented,
               fmt::format("global_shuffle: an exchange of examples between {} trainers", trainers))
        .with_hint(
            "give all trainers the same files and options.divide 'examples', so that each "
            "loads a random share of the lines, or global_shuffle(ranks), which exchanges them");
  if (divided && trainers != parts_->feeds.trainers)
    return InvalidArgument("global_shuffle: expected {} trainers as in options.trainers, found {}",
                           parts_->feeds.trainers, trainers);
  if (!parts_->data->is_loaded())
    return InvalidArgument("global_shuffle: the examples are not in memory, load them first");
  return parts_->data->shuffle_all();
}

Status Dataset::global_shuffle(const Ranks& ranks) {
  executor::CollectiveGroup* const group = Internals::group(ranks);
  if (group == nullptr) return local_shuffle();
  Status may = parts_->may_in_memory("global_shuffle");
  if (may.ok() && parts_->feeds.reshuffle_epochs)
    may = InvalidArgument("global_shuffle(ranks): options.reshuffle_epochs reads other shares");
  if (may.ok() && !parts_->data->is_loaded())
    may = InvalidArgument("global_shuffle: the examples are not in memory, load them first");
  MILLRACE_RETURN_IF_ERROR(tell_ranks(group, std::move(may)));
  return tell_ranks(group, parts_->data->exchange(*group));
}

StatusOr<EpochResult> run_over(Dataset& dataset, const EpochOptions& options, const RunFeeds& run) {
  return run_over(dataset, options,
                  [&run](int, int64_t, const executor::NamedValues& feeds,
                         const std::vector<std::string>& fetches,
                         std::vector<Value>& results) { return run(feeds, fetches, results); },
                  {});
}

StatusOr<EpochResult> run_over(Dataset& dataset, const EpochOptions& options,
                               const RunOneBatch& run, const jobs::EpochWorkers& workers) {
  MILLRACE_RETURN_IF_ERROR(check_epoch_options(options));
  auto& parts = Internals::parts(dataset);
  MILLRACE_RETURN_IF_ERROR(parts.may("a new epoch"));
  parts.in_epoch = true;
  const auto end = llvm::make_scope_exit([&parts] { parts.in_epoch = false; });
  const auto one = [&](int worker, int64_t batch, const executor::NamedValues& feeds,
                       executor::NamedValues& results) -> Status {
    std::vector<Value> values;
    for (const std::string& name : options.fetches) values.push_back(std::move(results[name]));
    MILLRACE_RETURN_IF_ERROR(run(worker, batch, feeds, options.fetches, values));
    // results that are not arrays are an error of the first batch, not of the last
    if (batch == options.first_batch)
      MILLRACE_RETURN_IF_ERROR(executor::to_arrays(options.fetches, values).status());
    for (size_t i = 0; i < values.size(); ++i) results[options.fetches[i]] = std::move(values[i]);
    return Ok();
  };
  MILLRACE_ASSIGN_OR_RETURN(const jobs::EpochResult done,
                            jobs::run_epoch(*parts.data, epoch_options_of(options), one, workers));
  EpochResult result;
  result.batches = done.batches;
  result.examples = done.examples;
  result.left_out = done.left_out;
  result.seconds = done.seconds;
  result.wait_seconds = done.wait_seconds;
  result.means = done.means;
  MILLRACE_ASSIGN_OR_RETURN(result.last, executor::to_arrays(done.last));
  return result;
}

// What this rank can tell without the others.
Status Dataset::Parts::may_with_ranks(const EpochOptions& options) const {
  MILLRACE_RETURN_IF_ERROR(check_epoch_options(options));
  MILLRACE_RETURN_IF_ERROR(may("a new epoch"));
  if (data->in_memory()) return Ok();
  return Unimplemented(
      "an epoch of ranks that run steps together over a data set that is not in memory, whose "
      "number of batches is not known");
}

StatusOr<EpochResult> run_over(Dataset& dataset, const EpochOptions& options,
                               executor::CollectiveGroup* group, const RunFeeds& run) {
  if (group == nullptr) return run_over(dataset, options, run);
  auto& parts = Internals::parts(dataset);
  MILLRACE_RETURN_IF_ERROR(tell_ranks(group, parts.may_with_ranks(options)));
  const int64_t own = std::max<int64_t>(0, parts.data->steps() - options.first_batch);
  MILLRACE_ASSIGN_OR_RETURN(const jobs::StepRange range, jobs::steps_of_ranks(own, *group));
  if (range.least != range.most || own == 0)  // all ranks find this
    return InvalidData("ranks have {} to {} batches, but they must run the same number",
                       range.least, range.most)
        .with_hint("divide the examples evenly, or with another batch size");
  StatusOr<EpochResult> result = run_over(dataset, options, run);
  if (!result.ok()) return tell_ranks(group, result.status());
  return result;
}

std::string updated_var(const Program& program) {
  for (const Block& block : program.blocks()) {
    for (const Op& op : block.ops())
      if (transpiler::role::is_optimizer(op)) return op.first_input("Param").str();
  }
  return {};
}

Status check_infers(const std::string& updated_var) {
  if (updated_var.empty()) return Ok();
  return InvalidArgument("infer_from_dataset: the program updates '{}'", updated_var)
      .with_hint("infer with a program without optimizer, or with a saved inference model");
}

}  // namespace millrace::api

#include "jobs/run/checkpoints.h"

#include <ctime>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <llvm/ADT/StringRef.h>

#include "executor/collective/group_gather.h"
#include "framework/base/errors.h"
#include "io/checkpoint/folder.h"
#include "io/checkpoint/own_values.h"
#include "io/checkpoint/spread_folder.h"

namespace millrace::jobs {
namespace {

// Adds the time of its lifetime to the costs.
class CostClock {
 public:
  explicit CostClock(CheckpointCosts& costs) : costs_(costs) {}
  CostClock(const CostClock&) = delete;
  CostClock& operator=(const CostClock&) = delete;
  ~CostClock() {
    costs_.wall_seconds += seconds(CLOCK_MONOTONIC) - wall_;
    costs_.processor_seconds += seconds(CLOCK_THREAD_CPUTIME_ID) - processor_;
  }

 private:
  static double seconds(clockid_t clock) {
    timespec time{};
    ::clock_gettime(clock, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
  }

  CheckpointCosts& costs_;
  double wall_ = seconds(CLOCK_MONOTONIC);
  double processor_ = seconds(CLOCK_THREAD_CPUTIME_ID);
};

// The record with the state of the random numbers: form, version, then a number for each device.
constexpr const char* kRandom = "random";
constexpr const char* kRandomForm = "millrace.random 1";

int ranks_of(const Session& session) {
  return session.ranks == nullptr ? 1 : session.ranks->size();
}

// Returns an empty list if the checkpoint lacks such a record for any rank. Errors: kInvalidData
// for a malformed record.
template <typename AnyCheckpoint>
StatusOr<std::vector<uint64_t>> load_random(AnyCheckpoint& checkpoint, const Session& session) {
  for (int rank = 0; rank < ranks_of(session); ++rank) {
    if (checkpoint.manifest().find_record(kRandom, rank) == nullptr) return std::vector<uint64_t>();
  }
  const int own = session.ranks == nullptr ? 0 : session.rank;
  MILLRACE_ASSIGN_OR_RETURN(const std::string text, checkpoint.load_record(kRandom, own));
  StatusOr<std::vector<uint64_t>> positions = parse_random_record(text);
  return positions.ok() ? std::move(positions)
                        : std::move(positions).status().in_file(checkpoint.folder());
}

// The state that a run saves.
io::LocalState state_of(const Session& session) {
  io::LocalState state;
  for (const Var& var : session.program().root().vars()) {
    if (!is_state_var(var)) continue;
    const Value* const value = session.scope->find_local(var.name());
    if (value != nullptr && value->initialized()) state.add(var.name().str(), *value);
  }
  return state;
}

Status fill_values(const io::Checkpoint& checkpoint, const std::vector<io::LoadTarget>& targets) {
  return io::load_state_dict(checkpoint, targets);
}
Status fill_values(io::SpreadCheckpoint& checkpoint, const std::vector<io::LoadTarget>& targets) {
  return checkpoint.load_state_dict(targets);
}

// Fills the persistable vars of the program. The checkpoint must have each var that has a value
// after the startup program; the other vars are set by the first step.
template <typename AnyCheckpoint>
Status load(AnyCheckpoint& checkpoint, Session& session) {
  std::vector<io::LoadTarget> targets;
  for (const Var& var : session.program().root().vars()) {
    if (!is_state_var(var)) continue;
    const std::string name = var.name().str();
    const Value* const held = session.scope->find_local(name);
    const bool needed = held != nullptr && held->initialized();
    if (!needed && !checkpoint.manifest().has(name)) continue;
    io::LoadTarget target;
    target.name = io::stored_name(checkpoint.manifest(), name, session.rank);
    target.value = &session.scope->local(name);
    if (var.spec().has_tensor()) {
      target.dtype = var.dtype();
      target.dims.emplace(var.dims().begin(), var.dims().end());
    }
    targets.push_back(std::move(target));
  }
  MILLRACE_RETURN_IF_ERROR(fill_values(checkpoint, targets));
  MILLRACE_ASSIGN_OR_RETURN(session.random, load_random(checkpoint, session));
  return Ok();
}

// Logs the checkpoint from which the run continues, or that it starts from scratch.
template <typename AnyCheckpoint>
StatusOr<int64_t> go_on(const LogSink& log, AnyCheckpoint& checkpoint, Session& session) {
  MILLRACE_RETURN_IF_ERROR(load(checkpoint, session));
  log(LogLevel::kInfo, "continues from " + checkpoint.folder());
  return checkpoint.manifest().step;
}

// The checkpoints of a folder, and how to open them: by one process, or by several ranks together.
class AloneFolder {
 public:
  explicit AloneFolder(const io::CheckpointLoadOptions& how) : how_(how) {}
  [[nodiscard]] auto list(const std::string& root) const { return io::list_checkpoints(root); }
  [[nodiscard]] auto open(const std::string& path) const {
    return io::Checkpoint::open(path, how_);
  }
  [[nodiscard]] auto open_last(const std::string& root) const {
    return io::open_last_checkpoint(root, /*verify=*/true, how_);
  }

 private:
  const io::CheckpointLoadOptions& how_;
};

class SpreadFolder {
 public:
  SpreadFolder(const io::CheckpointLoadOptions& how, io::Gather& gather)
      : gather_(gather), options_{.load = how} {}
  [[nodiscard]] auto list(const std::string& root) const {
    return io::list_spread_checkpoints(root, gather_);
  }
  [[nodiscard]] auto open(const std::string& path) const {
    return io::SpreadCheckpoint::open(path, gather_, options_);
  }
  [[nodiscard]] auto open_last(const std::string& root) const {
    return io::open_last_spread_checkpoint(root, gather_, /*verify=*/true, options_);
  }

 private:
  io::Gather& gather_;
  io::SpreadLoadOptions options_;
};

template <typename Folder>
StatusOr<int64_t> resume_from(const CheckpointOptions& options, const LogSink& log,
                              const Folder& folder, Session& session) {
  const bool by_itself = options.resume == "auto";
  const std::string& root = by_itself ? options.folder : options.resume;
  const auto entries = folder.list(root);
  if (!by_itself && (!entries.ok() || entries->empty())) {
    MILLRACE_ASSIGN_OR_RETURN(auto checkpoint, folder.open(root));
    return go_on(log, checkpoint, session);
  }
  MILLRACE_RETURN_IF_ERROR(entries.status());
  const bool any = std::ranges::any_of(*entries, [](const auto& entry) { return entry.complete; });
  if (by_itself && !any) {
    log(LogLevel::kInfo, root + " has no complete checkpoint: the run starts from the beginning");
    return int64_t{0};
  }
  MILLRACE_ASSIGN_OR_RETURN(auto last, folder.open_last(root));
  for (const Status& status : last.skipped)
    log(LogLevel::kWarning, "skipped: " + status.location().to_string() + ": " + status.message());
  MILLRACE_RETURN_IF_ERROR(go_on(log, last.checkpoint, session).status());
  return last.step;
}

}  // namespace

std::string random_record(const std::vector<uint64_t>& positions) {
  std::string text = kRandomForm;
  for (const uint64_t position : positions) text += fmt::format(" {}", position);
  return text;
}

StatusOr<std::vector<uint64_t>> parse_random_record(std::string_view text) {
  std::vector<uint64_t> positions;
  llvm::StringRef rest(text);
  bool good = rest.consume_front(kRandomForm);
  while (good && !rest.empty()) {
    uint64_t position = 0;
    good = rest.consume_front(" ") && !rest.consumeInteger(10, position);
    positions.push_back(position);
  }
  if (good) return positions;
  return InvalidData("the record '{}' is malformed", kRandom);
}

StatusOr<int64_t> resume_run(const CheckpointOptions& options, int threads, const LogSink& log,
                             Session& session) {
  if (options.resume.empty()) return int64_t{0};
  if (options.resume == "auto" && options.folder.empty())
    return Status(
        StatusCode::kUsage,
        "options.resume auto: expected options.folder with the folder of the checkpoints");
  const io::CheckpointLoadOptions how{.threads = threads};
  if (session.ranks == nullptr) return resume_from(options, log, AloneFolder(how), session);
  const auto gather = executor::make_group_gather(*session.ranks);
  return resume_from(options, log, SpreadFolder(how, *gather), session);
}

void CopyGuard::before(const executor::CompiledOp& compiled) {
  if (!saver_.copying()) return;
  const CostClock clock(costs_);
  for (const llvm::StringRef name : compiled.op->output_names())
    saver_.before_change(scope_.find_local(name));
  // a reader may convert a value in the layout of a library in place, to another layout
  const auto inputs = compiled.op->input_names();
  const auto read = [&](size_t position) {
    if (position >= inputs.size()) return;
    const Value* const value = scope_.find_local(inputs[position]);
    const auto* const tensor = value == nullptr ? nullptr : value->get_if<Tensor>();
    if (tensor != nullptr && tensor->layout() != nullptr) saver_.before_change(value);
  };
  for (const uint16_t position : compiled.lists.plain()) read(position);
  for (const uint16_t position : compiled.lists.shared_layout()) read(position);
}

// The newest checkpoint counts when a run is continued, and the oldest are removed: those of
// another run would displace what this run saves.
Status RunCheckpoints::check_folder(const Session& session) const {
  const auto entries = io::list_checkpoints(options_.folder);
  if (!entries.ok()) return Ok();  // the first save reports it
  int64_t newest = -1;
  for (const io::CheckpointEntry& entry : *entries)
    if (entry.complete) newest = std::max(newest, entry.step);
  if (newest >= 0 && options_.resume.empty()) {
    return InvalidArgument(
               "options.folder: expected no checkpoints before a run that starts from the "
               "beginning, found one of step {}",
               newest)
        .in_file(options_.folder)
        .with_hint("continue from it with options.resume auto, or save to another folder");
  }
  if (newest > session.first_step && options_.resume != "auto") {
    log_(LogLevel::kWarning,
         fmt::format("{} has a checkpoint of step {}, from which a run would continue by itself, "
                     "although this run continues from step {}",
                     options_.folder, newest, session.first_step));
  }
  return Ok();
}

Status RunCheckpoints::begin(Session& session, bool observed) {
  if (options_.save_every <= 0) return Ok();
  MILLRACE_RETURN_IF_ERROR(check_folder(session));
  if (session.ranks != nullptr) {
    MILLRACE_ASSIGN_OR_RETURN(ranks_, executor::group_of_all(*session.ranks));
    gather_ = executor::make_group_gather(*ranks_);
  } else {
    gather_ = std::make_unique<io::SingleRank>();
  }
  if (observed || session.prepared == nullptr) return Ok();
  guard_ = std::make_unique<CopyGuard>(saver_, *session.scope, costs_);
  session.prepared->observe(guard_.get());
  watched_ = &session;
  // A failed reservation is ignored here; the first save reports it.
  static_cast<void>(saver_.reserve(state_of(session)).ok());
  return Ok();
}

RunCheckpoints::~RunCheckpoints() {
  if (watched_ != nullptr) watched_->prepared->observe(nullptr);
}

Status RunCheckpoints::warn_unless_fatal(Status status) const {
  if (status.ok() || options_.fail_on_save_error) return status;
  log_(LogLevel::kWarning,
       "no checkpoint: " + status.location().to_string() + ": " + status.message());
  return Ok();
}

Status RunCheckpoints::after_step(const Session& session, int64_t done, bool last) {
  if (options_.save_every <= 0 || (!last && done % options_.save_every != 0)) return Ok();
  const CostClock clock(costs_);
  ++costs_.saves;
  return save(session, done);
}

Status RunCheckpoints::save(const Session& session, int64_t done) {
  io::LocalState state = state_of(session);
  const std::string random = random_record(random_positions(session));
  state.add_record(kRandom, random);
  MILLRACE_RETURN_IF_ERROR(warn_unless_fatal(saver_.wait()));
  const auto save = [this, done](const io::LocalState& copy) { return write(copy, done); };
  Status started = guard_ == nullptr ? saver_.start(state, save) : saver_.start_lazily(state, save);
  const bool waits = ranks_ != nullptr && !executor::allows_calls_side_by_side(*ranks_);
  if (started.ok() && waits) started = saver_.wait();
  return warn_unless_fatal(std::move(started));
}

Status RunCheckpoints::write(const io::LocalState& copy, int64_t done) {
  io::CheckpointSaveOptions options;
  options.replace = Replace::kYes;  // a run that was continued from an older checkpoint saves the
                                    // same steps again
  options.threads = 1;              // the other threads train meanwhile
  std::string warning;
  MILLRACE_ASSIGN_OR_RETURN(const io::LocalState named, io::with_own_names(copy, *gather_));
  MILLRACE_RETURN_IF_ERROR(io::save_checkpoint(named, options_.folder, done, *gather_, options,
                                               options_.keep_last, &warning));
  if (!warning.empty()) log_(LogLevel::kWarning, warning);
  return Ok();
}

Status RunCheckpoints::finish() {
  Status status = warn_unless_fatal(saver_.wait());
  if (costs_.saves > 0) {
    log_(LogLevel::kInfo,
         fmt::format("{} checkpoints took {:.3f} ms of training each, {:.3f} ms of the processor",
                     costs_.saves, costs_.wall_seconds * 1e3 / static_cast<double>(costs_.saves),
                     costs_.processor_seconds * 1e3 / static_cast<double>(costs_.saves)));
  }
  return status;
}

}  // namespace millrace::jobs

#include "ps/server/snapshots.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "io/checkpoint/checkpoint.h"
#include "io/checkpoint/folder.h"
#include "ps/kill_points.h"
#include "ps/server/snapshot_identity.h"
#include "ps/server/step_rules.h"
#include "ps/table/table_handler.h"
#include "ps/table/typed_table.h"
#include "ps/transport/epoch.h"

namespace millrace::ps {
namespace {

// With a slow disk, the newest complete snapshot of a server may be two snapshots older than that
// of another server. Keeping three makes sure that all servers have one step in common. Snapshots
// at the end of a process do not count, because other servers need not have one of that step.
constexpr int kKept = 3;

// A killed server with much memory takes a while to end.
constexpr std::chrono::milliseconds kLockPatience{2000};
// In the manifest: the term of the server that saved the snapshot.
constexpr const char* kTermNote = "term";
// In the manifest: the number of steps applied.
constexpr const char* kAppliedNote = "applied";

// Resharded from snapshots of other servers: a new job starts from the values.
bool has_values_only(const CallsRecord& record) {
  return record.trainers.empty() && record.applied == 0;
}

}  // namespace

Snapshots::Snapshots(ServerCore& core)
    : core_(core),
      identity_(identity_of(core)),
      root_(fmt::format("{}/server-{}", core.options.snapshot_root, core.plan.server)),
      taken_(Clock::now()) {}

Status Snapshots::take_calls(CallsRecord record, int64_t& applied) {
  if (!has_values_only(record) &&
      static_cast<int>(record.trainers.size()) != core_.trainers.count())
    return InvalidData("the snapshot belongs to a job with another number of trainers than {}",
                       core_.trainers.count());
  applied = record.applied;
  load_calls(std::move(record), core_.trainers);
  return Ok();
}

Status Snapshots::lock(std::chrono::milliseconds patience) {
  if (lock_ && lock_->is_held()) return Ok();
  lock_.reset();
  const std::string holder = fmt::format("server {} at {}", core_.plan.server, core_.plan.endpoint);
  MILLRACE_ASSIGN_OR_RETURN(lock_, io::FolderLock::take(root_, holder, patience));
  return Ok();
}

StatusOr<bool> Snapshots::restore(int64_t& applied) {
  // A folder that cannot be written is reported with the first snapshot, and training continues.
  if (Status status = lock(kLockPatience); status.code() == StatusCode::kResource)
    return std::move(status).with_note("while opening the folder of snapshots " + printable(root_));
  StatusOr<io::LastCheckpoint> last = io::open_last_checkpoint(root_);
  if (!last.ok() && last.status().code() == StatusCode::kNotFound) {
    MILLRACE_ASSIGN_OR_RETURN(const auto unfinished, io::list_checkpoints(root_));
    if (!unfinished.empty())
      core_.log(fmt::format("no complete snapshot in {}: starting from the beginning", root_));
    return false;
  }
  if (!last.ok()) return std::move(last).status().with_note("while loading a snapshot");
  for (const Status& skipped : last->skipped)
    core_.log("skipped a newer snapshot: " + skipped.message());
  MILLRACE_RETURN_IF_ERROR(load(last->checkpoint, applied));
  const auto& notes = last->checkpoint.manifest().user;
  if (const auto term = notes.find(kTermNote);
      term != notes.end() && llvm::StringRef(term->second).getAsInteger(10, term_))
    return InvalidData("the manifest has the term '{}', expected a number", term->second)
        .with_note("in " + last->checkpoint.folder());
  number_ = last->step;
  taken_at_ = applied;
  MILLRACE_RETURN_IF_ERROR(list_saved());
  core_.log(fmt::format("loaded snapshot {} of step {}", last->step, applied));
  return true;
}

bool Snapshots::is_regular(int64_t applied) const {
  const int64_t every = core_.options.snapshot_every;
  return every <= 0 || applied % every == 0;
}

// A damaged snapshot does not count; one without the note does.
Status Snapshots::list_saved() {
  MILLRACE_ASSIGN_OR_RETURN(const auto entries, io::list_checkpoints(root_));
  saved_.clear();
  for (const io::CheckpointEntry& entry : entries) {
    if (!entry.complete) continue;
    const StatusOr<io::Checkpoint> checkpoint = io::Checkpoint::open(entry.folder);
    int64_t applied = 0;
    if (checkpoint.ok()) {
      const auto& notes = checkpoint->manifest().user;
      if (const auto note = notes.find(kAppliedNote);
          note != notes.end() && llvm::StringRef(note->second).getAsInteger(10, applied))
        return InvalidData("the manifest has '{}' applied steps, expected a number", note->second)
            .with_note("in " + entry.folder);
    }
    saved_.push_back(checkpoint.ok() && is_regular(applied));
  }
  return Ok();
}

int Snapshots::count_kept() {
  auto first = saved_.end();
  for (int regular = 0; first != saved_.begin() && regular < kKept;) {
    if (*--first) ++regular;
  }
  saved_.erase(saved_.begin(), first);
  return static_cast<int>(saved_.size());
}

Status Snapshots::load(const io::Checkpoint& checkpoint, int64_t& applied) {
  MILLRACE_ASSIGN_OR_RETURN(const std::string text, checkpoint.load_record(kCallsRecord));
  StatusOr<CallsRecord> calls = parse_calls(text);
  if (!calls.ok()) return std::move(calls).status().with_note("in " + checkpoint.folder());
  if (!has_values_only(*calls)) {
    StatusOr<std::string> identity = checkpoint.load_record(kIdentityRecord);
    if (!identity.ok())
      return std::move(identity)
          .status()
          .with_note("a snapshot without this record does not tell which job it belongs to")
          .with_note("in " + checkpoint.folder());
    if (Status status = check_identity(*identity, identity_); !status.ok())
      return std::move(status).with_note("in " + checkpoint.folder());
  } else if (checkpoint.manifest().find_record(kLayoutRecord, 0) != nullptr) {
    MILLRACE_ASSIGN_OR_RETURN(const std::string layout, checkpoint.load_record(kLayoutRecord));
    if (Status status = check_layout(layout, core_.options.plan); !status.ok())
      return std::move(status).with_note("in " + checkpoint.folder());
  }
  std::set<std::string> stored;
  for (const io::StoredTensor& tensor : checkpoint.manifest().tensors) stored.insert(tensor.name);
  std::vector<io::LoadTarget> targets;
  std::vector<std::string> missing;
  for (const auto& var : core_.vars()) {
    const Var* const declared = var.getValue().var;
    if (!declared->persistable()) continue;
    targets.push_back({var.getKey().str(), var.getValue().value, std::nullopt, {}, {}, {}});
    if (!stored.contains(targets.back().name) && var.getValue().value->initialized())
      missing.push_back(targets.back().name);
  }
  std::ranges::sort(missing);
  if (!missing.empty())
    core_.log(fmt::format("the snapshot has no values for these vars, which keep theirs: {}",
                          fmt::join(missing, ", ")));
  MILLRACE_RETURN_IF_ERROR(io::load_state_dict(checkpoint, targets, {.allow_missing = true}));
  MILLRACE_RETURN_IF_ERROR(load_tables(checkpoint));
  StatusOr<int64_t> before = number_in_note(checkpoint.manifest().user, kStepsBeforeNote);
  if (!before.ok()) return std::move(before).status().with_note("in " + checkpoint.folder());
  steps_before_ = *before;
  if (core_.options.tables != nullptr)
    core_.options.tables->steps().set_steps_before(steps_before_);
  return take_calls(*std::move(calls), applied);
}

// State of typed tables, as "@TABLE@<id>@<name of the state>".
StatusOr<TableState> Snapshots::table_states() const {
  TableState all;
  if (core_.options.tables == nullptr) return all;
  for (const int id : core_.options.tables->ids()) {
    StatusOr<TableState> state = core_.options.tables->find(id)->state();
    if (!state.ok())
      return std::move(state).status().with_note(fmt::format("in typed table {}", id));
    for (auto& [name, value] : *state) all[table_item(id, name)] = std::move(value);
  }
  return all;
}

Status Snapshots::load_tables(const io::Checkpoint& checkpoint) {
  if (core_.options.tables == nullptr) return Ok();
  for (const int id : core_.options.tables->ids()) {
    const std::string prefix = table_item(id, "");
    TableState state;
    for (const io::StoredTensor& stored : checkpoint.manifest().tensors) {
      if (!stored.name.starts_with(prefix)) continue;
      MILLRACE_ASSIGN_OR_RETURN(state[stored.name.substr(prefix.size())],
                                checkpoint.load(stored.name));
    }
    // a snapshot of a job without the table, or one with only values
    if (state.empty() && !core_.options.tables->waits_for_values()) continue;
    if (Status status = core_.options.tables->find(id)->set_state(state); !status.ok())
      return std::move(status)
          .with_note(fmt::format("in typed table {}", id))
          .with_note("in " + checkpoint.folder());
  }
  return Ok();
}

StatusOr<Snapshots::Found> Snapshots::find(int64_t applied, bool or_older) {
  if (Status status = finish(); !status.ok())
    core_.log("a snapshot could not be written: " + status.message());
  MILLRACE_ASSIGN_OR_RETURN(const auto entries, io::list_checkpoints(root_));
  std::string there;
  std::optional<Found> older;
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    if (!entry->complete) continue;
    StatusOr<io::Checkpoint> checkpoint = io::Checkpoint::open(entry->folder);
    if (!checkpoint.ok()) continue;
    const StatusOr<std::string> text = checkpoint->load_record(kCallsRecord);
    if (!text.ok()) continue;
    const StatusOr<CallsRecord> calls = parse_calls(*text);
    if (!calls.ok()) continue;
    if (calls->applied == applied)
      return Found{entry->step, calls->applied, *std::move(checkpoint)};
    if (calls->applied < applied && (!older || older->applied < calls->applied))
      older = Found{entry->step, calls->applied, *std::move(checkpoint)};
    there += fmt::format("{}{}", there.empty() ? "" : ", ", calls->applied);
  }
  if (or_older && older) return *std::move(older);
  return NotFound("this server ({}) has no snapshot of step {}; it has {}", core_.plan.endpoint,
                  applied, there.empty() ? "none" : there);
}

// Not before the state is loaded: until then, a process that is started again could still use the
// later ones.
Status Snapshots::go_back(const Found& found) {
  int64_t applied = 0;
  MILLRACE_RETURN_IF_ERROR(load(found.checkpoint, applied));
  if (Status status = io::remove_checkpoints_after(root_, found.number); !status.ok())
    return std::move(status).with_note("while removing snapshots of steps that are done again");
  MILLRACE_RETURN_IF_ERROR(list_saved());
  core_.log(fmt::format("went back to step {}", applied));
  MILLRACE_RETURN_IF_ERROR(take(moment(applied)));
  return finish();
}

Status Snapshots::finish() {
  Status status = saver_.wait();
  has_failed_ |= !status.ok();
  return status;
}

bool Snapshots::is_due(int64_t applied, Clock::time_point now) const {
  const ServerOptions& options = core_.options;
  const int64_t every = options.snapshot_every;
  if (every > 0 && applied / every > taken_at_ / every) return true;
  return options.snapshot_interval.count() > 0 && now - taken_ >= options.snapshot_interval;
}

Status Snapshots::take(const Moment& moment) {
  MILLRACE_RETURN_IF_ERROR(lock({}));
  io::LocalState state;
  state.user[kTermNote] = std::to_string(term_of(core_.epoch));
  state.user[kAppliedNote] = std::to_string(moment.applied);
  if (steps_before_ > 0) state.user[kStepsBeforeNote] = std::to_string(steps_before_);
  for (const auto& var : core_.vars()) {
    const ServerVar& each = var.getValue();
    if (!each.var->persistable() || !each.value->initialized()) continue;
    if (!each.value->holds<Tensor>() && !each.value->holds<SelectedRows>()) continue;
    // gradients of the last step do not affect the next one, but are vars of the program
    state.add(var.getKey().str(), *each.value);
  }
  MILLRACE_ASSIGN_OR_RETURN(const auto tables, table_states());
  for (const auto& [name, value] : tables) state.add(name, value);
  state.add_record(kCallsRecord, moment.calls);
  state.add_record(kIdentityRecord, identity_);
  state.user["endpoint"] = core_.plan.endpoint;
  const int64_t number = ++number_;
  saved_.push_back(is_regular(moment.applied));
  MILLRACE_RETURN_IF_ERROR(saver_.start(
      state,
      [root = root_, number, kept = count_kept(),
       calls = file_calls_with(core_.options.kill_point, "snapshot")](const io::LocalState& copy) {
        return io::save_checkpoint(copy, root, number,
                                   {.replace = Replace::kYes, .threads = 1, .calls = calls}, kept);
      }));
  taken_at_ = moment.applied;
  has_failed_ = false;
  taken_ = Clock::now();
  return Ok();
}

}  // namespace millrace::ps

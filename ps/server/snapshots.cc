#include "ps/server/snapshots.h"

#include <algorithm>
#include <set>
#include <sstream>
#include <utility>
#include <vector>

#include "framework/base/errors.h"
#include "io/checkpoint/checkpoint.h"
#include "io/checkpoint/folder.h"

namespace millrace::ps {
namespace {

constexpr const char* kCalls = "calls";
constexpr const char* kForm = "millrace.ps.calls";
constexpr int kVersion = 1;
constexpr int kKept = 2;

}  // namespace

Snapshots::Snapshots(ServerCore& core)
    : core_(core),
      root_(fmt::format("{}/server-{}", core.options.snapshot_root, core.plan.server)),
      taken_(Clock::now()) {}

// One line a trainer: incarnation, send barriers, fetch barriers, calls carried out. Gradients of a
// step that is not applied are no part of a snapshot, so neither are the calls that brought them.
std::string Snapshots::calls_text(int64_t applied) const {
  std::string text = fmt::format("{} {} {} {}\n", kForm, kVersion, applied, core_.trainers.count());
  for (int id = 0; id < core_.trainers.count(); ++id) {
    const Trainer& trainer = core_.trainers.at(id);
    const bool is_ahead = core_.plan.mode == ServePlan::Mode::kSync && trainer.sent > applied;
    std::set<uint64_t> done = trainer.window.done();
    uint64_t low = trainer.window.low();
    if (is_ahead) {
      done.erase(done.upper_bound(trainer.fetch_call), done.end());
      low = std::min(low, trainer.fetch_call);
    }
    text += fmt::format("{} {} {} {} {}", trainer.incarnation, trainer.sent - (is_ahead ? 1 : 0),
                        trainer.fetched, low, done.size());
    for (const uint64_t sequence : done) text += fmt::format(" {}", sequence);
    text += '\n';
  }
  return text;
}

Status Snapshots::read_calls(const std::string& text, int64_t& applied) {
  std::istringstream in(text);
  std::string form;
  int version = 0;
  int count = 0;
  int64_t steps = 0;
  in >> form >> version >> steps >> count;
  // Cut anew from snapshots of other servers: values only, with which a job begins.
  if (in && form == kForm && version == kVersion && steps == 0 && count == 0) {
    applied = 0;
    return Ok();
  }
  if (!in || form != kForm || version != kVersion || count != core_.trainers.count() || steps < 0)
    return InvalidData("the snapshot is not one of this server's job of {} trainers",
                       core_.trainers.count());
  for (int id = 0; id < count; ++id) {
    Trainer& trainer = core_.trainers.at(id);
    uint64_t low = 0;
    size_t more = 0;
    in >> trainer.incarnation >> trainer.sent >> trainer.fetched >> low >> more;
    std::set<uint64_t> done;
    for (size_t i = 0; in && i < more; ++i) {
      uint64_t sequence = 0;
      in >> sequence;
      done.insert(sequence);
    }
    if (!in) return InvalidData("the snapshot's list of calls is cut off");
    trainer.window.restore(low, std::move(done));
  }
  applied = steps;
  return Ok();
}

StatusOr<bool> Snapshots::restore(int64_t& applied) {
  StatusOr<io::LastCheckpoint> last = io::open_last_checkpoint(root_);
  if (!last.ok() && last.status().code() == StatusCode::kNotFound) {
    MILLRACE_ASSIGN_OR_RETURN(const auto unfinished, io::list_checkpoints(root_));
    if (!unfinished.empty())
      core_.log(fmt::format("there is no finished snapshot in {}: begins anew", root_));
    return false;
  }
  if (!last.ok()) return std::move(last).status().with_note("while taking up a snapshot");
  for (const Status& skipped : last->skipped)
    core_.log("a newer snapshot is not taken: " + skipped.message());
  MILLRACE_RETURN_IF_ERROR(load(last->checkpoint, applied));
  number_ = last->step;
  taken_at_ = applied;
  core_.log(fmt::format("took up snapshot {} of step {}", last->step, applied));
  return true;
}

Status Snapshots::load(const io::Checkpoint& checkpoint, int64_t& applied) {
  std::vector<io::LoadTarget> targets;
  for (const auto& var : core_.vars()) {
    const Var* const declared = var.getValue().var;
    if (!declared->persistable()) continue;
    targets.push_back({var.getKey().str(), var.getValue().value, std::nullopt, {}, {}, {}});
  }
  MILLRACE_RETURN_IF_ERROR(io::load_state_dict(checkpoint, targets, {.allow_missing = true}));
  MILLRACE_ASSIGN_OR_RETURN(const std::string calls, checkpoint.load_record(kCalls));
  return read_calls(calls, applied);
}

StatusOr<io::Checkpoint> Snapshots::find(int64_t applied) {
  if (Status status = saver_.wait(); !status.ok())
    core_.log("a snapshot was not written: " + status.message());
  MILLRACE_ASSIGN_OR_RETURN(const auto entries, io::list_checkpoints(root_));
  std::string there;
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    if (!entry->complete) continue;
    StatusOr<io::Checkpoint> checkpoint = io::Checkpoint::open(entry->folder);
    if (!checkpoint.ok()) continue;
    const StatusOr<std::string> calls = checkpoint->load_record(kCalls);
    std::string form;
    int version = 0;
    int64_t steps = -1;
    if (!calls.ok() || !(std::istringstream(*calls) >> form >> version >> steps)) continue;
    if (steps == applied) return checkpoint;
    there += fmt::format("{}{}", there.empty() ? "" : ", ", steps);
  }
  return NotFound("this server ({}) has no snapshot of step {}; it has {}", core_.plan.endpoint,
                  applied, there.empty() ? "none" : there);
}

Status Snapshots::go_back(const io::Checkpoint& checkpoint) {
  int64_t applied = 0;
  MILLRACE_RETURN_IF_ERROR(load(checkpoint, applied));
  core_.log(fmt::format("went back to step {}", applied));
  return take(applied, true);
}

bool Snapshots::is_due(int64_t applied, Clock::time_point now) const {
  const ServerOptions& options = core_.options;
  if (options.snapshot_every > 0 && applied - taken_at_ >= options.snapshot_every) return true;
  return options.snapshot_interval.count() > 0 && now - taken_ >= options.snapshot_interval;
}

Status Snapshots::take(int64_t applied, bool wait) {
  io::LocalState state;
  for (const auto& var : core_.vars()) {
    const ServerVar& each = var.getValue();
    if (!each.var->persistable() || !each.value->initialized()) continue;
    if (!each.value->holds<Tensor>() && !each.value->holds<SelectedRows>()) continue;
    // gradients of the last step carry nothing into the next one, but are part of the program
    state.add(var.getKey().str(), *each.value);
  }
  const std::string calls = calls_text(applied);
  state.add_record(kCalls, calls);
  state.user["endpoint"] = core_.plan.endpoint;
  const int64_t number = ++number_;
  MILLRACE_RETURN_IF_ERROR(saver_.start(state, [root = root_, number](const io::LocalState& copy) {
    return io::save_checkpoint(copy, root, number, {.replace = Replace::kYes}, kKept);
  }));
  taken_at_ = applied;
  taken_ = Clock::now();
  return wait ? saver_.wait() : Ok();
}

}  // namespace millrace::ps

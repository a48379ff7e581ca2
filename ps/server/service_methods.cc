#include <cstring>
#include <filesystem>
#include <optional>
#include <utility>

#include <fmt/ranges.h>
#include <xxhash.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "io/params.h"
#include "io/params_manifest.h"
#include "io/paths.h"
#include "ps/client/saved_parts.h"
#include "ps/kill_points.h"
#include "ps/server/service.h"
#include "ps/server/table_rows.h"
#include "ps/table/table_handler.h"
#include "ps/values.h"
#include "ps/wire_names.h"

namespace millrace::ps {

Status Service::send(const Request& request, bool repeat) {
  if (repeat) return Ok();
  if (request.text == kSetValues) {
    for (const RequestItem& item : request.items) {
      MILLRACE_ASSIGN_OR_RETURN(const ServerVar* const var, core_->find_var(item.name));
      MILLRACE_RETURN_IF_ERROR(ServerCore::store(item, *var));
    }
    return Ok();
  }
  if (steps_ != nullptr) return steps_->send(request.caller.trainer, request.items);
  for (const RequestItem& item : request.items) {
    reach(core_->options.kill_point, "server/before-apply");
    Status status = pushes_->push(request.caller.trainer, item);
    reach(core_->options.kill_point, "server/after-apply");
    if (status.ok()) continue;
    // earlier items of the message have been applied, so the call cannot be undone
    if (&item != request.items.data()) core_->fail(status);
    return status;
  }
  return Ok();
}

Status Service::put_vars(const Request& request, ReplySink& reply) {
  for (const RequestItem& item : request.items) {
    MILLRACE_RETURN_IF_ERROR(steps_ != nullptr
                                 ? core_->put_var(item.name, reply)
                                 : pushes_->get(request.caller.trainer, item.name, reply));
  }
  return Ok();
}

Status Service::get(const Request& request, Deadline deadline, ReplySink& reply, bool repeat) {
  if (request.text == kChangedRows) {
    if (pushes_ == nullptr)
      return InvalidArgument("a synchronous server ({}) does not track changed rows",
                             core_->plan.endpoint);
    for (const RequestItem& item : request.items) {
      MILLRACE_RETURN_IF_ERROR(
          pushes_->get_changed(request.caller.trainer, item.name, repeat, reply));
    }
    return Ok();
  }
  if (steps_ != nullptr) {
    std::unique_lock lock(core_->mutex);
    MILLRACE_RETURN_IF_ERROR(steps_->wait_applied(lock, request.caller.trainer, deadline));
  }
  return put_vars(request, reply);
}

Status Service::get_without_barrier(const Request& request, ReplySink& reply) {
  for (const RequestItem& item : request.items) {
    llvm::StringRef name = item.name;
    if (!name.consume_back(kWithoutBarrier))
      return InvalidArgument("'{}' is fetched without a barrier, but its name does not end in '{}'",
                             item.name, kWithoutBarrier);
    MILLRACE_RETURN_IF_ERROR(core_->put_var(name, reply));
  }
  return Ok();
}

Status Service::send_barrier(const Request& request, bool repeat) {
  if (repeat) return Ok();
  if (!request.items.empty()) MILLRACE_RETURN_IF_ERROR(send(request, false));
  return steps_ != nullptr ? steps_->arrive(request.caller.trainer) : Ok();
}

// A repeat returns the same values: nothing changes before this trainer has sent again.
Status Service::fetch_barrier(const Request& request, Deadline deadline, ReplySink& reply,
                              bool repeat) {
  if (steps_ == nullptr) return put_vars(request, reply);
  const int trainer = request.caller.trainer;
  if (!repeat) {
    std::unique_lock lock(core_->mutex);
    MILLRACE_RETURN_IF_ERROR(steps_->wait_applied(lock, trainer, deadline));
  }
  MILLRACE_RETURN_IF_ERROR(put_vars(request, reply));
  const std::lock_guard lock(core_->mutex);
  // after a restart, the server takes the trainer's phase from its hello
  if (repeat && core_->trainers.at(trainer).may_send()) return Ok();
  return steps_->fetched(trainer);
}

Status Service::prefetch(const Request& request, ReplySink& reply) {
  for (const RequestItem& item : request.items) {
    const Tensor* const ids = item.value == nullptr ? nullptr : item.value->get_if<Tensor>();
    if (ids == nullptr || !ids->initialized())
      return InvalidArgument("'{}' has no ids to look up", item.name);
    if (!request.text.empty()) {
      MILLRACE_ASSIGN_OR_RETURN(const ServerVar* const table, core_->find_var(request.text));
      const std::shared_lock lock(*table->mutex);
      MILLRACE_RETURN_IF_ERROR(look_up_rows(*table->value, *ids, item.name, reply));
      continue;
    }
    const auto found = core_->plan.prefetch_blocks.find(item.name);
    if (found == core_->plan.prefetch_blocks.end())
      return NotFound("this server ({}) has no block that looks up '{}'", core_->plan.endpoint,
                      item.name);
    ServerBlock& block = *core_->block(found->second);
    const BlockLock lock = block.lock();
    MILLRACE_RETURN_IF_ERROR(ServerCore::take(item, *block.find(item.name)));
    MILLRACE_RETURN_IF_ERROR(block.run());
    const Op& last = *std::prev(block.block().ops().end());
    MILLRACE_RETURN_IF_ERROR(reply.put(item.name, *block.find(last.output_names().front())));
  }
  return Ok();
}

// If request.number is not 0, waits until all other trainers are done; the trainer may read
// afterwards.
Status Service::complete(const Request& request, Deadline deadline) {
  std::unique_lock lock(core_->mutex);
  const int id = request.caller.trainer;
  Trainer& trainer = core_->trainers.at(id);
  if (trainer.life == Trainer::Life::kLive && steps_ != nullptr) steps_->drop_partial(id);
  trainer.life = request.number != 0 ? Trainer::Life::kGathering : Trainer::Life::kLeft;
  if (steps_ != nullptr) steps_->admit_joining();
  core_->changed.notify_all();
  if (request.number == 0) return Ok();
  return core_->wait(
      lock, deadline,
      [&] { return core_->trainers.all_done() && (steps_ == nullptr || !steps_->is_ready()); },
      [&] {
        return fmt::format("the end of {}",
                           core_->trainers.list(Clock::now(), [](const Trainer& other) {
                             return other.is_expected();
                           }));
      });
}

// Saves the table as file <table>_<server> of the folder, as the original does.
Status Service::checkpoint(const Request& request, ReplySink& reply, bool repeat) {
  if (TableHandler::is_about_files(request)) {
    if (core_->options.tables != nullptr)
      return core_->options.tables->handle_files(request, repeat, reply);
    return Unimplemented("this server ({}) has no typed tables", core_->plan.endpoint);
  }
  std::string table = request.text;
  if (table.empty() && core_->plan.checkpoint_block >= 0) {
    const Block& block = core_->program().block(static_cast<size_t>(core_->plan.checkpoint_block));
    for (const Op& op : block.ops()) {
      if (op.type() == "save") table = op.first_input("X").str();
    }
  }
  if (table.empty())
    return InvalidArgument("this server ({}) has no block that saves checkpoints",
                           core_->plan.endpoint);
  if (request.items.empty()) return InvalidArgument("the call names no folder for the checkpoint");
  if (core_->options.files_root.empty()) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("'{}' cannot be saved: no folder was allowed", table))
        .with_hint("pserver --allow-dir DIR lets it write files below a folder");
  }
  MILLRACE_ASSIGN_OR_RETURN(const ServerVar* const var, core_->find_var(table));
  const std::string name =
      fmt::format("{}/{}_{}", request.items.front().name, table, core_->plan.server);
  MILLRACE_ASSIGN_OR_RETURN(const std::string path,
                            io::make_path_below(core_->options.files_root, name));
  // a repeat reports the file that the first call wrote: nothing may have changed since
  if (!repeat) {
    const std::lock_guard saving(saving_);
    const std::shared_lock lock(*var->mutex);
    Value changed;
    MILLRACE_ASSIGN_OR_RETURN(const Value* const rows,
                              rows_to_save(table, *var->value, request.number, changed));
    MILLRACE_RETURN_IF_ERROR(io::save_param(path, {table, rows}, {.replace = Replace::kYes}));
  }
  // The caller writes this into the manifest.
  MILLRACE_ASSIGN_OR_RETURN(std::string written, saved_part_text(path, name));
  reply.set_text(std::move(written));
  return Ok();
}

// Mode 0: all rows. Mode 1: rows that changed since the last request of mode 1 or 2. Mode 2: all
// rows, which become the base of the next request of mode 1.
StatusOr<const Value*> Service::rows_to_save(const std::string& table, const Value& value,
                                             int64_t mode, Value& changed) {
  if (mode == 0) return &value;
  const auto* const rows = value.get_if<SelectedRows>();
  const Tensor* const values = rows != nullptr ? &rows->value : value.get_if<Tensor>();
  if (mode < 0 || mode > 2)
    return InvalidArgument("'{}': checkpoint mode is {}, expected 0, 1 or 2", table, mode);
  if (values == nullptr || !values->initialized() || values->rank() == 0)
    return InvalidArgument("'{}' is not a table of rows: {}", table, describe(value));
  const int64_t height = values->dim(0);
  const int64_t bytes = height == 0 ? 0 : values->bytes() / height;
  std::vector<uint64_t>& saved = saved_rows_[table];
  const bool is_first = saved.size() != static_cast<size_t>(height);
  saved.resize(static_cast<size_t>(height));
  std::vector<int64_t> others;
  for (int64_t row = 0; row < height; ++row) {
    const uint64_t hash = XXH3_64bits(values->raw() + row * bytes, static_cast<size_t>(bytes));
    uint64_t& known = saved[static_cast<size_t>(row)];
    if (is_first || known != hash) others.push_back(row);
    known = hash;
  }
  if (mode == 2) return &value;
  auto& to = changed.as<SelectedRows>();
  to.height = rows != nullptr ? rows->height : height;
  Dims dims(values->dims().begin(), values->dims().end());
  dims[0] = static_cast<int64_t>(others.size());
  MILLRACE_RETURN_IF_ERROR(to.value.resize(values->dtype(), dims));
  std::byte* place = to.value.raw();
  for (const int64_t row : others) {
    to.rows.push_back(rows != nullptr ? rows->rows[static_cast<size_t>(row)] : row);
    std::memcpy(place, values->raw() + row * bytes, static_cast<size_t>(bytes));
    place += bytes;
  }
  return &changed;
}

Status Service::count(const Request& request, bool repeat) {
  if (repeat) return Ok();
  if (pushes_ == nullptr)
    return InvalidArgument("a synchronous server ({}) counts steps itself and accepts no counters",
                           core_->plan.endpoint);
  if (request.items.empty()) return InvalidArgument("the call names no counter");
  return pushes_->count(request.items.front().name, request.number);
}

Status Service::run(const Request& request, ReplySink& reply) {
  const auto found = core_->plan.message_blocks.find(request.text);
  if (found == core_->plan.message_blocks.end())
    return NotFound("this server ({}) has no block for the message '{}'", core_->plan.endpoint,
                    request.text);
  ServerBlock& block = *core_->block(found->second);
  const BlockLock lock = block.lock();
  for (const RequestItem& item : request.items) {
    if (item.value == nullptr) continue;
    MILLRACE_ASSIGN_OR_RETURN(const ServerVar* const var, core_->find_var(item.name));
    MILLRACE_RETURN_IF_ERROR(ServerCore::check(item, *var));
    MILLRACE_RETURN_IF_ERROR(ServerCore::take(item, *var->value));
  }
  MILLRACE_RETURN_IF_ERROR(block.run());
  for (const RequestItem& item : request.items) {
    if (item.value != nullptr) continue;
    MILLRACE_ASSIGN_OR_RETURN(const ServerVar* const var, core_->find_var(item.name));
    MILLRACE_RETURN_IF_ERROR(ServerCore::put(item.name, *var, reply));
  }
  return Ok();
}

Status Service::table_barrier(const Request& request, Deadline deadline) {
  std::unique_lock lock(core_->mutex);
  NamedBarrier& barrier = barriers_[request.text];
  const int64_t round = barrier.round;
  const auto is_missing = [&](int id) {
    return core_->trainers.at(id).is_expected() && !barrier.arrived.contains(id);
  };
  barrier.arrived.insert(request.caller.trainer);
  core_->changed.notify_all();
  return core_->wait(
      lock, deadline,
      [&] {
        if (barrier.round != round) return true;
        for (int id = 0; id < core_->trainers.count(); ++id) {
          if (is_missing(id)) return false;
        }
        ++barrier.round;
        barrier.arrived.clear();
        return true;
      },
      [&] {
        std::string missing;
        for (int id = 0; id < core_->trainers.count(); ++id) {
          if (is_missing(id)) missing += " " + core_->trainers.describe(id, Clock::now());
        }
        return fmt::format("barrier '{}':{}", request.text, missing);
      });
}

// A trainer goes to a step on all servers before it sends anything for that step. Once one trainer
// has gone to the next step of this server, only gradients of trainers that have done so, too,
// count for it. So no server advances beyond a step that others may still have to undo, and all
// servers meet at one step.
Status Service::go_to(const Request& request, Deadline deadline, ReplySink& reply) {
  if (steps_ == nullptr)
    return InvalidArgument("an asynchronous server ({}) has no steps", core_->plan.endpoint);
  uint64_t settled = 0;
  if (llvm::StringRef(request.text).getAsInteger(10, settled) || request.number < 0)
    return InvalidArgument("go-to: expected the number of a call, found '{}'", request.text);
  std::unique_lock lock(core_->mutex);
  MILLRACE_RETURN_IF_ERROR(core_->wait(
      lock, deadline, [&] { return !steps_->is_applying() && !going_back_; },
      [] { return std::string("the end of the step"); }));
  const int id = request.caller.trainer;
  Trainer& trainer = core_->trainers.at(id);
  const int64_t applied = steps_->applied();
  const bool joins = trainer.life == Trainer::Life::kJoining;
  if (request.number < applied && joins)
    return {StatusCode::kDistributed, fmt::format("step {} is already applied", request.number)};
  if (request.number > applied && !joins && !trainer.is_placed)
    return InvalidArgument("trainer {} wants to continue at step {}, but this server is at step {}",
                           id, request.number, applied);
  if (joins)
    core_->log(fmt::format("another process replaces trainer {} at step {}", id, request.number));
  if (request.number <= applied && !joins) {
    MILLRACE_RETURN_IF_ERROR(go_back(lock, request.number, id, deadline));
    trainer.life = Trainer::Life::kLive;
    trainer.settled_at = request.number;
  }
  reply.set_epoch(core_->epoch);
  trainer.incarnation = request.caller.incarnation;  // a snapshot may have an earlier one
  trainer.seen = Clock::now();
  trainer.window.restore(settled, {});
  trainer.fetch_call = settled;
  steps_->place(id, request.number);
  return Ok();
}

Status Service::go_back(std::unique_lock<std::mutex>& lock, int64_t step, int caller,
                        Deadline deadline) {
  const bool is_behind = step < steps_->applied();
  std::vector<int> others;  // whose gradients of the step, if any, are discarded
  for (int id = 0; id < core_->trainers.count(); ++id) {
    const Trainer& trainer = core_->trainers.at(id);
    const bool is_ahead = trainer.sent > step;
    if (trainer.life == Trainer::Life::kLeft && is_behind && is_ahead)
      return InvalidArgument("this server ({}) cannot go back to step {}: trainer {} has left",
                             core_->plan.endpoint, step, id);
    if (id == caller || trainer.life == Trainer::Life::kLeft ||
        trainer.life == Trainer::Life::kLost || trainer.life == Trainer::Life::kJoining)
      continue;
    if (is_behind || (is_ahead && trainer.settled_at != step)) others.push_back(id);
  }
  if (!is_behind && others.empty()) return Ok();
  std::optional<io::Checkpoint> checkpoint;
  if (is_behind) {
    if (snapshots_ == nullptr)
      return NotFound("this server ({}) takes no snapshots, so it cannot go back to step {}",
                      core_->plan.endpoint, step);
    MILLRACE_ASSIGN_OR_RETURN(checkpoint, snapshots_->find(step));
  }
  // from here on, calls of the old epoch are refused, and waiting calls end
  if (is_behind) reach(core_->options.kill_point, "server/before-go-back");
  going_back_ = true;
  core_->begin_epoch();
  const bool empty = core_->changed.wait_until(lock, deadline, [&] { return inside_ == 0; });
  Status status = empty ? Ok() : Status(StatusCode::kDistributed, "calls did not end in time");
  if (status.ok() && checkpoint) {
    const auto frozen = core_->freeze();
    status = snapshots_->go_back(*checkpoint);
    steps_->restore(step);
    reach(core_->options.kill_point, "server/after-go-back");
  }
  going_back_ = false;
  core_->changed.notify_all();
  if (!status.ok()) {
    core_->failure = status;
    return status;
  }
  for (const int id : others) {
    Trainer& trainer = core_->trainers.at(id);
    steps_->place(id, step);
    trainer.life = Trainer::Life::kAbsent;
    trainer.settled_at = -1;
  }
  started_ = Clock::now();
  return Ok();
}

Status Service::watch(ReplySink& reply) {
  const std::lock_guard lock(core_->mutex);
  static constexpr const char* kLives[] = {"absent", "live", "gathering",
                                           "left",   "lost", "joining"};
  static constexpr const char* kModes[] = {"sync", "async", "geo"};
  const Clock::time_point now = Clock::now();
  std::string trainers;
  for (int id = 0; id < core_->trainers.count(); ++id) {
    const Trainer& trainer = core_->trainers.at(id);
    trainers += fmt::format(
        R"({}{{"trainer":{},"state":"{}","step":{},"sent":{},"fetched":{},"silent_s":{},"last":"{}"}})",
        id == 0 ? "" : ",", id, kLives[static_cast<size_t>(trainer.life)], trainer.step,
        trainer.sent, trainer.fetched,
        std::chrono::duration_cast<std::chrono::seconds>(now - trainer.seen).count(),
        method_name(trainer.last));
  }
  reply.set_text(fmt::format(
      R"({{"endpoint":{},"job":{},"epoch":{},"mode":"{}","step":{},"vars":{},"trainers":[{}]}})",
      in_quotes(core_->plan.endpoint), in_quotes(core_->options.job), core_->epoch.load(),
      kModes[static_cast<size_t>(core_->plan.mode)], steps_ != nullptr ? steps_->applied() : -1,
      core_->vars().size(), trainers));
  return Ok();
}

}  // namespace millrace::ps

#include <cstring>
#include <filesystem>
#include <optional>
#include <span>
#include <utility>

#include <fmt/ranges.h>
#include <xxhash.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "io/params.h"
#include "io/params_manifest.h"
#include "io/paths.h"
#include "ps/kill_points.h"
#include "ps/protocol/answers.h"
#include "ps/server/service.h"
#include "ps/server/table_rows.h"
#include "ps/table/table_handler.h"
#include "ps/values.h"

namespace millrace::ps {
namespace {

Status no_typed_table(const std::string& endpoint, int64_t table) {
  return Unimplemented("this server ({}) has no typed tables: table {} is unknown", endpoint,
                       table);
}

// The rows of a var, dense or selected; null if it has none.
const Tensor* rows_of(const Value& value) {
  const auto* const rows = value.get_if<SelectedRows>();
  const Tensor* const values = rows != nullptr ? &rows->value : value.get_if<Tensor>();
  const bool has_rows = values != nullptr && values->initialized() && values->rank() > 0;
  return has_rows ? values : nullptr;
}

std::span<const std::byte> row_at(const Tensor& rows, int64_t row) {
  const int64_t bytes = rows.bytes() / rows.dim(0);
  return {rows.raw() + row * bytes, static_cast<size_t>(bytes)};
}

StatusOr<std::vector<uint64_t>> row_hashes(const std::string& table, const Value& value) {
  const Tensor* const rows = rows_of(value);
  if (rows == nullptr)
    return InvalidArgument("'{}' is not a table of rows: {}", table, describe(value));
  std::vector<uint64_t> hashes;
  for (int64_t row = 0; row < rows->dim(0); ++row) {
    const std::span<const std::byte> bytes = row_at(*rows, row);
    hashes.push_back(XXH3_64bits(bytes.data(), bytes.size()));
  }
  return hashes;
}

// Copies the rows whose hashes differ from those that were saved; all if their number differs.
Status copy_changed_rows(const Value& value, const std::vector<uint64_t>& hashes,
                         const std::vector<uint64_t>& saved, Value& changed) {
  const auto* const selected = value.get_if<SelectedRows>();
  const Tensor& values = *rows_of(value);
  std::vector<int64_t> positions;
  for (size_t row = 0; row < hashes.size(); ++row) {
    if (saved.size() != hashes.size() || saved[row] != hashes[row])
      positions.push_back(static_cast<int64_t>(row));
  }
  auto& to = changed.as<SelectedRows>();
  to.height = selected != nullptr ? selected->height : values.dim(0);
  Dims dims(values.dims().begin(), values.dims().end());
  dims[0] = static_cast<int64_t>(positions.size());
  MILLRACE_RETURN_IF_ERROR(to.value.resize(values.dtype(), dims));
  std::byte* out = to.value.raw();
  for (const int64_t row : positions) {
    to.rows.push_back(selected != nullptr ? selected->rows[static_cast<size_t>(row)] : row);
    const std::span<const std::byte> bytes = row_at(values, row);
    std::memcpy(out, bytes.data(), bytes.size());
    out += bytes.size();
  }
  return Ok();
}

}  // namespace

// The size of a lookup.
void Service::count_rows(const std::vector<RequestItem>& items) const {
  if (metrics_ == nullptr || items.empty()) return;
  const Value* const ids = items.front().value;
  const Tensor* const tensor = ids == nullptr ? nullptr : ids->get_if<Tensor>();
  if (tensor == nullptr) return;
  metrics_->histogram("millrace_ps_lookup_rows", "rows of a lookup", size_bounds())
      .observe(static_cast<double>(tensor->numel()));
}

Status Service::send(const Call& call, const protocol::Send& message) {
  if (call.repeat) return Ok();
  if (message.kind == SendKind::kGradients) return send_gradients(call.request, message.vars);
  MILLRACE_RETURN_IF_ERROR(check_covered("setting vars by a call"));
  for (const RequestItem& item : message.vars) {
    MILLRACE_ASSIGN_OR_RETURN(const ServerVar* const var, core_->find_var(item.name));
    MILLRACE_RETURN_IF_ERROR(ServerCore::store(item, *var));
  }
  return Ok();
}

Status Service::send_gradients(const Request& request, const std::vector<RequestItem>& vars) {
  if (steps_ != nullptr) return steps_->send(request, vars);
  for (const RequestItem& item : vars) {
    reach(core_->options.kill_point, "server/before-apply");
    Status status = pushes_->push(request.caller.trainer, item);
    reach(core_->options.kill_point, "server/after-apply");
    if (status.ok()) continue;
    // earlier items of the message have been applied, so the call cannot be undone
    if (&item != vars.data()) core_->fail(status);
    return status;
  }
  return Ok();
}

Status Service::put_vars(const Call& call, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    MILLRACE_RETURN_IF_ERROR(steps_ != nullptr ? core_->put_var(name, call.reply)
                                               : pushes_->get(call.trainer(), name, call.reply));
  }
  return Ok();
}

Status Service::get(const Call& call, const protocol::Get& message) {
  if (message.kind == GetKind::kChangedRows) {
    if (pushes_ == nullptr)
      return InvalidArgument("a synchronous server ({}) does not track changed rows",
                             core_->plan.endpoint);
    for (const std::string& name : message.names) {
      MILLRACE_RETURN_IF_ERROR(pushes_->get_changed(call.trainer(), name, call.repeat, call.reply));
    }
    return Ok();
  }
  if (steps_ != nullptr) {
    std::unique_lock lock(core_->mutex);
    MILLRACE_RETURN_IF_ERROR(
        steps_->wait_applied(call.request, message.sent_everywhere, lock, call.deadline));
  }
  MILLRACE_RETURN_IF_ERROR(put_vars(call, message.names));
  if (steps_ == nullptr) return Ok();
  // others do not wait for a lost trainer, so the values may be of several steps
  const std::lock_guard lock(core_->mutex);
  return core_->check_served(call.request);
}

Status Service::get_now(const Call& call, const protocol::GetNow& message) {
  for (const std::string& name : message.names)
    MILLRACE_RETURN_IF_ERROR(core_->put_var(name, call.reply));
  return Ok();
}

Status Service::send_barrier(const Call& call, const protocol::SendBarrier& message) {
  if (call.repeat) return Ok();
  if (!message.vars.empty()) MILLRACE_RETURN_IF_ERROR(send_gradients(call.request, message.vars));
  return steps_ != nullptr ? steps_->arrive(call.request) : Ok();
}

// A repeat returns the same values: nothing changes before this trainer has sent again.
Status Service::fetch_barrier(const Call& call, const protocol::FetchBarrier& message) {
  if (steps_ == nullptr) return put_vars(call, message.names);
  if (!call.repeat) {
    std::unique_lock lock(core_->mutex);
    MILLRACE_RETURN_IF_ERROR(
        steps_->wait_applied(call.request, message.sent_everywhere, lock, call.deadline));
  }
  MILLRACE_RETURN_IF_ERROR(put_vars(call, message.names));
  const std::lock_guard lock(core_->mutex);
  MILLRACE_RETURN_IF_ERROR(core_->check_served(call.request));
  return steps_->fetched(call.request, call.repeat);
}

Status Service::prefetch(const Call& call, const protocol::Prefetch& message) {
  count_rows(message.ids);
  for (const RequestItem& item : message.ids) {
    const Tensor* const ids = item.value == nullptr ? nullptr : item.value->get_if<Tensor>();
    if (ids == nullptr || !ids->initialized())
      return InvalidArgument("'{}' has no ids to look up", item.name);
    if (message.table) {
      MILLRACE_ASSIGN_OR_RETURN(const ServerVar* const table, core_->find_var(*message.table));
      const std::shared_lock lock(*table->mutex);
      MILLRACE_RETURN_IF_ERROR(look_up_rows(*table->value, *ids, item.name, call.reply));
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
    MILLRACE_RETURN_IF_ERROR(call.reply.put(item.name, *block.find(last.output_names().front())));
  }
  return Ok();
}

Status Service::complete(const Call& call, const protocol::Complete& message) {
  const int id = call.trainer();
  if (TableHandler* const own = core_->options.tables; own != nullptr) {
    // those of synchronous jobs go back first
    if (message.stays && steps_ == nullptr) MILLRACE_RETURN_IF_ERROR(own->check_ready());
    MILLRACE_RETURN_IF_ERROR(own->leave(id));
  }
  std::unique_lock lock(core_->mutex);
  MILLRACE_RETURN_IF_ERROR(core_->check_served(call.request));
  if (steps_ != nullptr) {
    if (!steps_->rules().complete(id, message)) return Ok();
    steps_->drop_partial(id);
    (void)steps_->rules().admit_joining();
  } else if (Trainer& trainer = core_->trainers.at(id); trainer.life != Trainer::Life::kLeft) {
    trainer.life = message.stays ? Trainer::Life::kGathering : Trainer::Life::kLeft;
  } else {
    return Ok();  // a delayed repeat of an earlier call must not bring the trainer back
  }
  core_->changed.notify_all();
  if (!message.stays || !message.waits) return Ok();
  return core_->wait_for(
      call.request, lock, call.deadline,
      [&] {
        return core_->trainers.all_done() && (steps_ == nullptr || !steps_->rules().is_ready());
      },
      [&] {
        return fmt::format("the end of {}",
                           core_->trainers.list(core_->now(), [](const Trainer& other) {
                             return other.is_expected();
                           }));
      });
}

StatusOr<TableHandler*> Service::tables() const {
  if (core_->options.tables != nullptr) return core_->options.tables;
  return Unimplemented("this server ({}) has no typed tables", core_->plan.endpoint);
}

StatusOr<TableFiles*> Service::table_files() const {
  MILLRACE_ASSIGN_OR_RETURN(const TableHandler* const own, tables());
  if (own->files() != nullptr) return own->files();
  return Unimplemented("saving and loading of table files is not enabled on this server");
}

Status Service::checkpoint(const Call& call, const protocol::Checkpoint& message) {
  if (const auto* const var = std::get_if<protocol::SaveVar>(&message.what))
    return save_var(call, *var);
  MILLRACE_ASSIGN_OR_RETURN(TableFiles* const files, table_files());
  if (const auto* const table = std::get_if<protocol::LoadTable>(&message.what)) {
    MILLRACE_RETURN_IF_ERROR(check_covered("loading tables in a running job"));
    return files->load(*table, call.repeat);
  }
  if (const auto* const table = std::get_if<protocol::SaveTable>(&message.what)) {
    MILLRACE_ASSIGN_OR_RETURN(const protocol::SavedFile file, files->save(*table, call.repeat));
    protocol::put_answer(file, call.reply);
    return Ok();
  }
  const bool by_steps = steps_ != nullptr && snapshots_ != nullptr;
  put_answer(protocol::LoadedTables{.count = files->loaded(),
                                    .ready = has_values(),
                                    .restored = restored_,
                                    .snapshot_every = by_steps ? core_->options.snapshot_every : 0},
             call.reply);
  return Ok();
}

// Saves the table as file <table>_<server> of the folder, as the original does.
Status Service::save_var(const Call& call, const protocol::SaveVar& what) {
  std::string table = what.table.value_or("");
  if (table.empty() && core_->plan.checkpoint_block >= 0) {
    const Block& block = core_->program().block(static_cast<size_t>(core_->plan.checkpoint_block));
    for (const Op& op : block.ops()) {
      if (op.type() == "save") table = op.first_input("X").str();
    }
  }
  if (table.empty())
    return InvalidArgument("this server ({}) has no block that saves checkpoints",
                           core_->plan.endpoint);
  if (core_->options.files_root.empty()) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("'{}' cannot be saved: no folder was allowed", table))
        .with_hint("pserver --allow-dir DIR lets it write files below a folder");
  }
  MILLRACE_ASSIGN_OR_RETURN(const ServerVar* const var, core_->find_var(table));
  const std::string name = fmt::format("{}/{}_{}", what.folder, table, core_->plan.server);
  MILLRACE_ASSIGN_OR_RETURN(const std::string path,
                            io::make_path_below(core_->options.files_root, name));
  // a repeat reports the file that the first call wrote: nothing may have changed since
  if (!call.repeat) {
    const std::lock_guard saving(saving_);
    const std::shared_lock lock(*var->mutex);
    MILLRACE_RETURN_IF_ERROR(save_rows(path, table, *var->value, what.rows));
  }
  // The caller writes this into the manifest.
  MILLRACE_ASSIGN_OR_RETURN(const protocol::SavedFile written, io::file_facts(path, name));
  protocol::put_answer(written, call.reply);
  return Ok();
}

Status Service::save_rows(const std::string& path, const std::string& table, const Value& value,
                          RowsToSave which) {
  const io::SaveOptions replacing{.replace = Replace::kYes};
  if (which == RowsToSave::kAll) return io::save_param(path, {table, &value}, replacing);
  MILLRACE_ASSIGN_OR_RETURN(std::vector<uint64_t> hashes, row_hashes(table, value));
  Value changed;
  if (which == RowsToSave::kChanged)
    MILLRACE_RETURN_IF_ERROR(copy_changed_rows(value, hashes, saved_rows_[table], changed));
  const Value& saved = which == RowsToSave::kChanged ? changed : value;
  MILLRACE_RETURN_IF_ERROR(io::save_param(path, {table, &saved}, replacing));
  // only now: rows of a file that could not be written must be in the next one
  saved_rows_[table] = std::move(hashes);
  return Ok();
}

Status Service::count(const Call& call, const protocol::Count& message) {
  if (call.repeat) return Ok();
  if (pushes_ == nullptr)
    return InvalidArgument("a synchronous server ({}) counts steps itself and accepts no counters",
                           core_->plan.endpoint);
  return pushes_->count(message.counter, message.steps);
}

// The accesses of a repeat were counted when the call was first carried out.
Status Service::pull(const Call& call, const protocol::Pull& message) {
  count_rows(message.args);
  if (core_->options.tables == nullptr) return no_typed_table(core_->plan.endpoint, message.table);
  if (!call.repeat || message.kind != PullKind::kCounted)
    return core_->options.tables->pull(call.request, message, call.reply);
  protocol::Pull again = message;
  again.kind = PullKind::kQuiet;
  return core_->options.tables->pull(call.request, again, call.reply);
}

Status Service::push(const Call& call, const protocol::Push& message) {
  if (core_->options.tables == nullptr) return no_typed_table(core_->plan.endpoint, message.table);
  if (message.kind == PushKind::kEndDay)
    MILLRACE_RETURN_IF_ERROR(check_covered("ending the day of tables by a call"));
  if (message.kind == PushKind::kValues && core_->options.tables->sparse().contains(message.table))
    MILLRACE_RETURN_IF_ERROR(check_covered("setting rows of tables by a call"));
  return call.repeat ? Ok() : core_->options.tables->push(call.request, message);
}

Status Service::barrier(const Call& call, const protocol::Barrier& message) {
  if (std::holds_alternative<protocol::LeaveBarriers>(message.what)) {
    MILLRACE_ASSIGN_OR_RETURN(TableHandler* const own, tables());
    return own->leave(call.trainer());
  }
  const auto* const of_tables = std::get_if<protocol::TableBarrier>(&message.what);
  if (of_tables == nullptr)
    return wait_at_barrier(call, std::get<protocol::ServerBarrier>(message.what).kind);
  if (core_->options.tables == nullptr) return wait_at_barrier(call, of_tables->kind);
  return core_->options.tables->arrive(*of_tables, call.trainer(), call.deadline);
}

Status Service::wait_at_barrier(const Call& call, CommBarrier kind) {
  if (call.repeat) return Ok();  // it has passed; the next round is another call's
  std::unique_lock lock(core_->mutex);
  MILLRACE_RETURN_IF_ERROR(core_->check_served(call.request));
  ServerBarrierState& barrier = barriers_[kind];
  const int64_t round = barrier.round;
  const auto is_missing = [&](int id) {
    return core_->trainers.at(id).is_expected() && !barrier.arrived.contains(id);
  };
  barrier.arrived.insert(call.trainer());
  core_->changed.notify_all();
  return core_->wait_for(
      call.request, lock, call.deadline,
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
          if (is_missing(id)) missing += " " + core_->trainers.describe(id, core_->now());
        }
        return fmt::format("barrier '{}':{}", barrier_name(kind), missing);
      });
}

// A trainer goes to a step on all servers before it sends anything for that step. Once one trainer
// has gone to the next step of this server, only gradients of trainers that have done so, too,
// count for it. So no server advances beyond a step that others may still have to undo, and all
// servers meet at one step.
Status Service::go_to(const Call& call, const protocol::GoTo& message) {
  if (steps_ == nullptr)
    return InvalidArgument("an asynchronous server ({}) has no steps", core_->plan.endpoint);
  std::unique_lock lock(core_->mutex);
  MILLRACE_RETURN_IF_ERROR(core_->wait_for(
      call.request, lock, call.deadline,
      [&] { return !steps_->is_applying() && !going_back_ && !saving_snapshot_; },
      [] { return std::string("the end of the step and of its snapshot"); }));
  const int id = call.trainer();
  MILLRACE_ASSIGN_OR_RETURN(const StepRules::Move move,
                            steps_->rules().plan(id, message.step, core_->plan.endpoint));
  if (core_->trainers.at(id).life == Trainer::Life::kJoining)
    core_->log(fmt::format("another process replaces trainer {} at step {}", id, message.step));
  if (move.begins_run()) MILLRACE_RETURN_IF_ERROR(go_back(lock, call, message, move));
  call.reply.set_epoch(core_->epoch);
  return steps_->settle(call.request, message);
}

Status Service::end_by_call(const Call& /*call*/, const protocol::Stop& /*message*/) {
  stop();
  return Ok();
}

Status Service::watch(const Call& call, const protocol::Watch& /*message*/) {
  const std::lock_guard lock(core_->mutex);
  static constexpr const char* kLives[] = {"absent", "live",    "gathering", "left",
                                           "lost",   "joining", "suspected"};
  const Clock::time_point now = core_->now();
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
  put_answer(
      protocol::WatchAnswer{fmt::format(
          R"({{"endpoint":{},"job":{},"epoch":{},"mode":"{}","step":{},"vars":{},"trainers":[{}]}})",
          in_quotes(core_->plan.endpoint), in_quotes(core_->options.job), core_->epoch.load(),
          server_mode_name(core_->plan.mode), steps_ != nullptr ? steps_->applied() : -1,
          core_->vars().size(), trainers)},
      call.reply);
  return Ok();
}

}  // namespace millrace::ps

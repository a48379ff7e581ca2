#include <algorithm>
#include <chrono>
#include <set>
#include <thread>
#include <utility>

#include "executor/feed_values.h"
#include "fleet/runtime/fleet_worker.h"
#include "framework/base/errors.h"
#include "ps/client/connect.h"

// Where a worker begins: with the parameters of which step, and from whom it has them.
namespace millrace::fleet {
namespace {

constexpr std::chrono::seconds kReportInterval{10};
// As many as servers keep.
constexpr size_t kKeptSnapshots = 3;
// Between two questions whether the servers have the first values.
constexpr std::chrono::milliseconds kFirstPause{2};
constexpr std::chrono::milliseconds kLongestPause{100};

// Persistable vars that the ops of a program change.
std::set<std::string> changed_by(const Program& program) {
  std::set<std::string> names;
  for (size_t block = 0; block < program.block_count(); ++block) {
    for (const Op& op : program.block(block).ops()) {
      for (const llvm::StringRef name : op.output_names()) {
        const Var* const var = program.root().find_var(name);
        if (var != nullptr && var->persistable()) names.insert(name.str());
      }
    }
  }
  return names;
}

// Errors: kDistributed if only some servers have loaded saved tables.
Status check_loaded(const std::vector<ps::protocol::LoadedTables>& answers) {
  const auto have = std::ranges::count_if(answers, [](const auto& each) { return each.count > 0; });
  if (have == 0 || static_cast<size_t>(have) == answers.size()) return Ok();
  return Status(StatusCode::kDistributed,
                fmt::format("{} of {} servers have loaded dense parameters", have, answers.size()))
      .with_hint("all servers of a job must load the same folder, or none");
}

}  // namespace

Status FleetWorker::init_params() {
  MILLRACE_ASSIGN_OR_RETURN(const auto answers, table_client_->count_loaded());
  MILLRACE_RETURN_IF_ERROR(check_loaded(answers));
  const auto ready =
      std::ranges::count_if(answers, [](const auto& answer) { return answer.ready; });
  if (answers.front().count == 0 && ready == 0) {
    // also where there is nothing to send: servers serve rows after this barrier
    return receives_.empty() ? table_client_->barrier(ps::CommBarrier::kInit)
                             : communicator_->init_params(scope_);
  }
  if (answers.front().count == 0 && static_cast<size_t>(ready) != answers.size())
    return Status(
               StatusCode::kDistributed,
               fmt::format("{} of {} servers have the values of a snapshot", ready, answers.size()))
        .with_hint("all servers of a job must have a snapshot, or none");
  MILLRACE_RETURN_IF_ERROR(table_client_->barrier(ps::CommBarrier::kInit));
  for (const RowSource& source : row_sources_) {
    const int id = communicator_->receive_contexts().at(source.param).table_id;
    MILLRACE_RETURN_IF_ERROR(communicator_->pull_dense(scope_, id));
  }
  return communicator_->recv(scope_);
}

Status FleetWorker::start() {
  std::vector<std::string> peers = servers_;
  const std::set<std::string> workers = ps::heter_workers_named_in(*main_);
  peers.insert(peers.end(), workers.begin(), workers.end());
  MILLRACE_RETURN_IF_ERROR(ps::connect_to_servers(*client_, peers, kReportInterval, log_));
  MILLRACE_RETURN_IF_ERROR(check_mode());
  if (rings_ != nullptr) {
    MILLRACE_RETURN_IF_ERROR(join_workers());
    MILLRACE_RETURN_IF_ERROR(abandon(check_loaded_together()));
    MILLRACE_RETURN_IF_ERROR(abandon(find_snapshots()));
  }
  // counters may have been loaded
  MILLRACE_RETURN_IF_ERROR(keep_schedule());
  MILLRACE_RETURN_IF_ERROR(warn_of_schedule());
  if (mode_ == ps::CommMode::kSync) {
    MILLRACE_RETURN_IF_ERROR(keep_first_values());
    if (rings_ == nullptr || dense_every_ > 0) find_local_state();
    MILLRACE_ASSIGN_OR_RETURN(first_step_, settle());
    meets_ = group_ != nullptr;
    return Ok();
  }
  MILLRACE_RETURN_IF_ERROR(send_rate());
  if (shares_steps_ && rate_main_ != nullptr) {
    MILLRACE_ASSIGN_OR_RETURN(step_counters_, step_counters_of(*rate_main_, scope_));
  }
  MILLRACE_RETURN_IF_ERROR(init_params());
  MILLRACE_RETURN_IF_ERROR(communicator_->start(&scope_));
  meets_ = group_ != nullptr;
  return Ok();
}

// The description of the servers and runtime.json of the worker must agree.
Status FleetWorker::check_mode() {
  for (const std::string& server : servers_) {
    MILLRACE_ASSIGN_OR_RETURN(const ps::ServerMode mode, client_->mode_of(server));
    const bool is_sync = mode_ == ps::CommMode::kSync;
    if (is_sync != (mode == ps::ServerMode::kSync))
      return InvalidArgument("this worker is {}synchronous, but the server at {} is {}",
                             is_sync ? "" : "not ", server, ps::server_mode_name(mode));
  }
  return Ok();
}

Status FleetWorker::keep_first_values() {
  if (index() != 0) return Ok();
  for (const auto& [name, context] : receives_) {
    for (const std::string& var : context.vars()) {
      const Value* const value = scope_.find(var);
      if (value == nullptr || !value->initialized())
        return NotFound("'{}' has no value to initialize the servers with", var);
      MILLRACE_RETURN_IF_ERROR(executor::copy_value(*value, first_values_[var]));
    }
  }
  return Ok();
}

void FleetWorker::find_local_state() {
  std::set<std::string> remote;
  for (const auto& [table, names] : dense_tables_) remote.insert(names.begin(), names.end());
  if (tables_ != nullptr) {
    for (const auto& [id, entry] : tables_->all()) remote.insert(entry.table.param);
  }
  local_.emplace(*main_, remote);
  // a server that was started again has one of its last snapshots
  if (group_ != nullptr) local_->keep_at_most(kKeptSnapshots);
}

StatusOr<int64_t> FleetWorker::go_back() {
  if (mode_ != ps::CommMode::kSync)
    return Status(StatusCode::kDistributed, "a worker that is not synchronous cannot go back");
  if (rings_ != nullptr && dense_every_ == 0)
    return Status(StatusCode::kDistributed,
                  "a worker that has the dense parameters itself cannot go back without snapshots "
                  "of servers");
  MILLRACE_RETURN_IF_ERROR(executor::bring_home(scope_));
  const bool told = std::exchange(told_to_go_back_, false);
  const StatusOr<int64_t> step = settle();
  if (!step.ok()) return abandon(step.status());
  MILLRACE_RETURN_IF_ERROR(abandon(local_->restore(*step, {}, scope_)));
  // the others may wait for this worker in a step
  if (group_ != nullptr && !told) MILLRACE_RETURN_IF_ERROR(meet(Meeting::kGoBack));
  return *step;
}

StatusOr<int64_t> FleetWorker::settle() {
  while (true) {
    link_->forget();
    MILLRACE_RETURN_IF_ERROR(open_communicator());
    MILLRACE_ASSIGN_OR_RETURN(const int64_t step, client_->settle());
    Status begun = begin_at(step);
    if (begun.ok()) return step;
    // a server may have been started again, without values, after it had said that it has them
    const StatusOr<bool> have = have_values(step);
    if (!client_->must_settle() && (!have.ok() || *have)) return begun;
  }
}

Status FleetWorker::begin_at(int64_t step) {
  MILLRACE_RETURN_IF_ERROR(wait_for_values(step));
  // a worker that joins waits here for its first step
  MILLRACE_RETURN_IF_ERROR(link_->fetch_barrier(servers_));
  MILLRACE_RETURN_IF_ERROR(communicator_->recv(scope_));
  MILLRACE_RETURN_IF_ERROR(set_schedule(step));
  step_ = step;
  return communicator_->start(&scope_);
}

// True if all servers have the values of the job.
StatusOr<bool> FleetWorker::have_values(int64_t step) {
  MILLRACE_ASSIGN_OR_RETURN(const auto answers, table_client_->count_loaded());
  MILLRACE_RETURN_IF_ERROR(check_loaded(answers));
  const auto lacks =
      std::ranges::find_if(answers, [](const auto& answer) { return !answer.ready; });
  if (lacks == answers.end()) return true;
  if (step == 0) return false;
  return Status(StatusCode::kDistributed,
                fmt::format("the server at {} has no values at step {}",
                            servers_[static_cast<size_t>(lacks - answers.begin())], step));
}

// Servers that were started again before their first snapshot have no dense parameters. The first
// worker sends them, and the others wait.
Status FleetWorker::wait_for_values(int64_t step) {
  const auto deadline = std::chrono::steady_clock::now() + client_->options().deadline;
  auto pause = kFirstPause;
  for (bool sent = false;;) {
    MILLRACE_ASSIGN_OR_RETURN(const bool have, have_values(step));
    if (have) return Ok();
    if (index() == 0 && first_values_.empty())
      return Status(StatusCode::kDistributed, "servers have lost the first parameters of the job");
    if (index() == 0 && !std::exchange(sent, true)) {
      MILLRACE_RETURN_IF_ERROR(send_first_values());
      continue;
    }
    if (std::chrono::steady_clock::now() >= deadline)
      return Status(StatusCode::kDistributed,
                    "trainer 0 has not sent the first parameters to all servers");
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, kLongestPause);
  }
}

Status FleetWorker::send_first_values() {
  for (const auto& [name, context] : receives_) {
    std::vector<const Value*> values;
    for (const std::string& var : context.vars()) values.push_back(&first_values_.at(var));
    MILLRACE_RETURN_IF_ERROR(sender_->set(context, values, {}));
  }
  return Ok();
}

Status FleetWorker::keep_schedule() {
  if (rate_main_ == nullptr) return Ok();
  for (const std::string& name : changed_by(*rate_main_)) {
    const Value* const value = scope_.find(name);
    if (value != nullptr && value->initialized())
      MILLRACE_RETURN_IF_ERROR(executor::copy_value(*value, schedule_start_[name]));
  }
  return Ok();
}

// Servers have the tables of a saved job, but only workers have the counters of its schedule.
Status FleetWorker::warn_of_schedule() {
  if (rate_main_ == nullptr || expects_loaded_ || !log_) return Ok();
  MILLRACE_ASSIGN_OR_RETURN(const auto answers, table_client_->count_loaded());
  if (std::ranges::all_of(answers, [](const auto& each) { return each.count == 0; })) return Ok();
  log_(
      "the servers have loaded a saved job, this trainer has not: the schedule of its learning "
      "rate begins with the first step; load the same folder in trainers");
  return Ok();
}

// Sets the schedule to where it was before a step.
Status FleetWorker::set_schedule(int64_t step) {
  sent_rate_.reset();
  if (rate_program_ == nullptr) return Ok();
  for (const auto& [name, value] : schedule_start_)
    MILLRACE_RETURN_IF_ERROR(executor::copy_value(value, scope_.local(name)));
  std::vector<Value> none;
  for (int64_t done = 0; done < step; ++done)
    MILLRACE_RETURN_IF_ERROR(rate_program_->run({}, {}, none));
  return Ok();
}

}  // namespace millrace::fleet

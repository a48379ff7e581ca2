#include "ps/table/table_handler.h"

#include <utility>

#include "framework/base/errors.h"
#include "ps/protocol/pack.h"

namespace millrace::ps {
namespace {

std::vector<const Value*> args_of(const std::vector<RequestItem>& items) {
  std::vector<const Value*> args;
  args.reserve(items.size());
  for (const RequestItem& item : items) args.push_back(item.value);
  return args;
}

}  // namespace

TableHandler::TableHandler(int trainers)
    : trainers_(trainers),
      steps_(trainers),
      barriers_(trainers, [this](CommBarrier kind, const std::set<int>& arrived) {
        return kind == CommBarrier::kSend ? finish_step(arrived) : Ok();
      }) {}

Status TableHandler::add(int id, std::unique_ptr<Table> table) {
  if (!tables_.emplace(id, std::move(table)).second)
    return InvalidArgument("table {} already exists", id);
  return Ok();
}

Status TableHandler::add_sparse(std::unique_ptr<SparseTable> table, int64_t shrink_every) {
  SparseTable& added = *table;
  MILLRACE_RETURN_IF_ERROR(add(added.options().table_id, std::move(table)));
  steps_.add(added, shrink_every);
  return Ok();
}

Status TableHandler::add_synchronous(std::unique_ptr<SparseTable> table) {
  SparseTable& added = *table;
  MILLRACE_RETURN_IF_ERROR(add(added.options().table_id, std::move(table)));
  pushes_wait_ = true;
  steps_.add_pushed(added);
  return Ok();
}

Status TableHandler::finish_step(const std::set<int>& arrived) {
  for (const auto& [id, table] : tables_) MILLRACE_RETURN_IF_ERROR(table->apply_pending());
  if (!pushes_wait_) return Ok();
  std::vector<char> arrivals(static_cast<size_t>(trainers_), 0);
  for (const int trainer : arrived) arrivals[static_cast<size_t>(trainer)] = 1;
  return steps_.apply(arrivals, ++steps_done_);
}

Status TableHandler::leave(int trainer) {
  if (pushes_wait_) steps_.drop(trainer);
  for (const auto& [id, table] : tables_) table->drop(trainer);
  return barriers_.leave(trainer);
}

std::map<int, SparseTable*> TableHandler::sparse() const {
  std::map<int, SparseTable*> found;
  for (const auto& [id, table] : tables_) {
    if (auto* const sparse = dynamic_cast<SparseTable*>(table.get()))
      found[static_cast<int>(id)] = sparse;
  }
  return found;
}

Table* TableHandler::find(int id) const {
  const auto found = tables_.find(id);
  return found == tables_.end() ? nullptr : found->second.get();
}

std::vector<int> TableHandler::ids() const {
  std::vector<int> all;
  for (const auto& [id, table] : tables_) all.push_back(static_cast<int>(id));
  return all;
}

Status TableHandler::handle(const Request& request, Deadline deadline, ReplySink& reply) {
  switch (request.method) {
    case Method::kPull: {
      MILLRACE_ASSIGN_OR_RETURN(const auto message, protocol::unpack<protocol::Pull>(request));
      return pull(request, message, reply);
    }
    case Method::kPush:
      return push_once(request, deadline);
    case Method::kTableBarrier:
      return barrier(request, deadline);
    case Method::kHello: {
      MILLRACE_ASSIGN_OR_RETURN(const auto message, protocol::unpack<protocol::Hello>(request));
      settle(request.caller, message.settled);
      put_answer(protocol::HelloAnswer{.mode = ServerMode::kAsync}, reply);
      return Ok();
    }
    case Method::kComplete:
      return leave(request.caller.trainer);
    default:
      return Unimplemented("'{}' is not implemented by table servers", method_name(request.method));
  }
}

StatusOr<Table*> TableHandler::table_of(int64_t id) const {
  const auto found = tables_.find(id);
  if (found == tables_.end()) return NotFound("this server has no table {}", id);
  return found->second.get();
}

Value TableHandler::take_spare() {
  const std::lock_guard lock(mutex_);
  Value value;
  if (spare_.empty()) return value;
  value = std::move(spare_.back());
  spare_.pop_back();
  return value;
}

Status TableHandler::pull(const Request& from, const protocol::Pull& pull, ReplySink& reply) {
  MILLRACE_ASSIGN_OR_RETURN(Table* const table, table_of(pull.table));
  const std::vector<const Value*> args = args_of(pull.args);
  Value answer = take_spare();
  Status status = table->pull(pull.kind, {from.caller.trainer, from.sequence, args}, answer);
  if (status.ok()) status = reply.put("rows", answer);
  const std::lock_guard lock(mutex_);
  spare_.push_back(std::move(answer));
  if (status.ok()) return Ok();
  return std::move(status).with_note(fmt::format("in a pull from table {}", pull.table));
}

Status TableHandler::push(const Request& from, const protocol::Push& push) {
  MILLRACE_ASSIGN_OR_RETURN(Table* const table, table_of(push.table));
  const std::vector<const Value*> args = args_of(push.args);
  const TableCall call{from.caller.trainer, from.sequence, args};
  const bool waits =
      pushes_wait_ && push.kind == PushKind::kUpdate && steps_.takes_pushes(push.table);
  Status status = waits ? steps_.hold_push(push.table, call) : table->push(push.kind, call);
  if (status.ok()) return Ok();
  return std::move(status).with_note(fmt::format("in a push to table {}", push.table));
}

TableHandler::Carried& TableHandler::carried_of(const Caller& caller) {
  Carried& carried = carried_[caller.trainer];
  // a replacement starts at 1
  if (carried.incarnation != caller.incarnation) carried = {caller.incarnation, {}};
  return carried;
}

// Calls of other methods have numbers, too, and leave gaps here.
void TableHandler::settle(const Caller& caller, uint64_t number) {
  const std::lock_guard lock(mutex_);
  const auto carried = carried_.find(caller.trainer);
  if (carried != carried_.end() && carried->second.incarnation == caller.incarnation)
    carried->second.window.settle(number);
}

Status TableHandler::push_once(const Request& from, Deadline deadline) {
  using Seen = SequenceWindow::Seen;
  MILLRACE_ASSIGN_OR_RETURN(const auto message, protocol::unpack<protocol::Push>(from));
  if (!is_numbered(from)) return push(from, message);
  const uint64_t sequence = from.sequence;
  {
    std::unique_lock lock(mutex_);
    carried_of(from.caller);
    Seen seen = Seen::kRunning;
    bool is_replaced = false;
    const bool in_time = finished_.wait_until(lock, deadline, [&] {
      Carried& carried = carried_[from.caller.trainer];
      is_replaced = carried.incarnation != from.caller.incarnation;
      if (!is_replaced) seen = carried.window.begin(sequence);
      return is_replaced || seen != Seen::kRunning;
    });
    if (is_replaced)
      return {StatusCode::kDistributed,
              fmt::format("another process has taken the place of trainer {}, whose push to table "
                          "{} waited",
                          from.caller.trainer, message.table)};
    if (!in_time)
      return {StatusCode::kDistributed,
              fmt::format("a push to table {} is still in progress, its repeat cannot be answered",
                          message.table)};
    if (seen == Seen::kDone) return Ok();
    if (seen == Seen::kTooMany) return SequenceWindow::too_many(sequence);
  }
  Status status = push(from, message);
  const std::lock_guard lock(mutex_);
  const auto carried = carried_.find(from.caller.trainer);
  if (carried != carried_.end() && carried->second.incarnation == from.caller.incarnation)
    carried->second.window.finish(sequence, status.ok());
  finished_.notify_all();
  return status;
}

Status TableHandler::arrive(const protocol::TableBarrier& barrier, int trainer, Deadline deadline) {
  return barriers_.arrive(barrier.kind, trainer, barrier.phase, deadline);
}

Status TableHandler::barrier(const Request& request, Deadline deadline) {
  MILLRACE_ASSIGN_OR_RETURN(const auto message, protocol::unpack<protocol::Barrier>(request));
  if (std::holds_alternative<protocol::LeaveBarriers>(message.what))
    return leave(request.caller.trainer);
  if (const auto* const barrier = std::get_if<protocol::TableBarrier>(&message.what))
    return arrive(*barrier, request.caller.trainer, deadline);
  return Unimplemented("table servers have no barriers without phases");
}

}  // namespace millrace::ps

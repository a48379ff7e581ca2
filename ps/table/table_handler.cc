#include "ps/table/table_handler.h"

#include <utility>

#include <llvm/ADT/STLExtras.h>

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
    : steps_(trainers),
      barriers_(trainers, [this](CommBarrier kind, const std::set<int>& /*arrived*/) {
        if (kind == CommBarrier::kInit) has_begun_ = true;
        return Ok();
      }) {}

Status TableHandler::add(int id, std::unique_ptr<Table> table) {
  const auto* const dense = dynamic_cast<const DenseTable*>(table.get());
  if (dense != nullptr && dense->options().sync)
    return InvalidArgument("table {} is synchronous: add_in_steps() adds it", id);
  return insert(id, std::move(table));
}

Status TableHandler::insert(int id, std::unique_ptr<Table> table) {
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

Status TableHandler::add_in_steps(std::unique_ptr<SparseTable> table) {
  in_steps_.insert(table->options().table_id);
  return add_sparse(std::move(table), 0);
}

Status TableHandler::add_in_steps(std::unique_ptr<DenseTable> table) {
  DenseTable& added = *table;
  const int id = added.options().table_id;
  MILLRACE_RETURN_IF_ERROR(insert(id, std::move(table)));
  in_steps_.insert(id);
  steps_.add(added);
  return Ok();
}

Status TableHandler::add_in_steps(int id, std::unique_ptr<RateTable> table) {
  RateTable& added = *table;
  MILLRACE_RETURN_IF_ERROR(add(id, std::move(table)));
  in_steps_.insert(id);
  steps_.add(id, added);
  return Ok();
}

bool TableHandler::is_ready() const {
  if (!waits_for_values_ || has_begun_) return true;
  const bool all_set = has_steps() && llvm::all_of(tables_, [](const auto& entry) {
                         const auto* const dense =
                             dynamic_cast<const DenseTable*>(entry.second.get());
                         return dense == nullptr || dense->is_set();
                       });
  if (all_set) has_begun_ = true;
  return all_set;
}

void TableHandler::resume() {
  has_begun_ = true;
  barriers_.resume();
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
  Status status = check_ready();
  if (status.ok())
    status = table->pull(pull.kind, {from.caller.trainer, from.sequence, args}, answer);
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
  Status status = push.kind == PushKind::kUpdate ? check_update(push.table) : Ok();
  if (status.ok()) status = table->push(push.kind, call);
  if (status.ok()) return Ok();
  return std::move(status).with_note(fmt::format("in a push to table {}", push.table));
}

Status TableHandler::check_ready() const {
  if (is_ready()) return Ok();
  return Status(StatusCode::kDistributed,
                "the tables of this server have no values: trainer 0 sends them when the job "
                "starts, and this server was started later")
      .with_hint("a server that is started again needs a snapshot (--snapshot-dir)");
}

// The rate is sent before the first values.
Status TableHandler::check_update(int64_t id) const {
  if (in_steps_.contains(id))
    return InvalidArgument(
        "gradients and rates of a synchronous job are sent with the send barrier of a step");
  if (dynamic_cast<RateTable*>(tables_.at(id).get()) != nullptr) return Ok();
  return check_ready();
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

#include "ps/table/table_handler.h"

#include <utility>

#include "framework/base/errors.h"
#include "ps/communicator/comm_options.h"
#include "ps/wire_names.h"

namespace millrace::ps {
namespace {

std::vector<const Value*> args_of(const Request& request) {
  std::vector<const Value*> args;
  for (const RequestItem& item : request.items) args.push_back(item.value);
  return args;
}

}  // namespace

TableHandler::TableHandler(int trainers)
    : trainers_(trainers),
      steps_(trainers),
      barriers_(trainers, [this](std::string_view kind, const std::set<int>& arrived) {
        return kind == "send" ? finish_step(arrived) : Ok();
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

// Pushes of the trainer without a following barrier are dropped.
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

void TableHandler::forget_calls() {
  const std::lock_guard lock(mutex_);
  applied_.clear();
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

bool TableHandler::is_about_files(const Request& request) {
  return request.method == Method::kCheckpoint &&
         (request.text == kSaveTable || request.text == kLoadTable || request.text == kCountLoaded);
}

Status TableHandler::handle_files(const Request& request, bool repeat, ReplySink& reply) {
  if (files_) return files_(request, repeat, reply);
  return Unimplemented("saving and loading of table files is not enabled on this server");
}

bool TableHandler::handles(Method method) {
  return method == Method::kPull || method == Method::kPush || method == Method::kTableBarrier;
}

Status TableHandler::handle(const Request& request, Deadline deadline, ReplySink& reply) {
  switch (request.method) {
    case Method::kPull:
      return pull(request, reply);
    case Method::kPush:
      return push_once(request, deadline);
    case Method::kTableBarrier:
      return barrier(request, deadline);
    case Method::kHello:
      reply.set_number(static_cast<int64_t>(CommMode::kAsync));
      reply.set_text("0 0 0");  // like a server without steps (ps/server/service.cc)
      return Ok();
    case Method::kComplete:
      return leave(request.caller.trainer);
    default:
      return Unimplemented("'{}' is not implemented by table servers", method_name(request.method));
  }
}

StatusOr<Table*> TableHandler::table_of(const Request& request) const {
  const auto found = tables_.find(request.number);
  if (found == tables_.end()) return NotFound("this server has no table {}", request.number);
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

Status TableHandler::pull(const Request& request, ReplySink& reply) {
  MILLRACE_ASSIGN_OR_RETURN(Table* const table, table_of(request));
  const std::vector<const Value*> args = args_of(request);
  Value answer = take_spare();
  Status status =
      table->pull(TableCall{request.text, request.caller.trainer, request.sequence, args}, answer);
  if (status.ok()) status = reply.put("rows", answer);
  const std::lock_guard lock(mutex_);
  spare_.push_back(std::move(answer));
  if (status.ok()) return Ok();
  return std::move(status).with_note(fmt::format("in a pull from table {}", request.number));
}

Status TableHandler::push(const Request& request) {
  MILLRACE_ASSIGN_OR_RETURN(Table* const table, table_of(request));
  const std::vector<const Value*> args = args_of(request);
  const TableCall call{request.text, request.caller.trainer, request.sequence, args};
  const bool waits = pushes_wait_ && call.what.empty() && steps_.takes_pushes(request.number);
  Status status = waits ? steps_.hold_push(request.number, call) : table->push(call);
  if (status.ok()) return Ok();
  return std::move(status).with_note(fmt::format("in a push to table {}", request.number));
}

Status TableHandler::push_once(const Request& request, Deadline deadline) {
  const uint64_t sequence = request.sequence;
  if (!is_numbered(request)) return push(request);
  {
    std::unique_lock lock(mutex_);
    Applied& applied = applied_[request.caller.trainer];
    if (applied.incarnation != request.caller.incarnation) {
      applied = {};  // a replacement starts at 1
      applied.incarnation = request.caller.incarnation;
    }
    const bool in_time =
        finished_.wait_until(lock, deadline, [&] { return !applied.running.contains(sequence); });
    if (!in_time)
      return {StatusCode::kDistributed,
              fmt::format("a push to table {} is still in progress, its repeat cannot be answered",
                          request.number)};
    if (sequence <= applied.low || applied.done.contains(sequence)) return Ok();
    applied.running.insert(sequence);
  }
  Status status = push(request);
  const std::lock_guard lock(mutex_);
  Applied& applied = applied_[request.caller.trainer];
  applied.running.erase(sequence);
  if (status.ok() && applied.incarnation == request.caller.incarnation) {
    applied.done.insert(sequence);
    while (!applied.done.empty() && *applied.done.begin() == applied.low + 1) {
      applied.done.erase(applied.done.begin());
      ++applied.low;
    }
  }
  finished_.notify_all();
  return status;
}

Status TableHandler::barrier(const Request& request, Deadline deadline) {
  if (request.text == "leave") return leave(request.caller.trainer);
  if (request.text == "join") return barriers_.join(request.caller.trainer);
  return barriers_.arrive(request.text, request.caller.trainer, request.number, deadline);
}

}  // namespace millrace::ps

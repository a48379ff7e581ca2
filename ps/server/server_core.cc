#include "ps/server/server_core.h"

#include <algorithm>
#include <atomic>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include <fmt/ranges.h>

#include "framework/base/errors.h"
#include "kernels/cpu/merge_rows.h"
#include "ps/transport/epoch.h"
#include "ps/values.h"

namespace millrace::ps {
namespace {

// Leaves room for later runs, which have higher numbers.
uint64_t first_run() {
  std::random_device device;
  return (device() & 0x7fffffffU) | 1U;
}

// Indices of the blocks to run, in ascending order. The checkpoint block is not run: it only names
// the table to save.
std::vector<int32_t> blocks_to_run(const ServePlan& plan) {
  std::set<int32_t> blocks;
  for (const std::vector<int32_t>& group : plan.groups) blocks.insert(group.begin(), group.end());
  for (const auto* const map : {&plan.grad_blocks, &plan.prefetch_blocks, &plan.message_blocks}) {
    for (const auto& [name, block] : *map) blocks.insert(block);
  }
  if (plan.lr_block >= 0) blocks.insert(plan.lr_block);
  return {blocks.begin(), blocks.end()};
}

Status wrong_item(const RequestItem& item, const std::string& expected) {
  Location place;
  place.var = item.name;
  return Status(StatusCode::kInvalidArgument,
                fmt::format("expected {}, found {}", expected, describe(*item.value)))
      .at(std::move(place));
}

Status check_has_value(llvm::StringRef name, const ServerVar& var) {
  if (var.value->initialized()) return Ok();
  return {StatusCode::kExecution,
          fmt::format("var '{}' of the server has no value: no startup program, parameters or "
                      "snapshot set it",
                      name.str())};
}

std::string dims_text(llvm::ArrayRef<int64_t> dims) {
  return fmt::format("[{}]", fmt::join(dims, ", "));
}

Status check_sent_rows(const RequestItem& item, const SelectedRows& rows,
                       llvm::ArrayRef<int64_t> declared) {
  const int64_t count = rows.value.initialized() ? rows.value.dim(0) : 0;
  if (count != static_cast<int64_t>(rows.rows.size()))
    return wrong_item(item, fmt::format("values of {} rows", rows.rows.size()));
  const int64_t height = declared.empty() || declared[0] < 0 ? rows.height : declared[0];
  for (const int64_t row : rows.rows) {
    if (row >= 0 && row < height) continue;
    return wrong_item(item, fmt::format("rows in [0, {})", height))
        .with_note(fmt::format("row {} is out of range", row));
  }
  if (count == 0 || declared.empty()) return Ok();
  int64_t width = 1;
  for (const int64_t dim : declared.drop_front()) width *= dim;
  if (width >= 0 && kernels::row_width(rows.value) != width)
    return wrong_item(item, fmt::format("rows of {} elements", width));
  return Ok();
}

Status check_item(const RequestItem& item, const Var* var) {
  if (item.value == nullptr || !item.value->initialized()) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("the call has no value for '{}'", item.name));
  }
  if (var == nullptr || !var->spec().has_tensor()) return Ok();
  const llvm::ArrayRef<int64_t> declared = var->dims();
  if (const auto* const rows = item.value->get_if<SelectedRows>())
    return check_sent_rows(item, *rows, declared);
  const auto* const tensor = item.value->get_if<Tensor>();
  if (tensor == nullptr) return Ok();
  const bool fits =
      tensor->rank() == declared.size() &&
      std::equal(declared.begin(), declared.end(), tensor->dims().begin(),
                 [](int64_t wanted, int64_t found) { return wanted < 0 || wanted == found; });
  // scalars may be declared with or without a dim of 1
  int64_t elements = 1;
  for (const int64_t dim : declared) elements *= dim;
  if (fits || (elements == 1 && tensor->numel() == 1)) return Ok();
  return wrong_item(item, fmt::format("dims {}", dims_text(declared)));
}

}  // namespace

ServerCore::ServerCore(const Program& program, ServePlan the_plan, ServerOptions the_options)
    : plan(std::move(the_plan)),
      options(std::move(the_options)),
      trainers(plan.trainers, options.job, options.elastic, pauses.now()),
      program_(program) {
  epoch = options.epoch != 0 ? options.epoch : make_epoch(1, first_run());
}

void ServerCore::begin_run() {
  ++epoch;
  changed.notify_all();
}

void ServerCore::set_term(uint64_t term) {
  epoch = make_epoch(term, epoch);
}

bool ServerCore::is_superseded_by(const Request& request) const {
  return term_of(request.epoch) > term_of(epoch);
}

Status ServerCore::superseded(uint64_t term) const {
  return Status(StatusCode::kDistributed,
                fmt::format("another process serves in place of this server ({}): it has term {}, "
                            "this one has term {}",
                            plan.endpoint, term, term_of(epoch)))
      .with_hint("this process was paused or cut off, and must not change anything any more");
}

Status ServerCore::check_served(const Request& request) const {
  MILLRACE_RETURN_IF_ERROR(check_epoch(request));
  MILLRACE_RETURN_IF_ERROR(trainers.check_served(request));
  return failure;
}

Status ServerCore::check_epoch(const Request& request) const {
  if (is_superseded_by(request)) return superseded(term_of(request.epoch));
  const uint64_t own = epoch;
  if (!names_run(request.epoch) || request.epoch == own) return Ok();
  return Status(StatusCode::kDistributed,
                fmt::format("'{}' is meant for epoch {} of this server, which is in epoch {}",
                            method_name(request.method), request.epoch, own))
      .with_hint(
          "the server was restarted, or went back to an older step, after the trainer's hello");
}

StatusOr<std::unique_ptr<ServerCore>> ServerCore::create(const executor::Runtime& runtime,
                                                         const Op& op, Scope& scope,
                                                         ServerOptions options) {
  MILLRACE_ASSIGN_OR_RETURN(ServePlan plan, ServePlan::read(op));
  if (!op.has_attr("pserver_id")) plan.server = options.server.value_or(plan.server);
  std::unique_ptr<ServerCore> core(
      new ServerCore(op.program(), std::move(plan), std::move(options)));
  core->guards_ = std::make_unique<VarGuards>(op.program(), blocks_to_run(core->plan));
  core->index_vars(scope);
  MILLRACE_RETURN_IF_ERROR(core->compile_blocks(runtime, scope));
  return core;
}

// Creates the value of every declared var in advance, so that calls and blocks only look them up.
void ServerCore::index_vars(Scope& scope) {
  for (const Var& var : program_.root().vars()) {
    Value* value = scope.find(var.name());
    if (value == nullptr)
      value = var.persistable() ? &scope.root().local(var.name()) : &scope.local(var.name());
    vars_[var.name()] = {&var, value, &guards_->of(var.name())};
  }
}

Status ServerCore::compile_blocks(const executor::Runtime& runtime, Scope& scope) {
  size_t widest = 1;
  std::map<int32_t, size_t> width;  // by block: number of blocks in its group
  for (const std::vector<int32_t>& group : plan.groups) {
    widest = std::max(widest, group.size());
    for (const int32_t block : group) width[block] = group.size();
  }
  for (const int32_t index : blocks_to_run(plan)) {
    const auto found = width.find(index);
    const int threads = found == width.end() || found->second > 1 ? 1 : options.threads;
    MILLRACE_ASSIGN_OR_RETURN(
        blocks_[index],
        ServerBlock::compile(runtime, program_.block(static_cast<size_t>(index)), scope, *guards_,
                             threads, options.seed + static_cast<uint64_t>(index)));
  }
  if (plan.mode == ServerMode::kSync)
    threads_ = std::make_unique<executor::DeviceThreads>(
        static_cast<int>(std::min<size_t>(widest, static_cast<size_t>(options.threads))));
  return Ok();
}

StatusOr<const ServerVar*> ServerCore::find_var(llvm::StringRef name) const {
  const auto found = vars_.find(name);
  if (found == vars_.end())
    return NotFound("this server ({}) has no var '{}'", plan.endpoint, name.str());
  return &found->getValue();
}

ServerBlock* ServerCore::block(int32_t index) const {
  const auto found = blocks_.find(index);
  return found == blocks_.end() ? nullptr : found->second.get();
}

Status ServerCore::run_group(llvm::ArrayRef<int32_t> blocks,
                             llvm::function_ref<Status(ServerBlock&)> run) const {
  std::vector<Status> results(blocks.size());
  std::atomic<size_t> next{0};
  const auto work = [&] {
    for (size_t i = next++; i < blocks.size(); i = next++) results[i] = run(*block(blocks[i]));
  };
  if (blocks.size() == 1 || threads_ == nullptr) {
    work();
  } else {
    threads_->run([&](int) { work(); });
  }
  for (Status& status : results) MILLRACE_RETURN_IF_ERROR(std::move(status));
  return Ok();
}

Status ServerCore::put_var(llvm::StringRef name, ReplySink& reply) const {
  MILLRACE_ASSIGN_OR_RETURN(const ServerVar* const var, find_var(name));
  const std::shared_lock lock(*var->mutex);
  return put(name, *var, reply);
}

Status ServerCore::put(llvm::StringRef name, const ServerVar& var, ReplySink& reply) {
  MILLRACE_RETURN_IF_ERROR(check_has_value(name, var));
  return reply.put(std::string_view(name), *var.value);
}

Status ServerCore::copy(const std::string& name, const ServerVar& var,
                        std::pair<std::string, Value>& to) {
  MILLRACE_RETURN_IF_ERROR(check_has_value(name, var));
  to.first = name;
  return copy_value_into(*var.value, to.second);
}

Status ServerCore::check(const RequestItem& item, const ServerVar& to) {
  return check_item(item, to.var);
}

Status ServerCore::store(const RequestItem& item, const ServerVar& to) {
  MILLRACE_RETURN_IF_ERROR(check(item, to));
  const std::unique_lock lock(*to.mutex);
  return take(item, *to.value);
}

Status ServerCore::take(const RequestItem& item, Value& to) {
  if (item.movable != nullptr) {
    std::swap(*item.movable, to);  // returns the old memory to the receiver
    return Ok();
  }
  return copy_value_into(*item.value, to);
}

Status ServerCore::wait(std::unique_lock<std::mutex>& lock, Deadline deadline,
                        llvm::function_ref<bool()> holds, llvm::function_ref<std::string()> what) {
  const uint64_t begun = epoch;
  const bool in_time = pauses.wait_until(
      changed, lock, deadline, [&] { return !failure.ok() || epoch != begun || holds(); });
  if (!failure.ok()) return failure;
  if (epoch != begun)
    return {StatusCode::kDistributed, "the server went back to an older step during the call"};
  if (in_time) return Ok();
  return {StatusCode::kDistributed,
          fmt::format("the deadline passed while waiting for {}", what())};
}

Status ServerCore::wait_for(const Request& request, std::unique_lock<std::mutex>& lock,
                            Deadline deadline, llvm::function_ref<bool()> holds,
                            llvm::function_ref<std::string()> what) {
  Status served;
  Status status = wait(
      lock, deadline,
      [&] {
        served = check_served(request);
        return !served.ok() || holds();
      },
      what);
  return status.ok() ? served : status;
}

void ServerCore::fail(Status status) {
  const std::lock_guard lock(mutex);
  if (failure.ok()) failure = std::move(status);
  changed.notify_all();
}

}  // namespace millrace::ps

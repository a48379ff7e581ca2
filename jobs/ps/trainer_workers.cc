#include "jobs/ps/trainer_workers.h"

#include <algorithm>
#include <utility>

#include "executor/feed_values.h"

namespace millrace::jobs {

StatusOr<std::unique_ptr<TrainerWorkers>> TrainerWorkers::create(int count, const Program& program,
                                                                 Scope& scope,
                                                                 ps::Communicator* communicator,
                                                                 const Prepare& prepare) {
  std::unique_ptr<TrainerWorkers> all(new TrainerWorkers());
  all->scope_ = &scope;
  all->communicator_ = communicator;
  for (const Var& var : program.root().vars()) {
    const Value* const value = var.persistable() ? scope.find(var.name()) : nullptr;
    if (value != nullptr && value->initialized()) all->names_.push_back(var.name().str());
  }
  if (communicator != nullptr) {
    for (const auto& [name, context] : communicator->receive_contexts()) {
      const std::vector<std::string> vars = context.vars();
      all->received_.insert(all->received_.end(), vars.begin(), vars.end());
    }
  }
  for (int i = 0; i < count; ++i) {
    auto worker = std::make_unique<Worker>();
    for (const std::string& name : all->names_)
      MILLRACE_RETURN_IF_ERROR(executor::copy_value(*scope.find(name), worker->scope.local(name)));
    MILLRACE_ASSIGN_OR_RETURN(worker->prepared, prepare(i, worker->scope));
    all->workers_.push_back(std::move(worker));
  }
  return all;
}

Status TrainerWorkers::run(int worker, const executor::NamedValues& feeds,
                           const std::vector<std::string>& fetches, std::vector<Value>& values) {
  Worker& own = *workers_[static_cast<size_t>(worker)];
  MILLRACE_RETURN_IF_ERROR(own.prepared->run(feeds, fetches, values));
  if (communicator_ == nullptr) return Ok();
  MILLRACE_RETURN_IF_ERROR(communicator_->barrier());
  return take_received(own);
}

// Received values are handed out only once, so they are copied to the common scope first.
Status TrainerWorkers::take_received(Worker& worker) {
  const std::lock_guard lock(taking_);
  const int64_t receives = communicator_->counts().receives;
  MILLRACE_RETURN_IF_ERROR(communicator_->finish_step(*scope_));
  if (receives == worker.receives) return Ok();
  for (const std::string& name : received_) {
    const Value* const from = scope_->find(name);
    Value* const to = worker.scope.find_local(name);
    if (from != nullptr && to != nullptr)
      MILLRACE_RETURN_IF_ERROR(executor::copy_value(*from, *to));
  }
  worker.receives = receives;
  return Ok();
}

void TrainerWorkers::join() {
  if (communicator_ != nullptr) communicator_->set_barrier_trigger(count());
}

Status TrainerWorkers::leave() {
  return communicator_ == nullptr ? Ok() : communicator_->leave();
}

Status TrainerWorkers::finish() {
  for (const std::string& name : names_) {
    if (std::find(received_.begin(), received_.end(), name) != received_.end()) continue;
    MILLRACE_RETURN_IF_ERROR(
        executor::copy_value(*workers_.front()->scope.find(name), *scope_->find(name)));
  }
  return Ok();
}

void TrainerWorkers::observe(ps::CallTrace* trace) {
  for (const auto& worker : workers_) {
    worker->clock.note_ops(trace);
    worker->prepared->observe(&worker->clock);
  }
}

double TrainerWorkers::send_seconds() const {
  double sum = 0;
  for (const auto& worker : workers_) sum += worker->clock.send_seconds();
  return sum;
}

double TrainerWorkers::wait_seconds() const {
  double sum = 0;
  for (const auto& worker : workers_) sum += worker->clock.wait_seconds();
  return sum;
}

}  // namespace millrace::jobs

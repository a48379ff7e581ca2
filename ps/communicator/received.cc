#include "ps/communicator/received.h"

#include <utility>

#include "framework/base/errors.h"
#include "ps/communicator/merge.h"

namespace millrace::ps {
namespace {

bool same_form(const Value& a, const Value& b) {
  const auto* const x = a.get_if<Tensor>();
  const auto* const y = b.get_if<Tensor>();
  return x != nullptr && y != nullptr && x->dtype() == y->dtype() && x->dims() == y->dims();
}

// Copies into the live var. A var without a value accepts any type and dims.
Status put_copy(std::string_view var, Value& from, Value& live) {
  if (live.initialized() && !same_form(from, live))
    return {StatusCode::kExecution, fmt::format("'{}' is {} here, but the servers sent {}", var,
                                                describe(live), describe(from))};
  return copy_value(from, live);
}

Status put_memory(std::string_view var, Value& from, Value& live) {
  auto* const to = live.get_if<Tensor>();
  if (to == nullptr || !same_form(from, live) || !to->holds_memory_alone())
    return put_copy(var, from, live);
  to->swap(*from.get_if<Tensor>());
  return Ok();
}

}  // namespace

Received::Received(const CommContexts& contexts, Sender& sender) : sender_(sender) {
  for (const auto& [name, context] : contexts) {
    auto entry = std::make_unique<Context>();
    entry->context = &context;
    entry->vars = context.vars();
    entry->arriving.resize(entry->vars.size());
    entry->fresh.resize(entry->vars.size());
    entry->is_fresh.resize(entry->vars.size());
    for (size_t i = 0; i < entry->vars.size(); ++i)
      places_.emplace(entry->vars[i], Place{entry.get(), i});
    contexts_.push_back(std::move(entry));
  }
}

Status Received::receive(size_t index, Deadline deadline) {
  Context& context = *contexts_[index];
  const std::lock_guard receiving(context.receiving);
  MILLRACE_RETURN_IF_ERROR(sender_.receive(*context.context, context.arriving, deadline));
  const std::lock_guard lock(mutex_);
  context.arriving.swap(context.fresh);
  context.is_fresh.assign(context.vars.size(), true);
  ++count_;
  return Ok();
}

Status Received::receive_all(Deadline deadline) {
  std::vector<std::unique_lock<std::mutex>> receiving;  // always in this order
  std::vector<Sender::Parcel> parcels;
  for (const auto& context : contexts_) {
    receiving.emplace_back(context->receiving);
    parcels.push_back({context->context, context->arriving});
  }
  MILLRACE_RETURN_IF_ERROR(sender_.receive_all(parcels, deadline));
  const std::lock_guard lock(mutex_);
  for (const auto& context : contexts_) {
    context->arriving.swap(context->fresh);
    context->is_fresh.assign(context->vars.size(), true);
    ++count_;
  }
  return Ok();
}

Status Received::receive_table(int table_id, Deadline deadline) {
  bool found = false;
  for (size_t i = 0; i < contexts_.size(); ++i) {
    if (contexts_[i]->context->table_id != table_id) continue;
    found = true;
    MILLRACE_RETURN_IF_ERROR(receive(i, deadline));
  }
  return found ? Ok() : NotFound("table {} has no parameters to receive", table_id);
}

Status Received::receive_all_once(Deadline deadline) {
  {
    const std::lock_guard lock(mutex_);
    if (receiving_all_) {
      again_ = true;
      return Ok();
    }
    receiving_all_ = true;
  }
  for (;;) {
    Status status = receive_all(deadline);
    const std::lock_guard lock(mutex_);
    if (!std::exchange(again_, false) || !status.ok()) {
      receiving_all_ = false;
      return status;
    }
  }
}

StatusOr<bool> Received::adopt(std::string_view var, Value& live) {
  return take(var, live, put_copy);
}

Status Received::adopt_all(Scope& scope) {
  return take_all(scope, put_copy);
}

Status Received::exchange_all(Scope& scope) {
  return take_all(scope, put_memory);
}

StatusOr<bool> Received::take(std::string_view var, Value& live, Put put) {
  const auto place = places_.find(var);
  if (place == places_.end()) return false;
  auto& [context, index] = place->second;
  Value taken;
  {
    const std::lock_guard lock(mutex_);
    if (!context->is_fresh[index]) return false;
    context->is_fresh[index] = false;
    taken = std::move(context->fresh[index]);
  }
  MILLRACE_RETURN_IF_ERROR(put(var, taken, live));
  // Keep the memory for the next receive, unless a new value has already arrived.
  const std::lock_guard lock(mutex_);
  if (!context->is_fresh[index]) context->fresh[index] = std::move(taken);
  return true;
}

Status Received::take_all(Scope& scope, Put put) {
  for (const auto& [var, place] : places_) {
    Value* const live = scope.find(var);
    if (live == nullptr) continue;
    const StatusOr<bool> taken = take(var, *live, put);
    if (!taken.ok()) return taken.status();
  }
  return Ok();
}

Status Received::receive_into(Scope& scope, Deadline deadline,
                              const std::function<bool(const CommContext&)>& wanted) {
  for (size_t i = 0; i < contexts_.size(); ++i) {
    if (!wanted(*contexts_[i]->context)) continue;
    MILLRACE_RETURN_IF_ERROR(receive(i, deadline));
    for (const std::string& var : contexts_[i]->vars) {
      Value* const known = scope.find(var);
      const StatusOr<bool> adopted = adopt(var, known == nullptr ? scope.local(var) : *known);
      if (!adopted.ok()) return adopted.status();
    }
  }
  return Ok();
}

int64_t Received::count() const {
  const std::lock_guard lock(mutex_);
  return count_;
}

ReceiveThread::ReceiveThread(int64_t minimum, int64_t of_a_step, std::function<Status()> receive)
    : minimum_(minimum),
      of_a_step_(of_a_step),
      receive_(std::move(receive)),
      thread_([this] { work(); }) {}

ReceiveThread::~ReceiveThread() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void ReceiveThread::sent(int64_t gradients) {
  const std::lock_guard lock(mutex_);
  sent_ += gradients;
  if (is_due()) wake_.notify_one();
}

void ReceiveThread::taken() {
  const std::lock_guard lock(mutex_);
  is_taken_ = true;
  if (is_due()) wake_.notify_one();
}

void ReceiveThread::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    while (!wake_.wait_for(lock, std::chrono::seconds(1), [&] { return stopping_ || is_due(); })) {
    }
    if (stopping_) return;
    sent_ = 0;
    is_taken_ = false;
    lock.unlock();
    const Status status = receive_();
    lock.lock();
    if (!status.ok()) return;
  }
}

}  // namespace millrace::ps

#include "ps/communicator/communicator_impl.h"

#include <chrono>
#include <utility>

#include "framework/base/errors.h"
#include "framework/base/exceptions.h"
#include "framework/names.h"
#include "ps/communicator/merge.h"

namespace millrace::ps {
namespace {

// Var of the step counter, which the communicator itself sends.
constexpr std::string_view kStepCounter = "@PS_STEP_COUNTER@";

}  // namespace

Status Communicator::Impl::init(CommContexts send, CommContexts receive) {
  if (running_)
    return InvalidArgument("the communicator is running, contexts must be set before start");
  std::map<std::string, Place, std::less<>> places;
  std::vector<const CommContext*> lanes;
  for (const CommContexts* const contexts : {&send, &receive}) {
    std::map<std::string, std::string> owners;
    for (const auto& [name, context] : *contexts) {
      MILLRACE_RETURN_IF_ERROR(check_context(context));
      for (const std::string& var : context.vars()) {
        const auto [owner, added] = owners.emplace(var, name);
        if (!added)
          return InvalidArgument("'{}' is in contexts '{}' and '{}'", var, owner->second, name);
      }
    }
  }
  send_contexts_ = std::move(send);
  receive_contexts_ = std::move(receive);
  average_gradients();
  for (const auto& [name, context] : send_contexts_) {
    const std::vector<std::string> vars = context.vars();
    for (size_t i = 0; i < vars.size(); ++i)
      places.emplace(vars[i], Place{lanes.size(), i, &context});
    lanes.push_back(&context);
  }
  places_ = std::move(places);
  lane_contexts_ = std::move(lanes);
  received_ = std::make_unique<Received>(receive_contexts_, *sender_);
  if (options_.need_global_step && !send_contexts_.empty() && !places_.contains(kStepCounter))
    return InvalidArgument("need_global_step: no context sends '{}'", kStepCounter);
  if (mode_ == CommMode::kGeo) {
    for (const auto& [name, context] : send_contexts_) {
      if (!receive_contexts_.contains(name))
        return InvalidArgument("geo sends '{}', but does not receive it", name);
    }
    if (send_contexts_.size() != receive_contexts_.size())
      return InvalidArgument("geo sends {} parameters, but receives {}", send_contexts_.size(),
                             receive_contexts_.size());
    geo_ = std::make_unique<Geo>(receive_contexts_, options_.trainers, *sender_);
  }
  return Ok();
}

// Counts of steps and statistics of data_norm stay sums.
void Communicator::Impl::average_gradients() {
  if (mode_ != CommMode::kAsync || options_.is_sgd_optimizer) return;
  for (auto& [name, context] : send_contexts_) {
    const bool is_gradient =
        name != kStepCounter && context.use_send_handler && !context.is_datanorm_table;
    if (is_gradient) context.aggregate = false;
  }
}

LaneOptions Communicator::Impl::lane_options() const {
  LaneOptions lanes{.merge = options_.max_merge_var_num,
                    .queue = options_.send_queue_size,
                    .wait_ms = options_.send_wait_times * 10,
                    .threads = options_.thread_pool_size,
                    .deadline_ms = options_.rpc_deadline_ms,
                    .on_demand = waits_for_threads(),
                    .adds_up_rows = !sender_->adds_up_rows()};
  if (mode_ == CommMode::kGeo)
    lanes.merge = lanes.queue = 1;  // a difference already covers several steps
  return lanes;
}

Status Communicator::Impl::start(Scope* scope) {
  if (running_) {
    remarks_.emplace_back("the communicator has been started already");
    return Ok();
  }
  if (geo_ != nullptr && geo_->count() > 0) {
    if (scope == nullptr) return InvalidArgument("geo needs the scope of the parameters at start");
    MILLRACE_RETURN_IF_ERROR(geo_->begin(*scope));
  }
  lanes_ = std::make_unique<SendLanes>(
      lane_contexts_, lane_options(),
      [this](std::span<const SendLanes::Message> messages) { return send_messages(messages); });
  if (mode_ == CommMode::kAsync && options_.independent_recv_thread && !options_.fake_rpc &&
      !receive_contexts_.empty()) {
    receive_thread_ = std::make_unique<ReceiveThread>(
        options_.min_send_grad_num_before_recv, static_cast<int64_t>(lane_contexts_.size()),
        [this] {
          Status status = without_exceptions("while parameters are received",
                                             [this] { return received_->receive_all(deadline()); });
          if (!status.ok()) lanes_->fail(status);
          return status;
        });
  }
  trigger_ = options_.cpu_num;
  steps_ = 0;
  lanes_->start();
  running_ = true;
  return Ok();
}

Status Communicator::Impl::stop() {
  if (!running_.exchange(false)) return Ok();
  // The receive thread reports errors to the lanes, and the lanes notify it of sends: stop it after
  // the threads of the lanes and before destroying the lanes.
  Status status = lanes_->stop(/*flush=*/true, deadline());
  receive_thread_.reset();
  barrier_changed_.notify_all();
  return status.ok() ? lanes_->error() : status;
}

Status Communicator::Impl::send_messages(std::span<const SendLanes::Message> messages) {
  if (options_.fake_rpc) return Ok();
  if (geo_ != nullptr) {
    for (const auto& [lane, values, merged] : messages)
      MILLRACE_RETURN_IF_ERROR(geo_->exchange(lane, *lane_contexts_[lane], values, deadline()));
    return Ok();
  }
  std::vector<Sender::Parcel> parcels;
  int merged = 0;
  bool any_program = false;
  for (const SendLanes::Message& message : messages) {
    parcels.push_back({lane_contexts_[message.lane], message.values});
    merged += message.merged;
    any_program |= lane_contexts_[message.lane]->table_id < 0;
  }
  MILLRACE_RETURN_IF_ERROR(sender_->send_all(parcels, deadline()));
  if (mode_ != CommMode::kAsync) return Ok();
  if (receive_thread_ != nullptr) {
    receive_thread_->sent(merged);
    return Ok();
  }
  if (options_.independent_recv_thread || receive_contexts_.empty()) return Ok();
  if (any_program) return received_->receive_all_once(deadline());
  for (const Sender::Parcel& parcel : parcels) {
    // Sparse tables have only rows, for which there is no receive context.
    Status status = received_->receive_table(parcel.context->table_id, deadline());
    if (!status.ok() && status.code() != StatusCode::kNotFound) return status;
  }
  return Ok();
}

Status Communicator::Impl::send(std::string_view var, const Value* from, Value* owned) {
  const auto found = places_.find(var);
  if (found == places_.end()) return NotFound("no context of the communicator sends '{}'", var);
  if (!running_) return InvalidArgument("'{}': the communicator does not run", var);
  const Place& place = found->second;
  if (mode_ == CommMode::kGeo) {
    if (!geo_->is_sparse(place.lane))
      return InvalidArgument("'{}' is dense, geo accepts only ids of sparse parameters", var);
    MILLRACE_RETURN_IF_ERROR(lanes_->error());
    return geo_->record(place.lane, from != nullptr ? *from : *owned);
  }
  if (place.context->is_sparse && !options_.merge_sparse_grad)
    return send_directly(place, from, owned);
  return lanes_->push(place.lane, place.var, from, owned);
}

Status Communicator::Impl::send_directly(const Place& place, const Value* from, Value* owned) {
  MILLRACE_RETURN_IF_ERROR(lanes_->error());
  Value value;
  if (owned != nullptr) {
    value = std::move(*owned);
  } else {
    MILLRACE_RETURN_IF_ERROR(copy_value(*from, value));
  }
  MILLRACE_RETURN_IF_ERROR(merge_values({&value, 1}, /*average=*/false, !sender_->adds_up_rows()));
  const SendLanes::Message message{place.lane, {&value, 1}, 1};
  Status status = send_messages({&message, 1});
  if (!status.ok()) lanes_->fail(status);
  ++direct_sends_;
  return status;
}

// Counts one more step of this thread. The servers add up the counts of all threads and trainers.
Status Communicator::Impl::count_step() {
  if (!options_.need_global_step || send_contexts_.empty()) return Ok();
  Value one;
  auto& number = one.as<Tensor>();
  MILLRACE_RETURN_IF_ERROR(number.resize(DType::kInt64, {1}));
  *number.data<int64_t>() = 1;
  return send(kStepCounter, nullptr, &one);
}

Status Communicator::Impl::barrier() {
  if (!waits_for_threads()) return Ok();
  if (!running_) return InvalidArgument("barrier: the communicator does not run");
  MILLRACE_RETURN_IF_ERROR(lanes_->error());
  MILLRACE_RETURN_IF_ERROR(count_step());
  std::unique_lock lock(barrier_mutex_);
  const int64_t round = round_;
  ++arrived_;
  MILLRACE_RETURN_IF_ERROR(finish_round(lock));
  const bool in_time = pauses_.wait_until(barrier_changed_, lock, deadline(),
                                          [&] { return round_ != round || !running_; });
  MILLRACE_RETURN_IF_ERROR(lanes_->error());
  if (round_ != round) return Ok();
  if (!running_) return InvalidArgument("barrier: the communicator was stopped");
  if (in_time) return Ok();
  const Status late(
      StatusCode::kDistributed,
      fmt::format("{} of {} threads reached the barrier by the deadline", arrived_, trigger_));
  lock.unlock();
  // This thread is counted for the round that did not start; a retry would count it twice.
  lanes_->fail(late);
  return late;
}

// Runs a round if all threads have arrived. The lock is released while it sends and receives.
Status Communicator::Impl::finish_round(std::unique_lock<std::mutex>& lock) {
  if (in_round_ || trigger_ == 0 || arrived_ == 0 || arrived_ < trigger_) return Ok();
  in_round_ = true;
  const int batches = arrived_;
  lock.unlock();
  Status status = run_round(batches);
  if (!status.ok()) lanes_->fail(status);
  lock.lock();
  in_round_ = false;
  arrived_ -= batches;
  ++round_;
  barrier_changed_.notify_all();
  return status;
}

Status Communicator::Impl::run_round(int batches) {
  MILLRACE_RETURN_IF_ERROR(lanes_->flush(batches, deadline()));
  const bool has_contexts = !send_contexts_.empty() || !receive_contexts_.empty();
  if (options_.fake_rpc || !(has_contexts || options_.meets_always)) return Ok();
  if (mode_ == CommMode::kSync)
    MILLRACE_RETURN_IF_ERROR(sender_->barrier(CommBarrier::kSend, deadline()));
  MILLRACE_RETURN_IF_ERROR(received_->receive_all(deadline()));
  if (mode_ == CommMode::kSync)
    MILLRACE_RETURN_IF_ERROR(sender_->barrier(CommBarrier::kReceive, deadline()));
  return Ok();
}

void Communicator::Impl::set_trigger(int threads) {
  const std::lock_guard lock(barrier_mutex_);
  trigger_ = std::max(0, threads);
}

Status Communicator::Impl::leave() {
  if (!waits_for_threads() || !running_) return Ok();
  std::unique_lock lock(barrier_mutex_);
  if (trigger_ > 0) --trigger_;
  return finish_round(lock);
}

Status Communicator::Impl::finish_step(Scope& scope) {
  if (!running_) return InvalidArgument("the communicator does not run");
  MILLRACE_RETURN_IF_ERROR(lanes_->error());
  if (!waits_for_threads()) MILLRACE_RETURN_IF_ERROR(count_step());
  if (geo_ == nullptr) {
    if (receive_thread_ != nullptr) receive_thread_->taken();
    return received_->exchange_all(scope);
  }
  MILLRACE_RETURN_IF_ERROR(geo_->apply(scope));
  if (++steps_ % options_.max_merge_var_num != 0) return Ok();
  return push_deltas(scope);
}

Status Communicator::Impl::adopt(Scope& scope) {
  if (receive_thread_ != nullptr) receive_thread_->taken();
  return received_->adopt_all(scope);
}

Status Communicator::Impl::push_deltas(Scope& scope) {
  ++pushes_;
  for (size_t param = 0; param < geo_->count(); ++param) {
    MILLRACE_ASSIGN_OR_RETURN(std::vector<Value> deltas, geo_->take_delta(param, scope));
    for (size_t var = 0; var < deltas.size(); ++var)
      MILLRACE_RETURN_IF_ERROR(lanes_->push(param, var, nullptr, &deltas[var]));
  }
  return Ok();
}

Status Communicator::Impl::receive_into(Scope& scope,
                                        const std::function<bool(const CommContext&)>& wanted) {
  if (lanes_ != nullptr) MILLRACE_RETURN_IF_ERROR(lanes_->error());
  if (received_ == nullptr || options_.fake_rpc) return Ok();
  return received_->receive_into(scope, deadline(), wanted);
}

Status Communicator::Impl::init_params(Scope& scope) {
  if (receive_contexts_.empty()) return Ok();
  if (options_.trainer_id == 0) {
    for (const auto& [name, context] : receive_contexts_) {
      std::vector<const Value*> values;
      for (const std::string& var : context.vars()) {
        values.push_back(scope.find(var));
        if (values.back() == nullptr || !values.back()->initialized())
          return NotFound("'{}' has no value to initialize the servers with", var);
      }
      MILLRACE_RETURN_IF_ERROR(sender_->set(context, values, deadline()));
    }
  }
  MILLRACE_RETURN_IF_ERROR(sender_->barrier(CommBarrier::kInit, deadline()));
  if (options_.trainer_id == 0) return Ok();
  return received_->receive_into(scope, deadline(), [](const CommContext&) { return true; });
}

Status Communicator::Impl::push_sparse_param(std::string_view var, int table_id, Scope& scope) {
  if (!running_) return InvalidArgument("'{}': the communicator does not run", var);
  const CommContext* context = nullptr;
  if (const auto place = places_.find(var); place != places_.end()) context = place->second.context;
  const std::string grad = names::grad(llvm::StringRef(var.data(), var.size()));
  if (const auto place = places_.find(grad); context == nullptr && place != places_.end())
    context = place->second.context;
  if (context == nullptr) return NotFound("no context of the communicator sends '{}'", var);
  if (table_id >= 0 && table_id != context->table_id)
    return InvalidArgument("'{}' belongs to table {}, not {}", var, context->table_id, table_id);
  const Value* const value = scope.find(llvm::StringRef(var.data(), var.size()));
  if (value == nullptr || !value->initialized()) return NotFound("'{}' has no value", var);
  return sender_->set(*context, {&value, 1}, deadline());
}

Communicator::Counts Communicator::Impl::counts() const {
  Counts counts;
  const int64_t direct = direct_sends_;
  if (lanes_ != nullptr) {
    counts.sends = lanes_->messages() + direct;
    counts.merged = lanes_->batches() + direct;
  }
  if (received_ != nullptr) counts.receives = received_->count();
  counts.pushes = pushes_;
  return counts;
}

}  // namespace millrace::ps

#include "io/checkpoint/async_save.h"

#include <algorithm>
#include <utility>

#include "framework/base/errors.h"
#include "framework/tensor/layout.h"

namespace millrace::io {
namespace {

// Into memory of the copy, which is taken again where it suffices.
Status copy_value(const Value& from, Value& to) {
  if (const auto* const tensor = from.get_if<Tensor>()) return copy_plain(*tensor, to.as<Tensor>());
  const auto* const rows = from.get_if<SelectedRows>();
  if (rows == nullptr) {
    MILLRACE_ASSIGN_OR_RETURN(to, clone(from));
    return Ok();
  }
  SelectedRows& copy = to.as<SelectedRows>();
  copy.rows = rows->rows;
  copy.height = rows->height;
  return copy_plain(rows->value, copy.value);
}

}  // namespace

AsyncSaver::~AsyncSaver() {
  if (thread_.joinable()) thread_.join();
}

bool AsyncSaver::busy() const {
  const std::lock_guard lock(mutex_);
  return running_;
}

Status AsyncSaver::wait() {
  if (thread_.joinable()) thread_.join();
  return std::exchange(outcome_, Ok());
}

void AsyncSaver::release() {
  if (thread_.joinable()) thread_.join();
  state_ = {};
  values_.clear();
  records_.clear();
}

Status AsyncSaver::copy(const LocalState& state, bool lazily) {
  state_ = {};
  std::map<std::string, Value> kept = std::exchange(values_, {});
  records_.clear();
  pending_.clear();
  places_.clear();
  copied_ = 0;
  for (const LocalTensor& local : state.tensors) {
    Location location;
    location.var = local.name;
    if (local.value == nullptr || !local.value->initialized())
      return InvalidArgument("the var has no value to save").at(std::move(location));
    Value& value = values_[local.name];
    if (const auto old = kept.find(local.name); old != kept.end()) value = std::move(old->second);
    const auto* const tensor = local.value->get_if<Tensor>();
    if (lazily && tensor != nullptr) {
      pending_.push_back({local.value, &value, tensor->bytes()});
    } else {
      MILLRACE_RETURN_IF_ERROR(copy_value(*local.value, value).at(std::move(location)));
    }
    LocalTensor copied = local;
    copied.value = &value;
    state_.tensors.push_back(std::move(copied));
  }
  // Counters and statistics, which change first, are small.
  std::ranges::stable_sort(pending_, {}, &Pending::bytes);
  for (size_t i = 0; i < pending_.size(); ++i) places_[pending_[i].from] = i;
  for (const LocalRecord& record : state.records) {
    std::string& bytes = records_[record.name];
    bytes = record.bytes;
    state_.records.push_back({record.name, bytes});
  }
  state_.user = state.user;
  return Ok();
}

Status AsyncSaver::copy_pending() {
  Status status;
  for (size_t i = 0; i < pending_.size(); ++i) {
    if (status.ok()) status = copy_value(*pending_[i].from, *pending_[i].to);
    {
      const std::lock_guard lock(mutex_);
      copied_ = i + 1;
    }
    progress_.notify_all();
  }
  copying_.store(false, std::memory_order_release);
  return status;
}

void AsyncSaver::before_change(const Value* value) {
  if (!copying()) return;
  const auto place = places_.find(value);
  if (place == places_.end()) return;
  std::unique_lock lock(mutex_);
  progress_.wait(lock, [&] { return copied_ > place->second; });
}

Status AsyncSaver::prepare(const LocalState& state, IfBusy if_busy, bool lazily) {
  if (if_busy == IfBusy::kFail && busy())
    return {StatusCode::kResource, "an earlier checkpoint is still being written"};
  MILLRACE_RETURN_IF_ERROR(wait());
  return copy(state, lazily);
}

void AsyncSaver::run(Save save) {
  running_ = true;
  copying_ = !pending_.empty();
  thread_ = std::thread([this, save = std::move(save)] {
    Status outcome = copy_pending();
    if (outcome.ok()) outcome = save(state_);
    const std::lock_guard lock(mutex_);
    outcome_ = std::move(outcome);
    running_ = false;
  });
}

Status AsyncSaver::start(const LocalState& state, Save save, IfBusy if_busy) {
  MILLRACE_RETURN_IF_ERROR(prepare(state, if_busy, false));
  run(std::move(save));
  return Ok();
}

Status AsyncSaver::start_lazily(const LocalState& state, Save save, IfBusy if_busy) {
  MILLRACE_RETURN_IF_ERROR(prepare(state, if_busy, true));
  run(std::move(save));
  return Ok();
}

}  // namespace millrace::io

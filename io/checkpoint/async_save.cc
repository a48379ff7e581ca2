#include "io/checkpoint/async_save.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

#include "framework/base/errors.h"
#include "framework/base/exceptions.h"
#include "framework/tensor/layout.h"

namespace millrace::io {
namespace async_save {
namespace {

// A private layout may be memory that only its library can read, from one thread: GPU memory.
bool is_elsewhere(const Tensor& tensor) {
  return tensor.layout() != nullptr && tensor.layout()->is_private();
}

// Copies into the memory of `to` if it is large enough. Tensors keep their element order, because
// conversion to row-major order takes several times as long as copying.
Status copy_value(const Value& from, Value& to) {
  if (const auto* const tensor = from.get_if<Tensor>()) {
    auto& copy = to.as<Tensor>();
    return is_elsewhere(*tensor) ? copy_plain(*tensor, copy) : copy.copy_from(*tensor);
  }
  const auto* const rows = from.get_if<SelectedRows>();
  if (rows == nullptr) {
    MILLRACE_ASSIGN_OR_RETURN(to, clone(from));
    return Ok();
  }
  SelectedRows& copy = to.as<SelectedRows>();
  copy.rows = rows->rows;
  copy.height = rows->height;
  return copy.value.copy_from(rows->value);
}

Tensor* tensor_of(Value& value) {
  auto* const rows = value.get_if<SelectedRows>();
  return rows == nullptr ? value.get_if<Tensor>() : &rows->value;
}

}  // namespace
}  // namespace async_save

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
  spare_.reset();
}

Status AsyncSaver::reserve(const LocalState& state) {
  MILLRACE_RETURN_IF_ERROR(wait());
  for (const LocalTensor& local : state.tensors) {
    const auto* const tensor = local.value == nullptr ? nullptr : local.value->get_if<Tensor>();
    if (tensor == nullptr || !tensor->initialized()) continue;
    Tensor& copy = values_[local.name].as<Tensor>();
    const auto layout = async_save::is_elsewhere(*tensor) ? nullptr : tensor->layout();
    MILLRACE_RETURN_IF_ERROR(copy.resize(tensor->dtype(), tensor->dims(), layout));
  }
  try {
    thread_ = std::thread([this] {
      for (auto& [name, value] : values_) {
        auto* const copy = value.get_if<Tensor>();
        if (copy == nullptr || copy->numel() == 0) continue;
        std::memset(copy->raw(), 0, static_cast<size_t>(copy->storage_bytes()));
      }
    });
  } catch (const std::exception&) {
    // without a thread, the first save touches the memory
  }
  return Ok();
}

Status AsyncSaver::copy(const LocalState& state, bool lazily) {
  using namespace async_save;
  state_ = {};
  std::map<std::string, Value> kept = std::exchange(values_, {});
  records_.clear();
  pending_.clear();
  for (const LocalTensor& local : state.tensors) {
    Location location;
    location.var = local.name;
    if (local.value == nullptr || !local.value->initialized())
      return InvalidArgument("the var has no value to save").at(std::move(location));
    Value& value = values_[local.name];
    if (const auto old = kept.find(local.name); old != kept.end()) value = std::move(old->second);
    const auto* const tensor = local.value->get_if<Tensor>();
    if (lazily && tensor != nullptr && !is_elsewhere(*tensor)) {
      pending_.push_back({local.value, &value, tensor->bytes()});
    } else {
      MILLRACE_RETURN_IF_ERROR(copy_value(*local.value, value).at(std::move(location)));
    }
    LocalTensor copied = local;
    copied.value = &value;
    state_.tensors.push_back(std::move(copied));
  }
  order_pending();
  for (const LocalRecord& record : state.records) {
    std::string& bytes = records_[record.name];
    bytes = record.bytes;
    state_.records.push_back({record.name, bytes});
  }
  state_.user = state.user;
  return Ok();
}

void AsyncSaver::order_pending() {
  // Small tensors first: counters and statistics, which are changed first, are small.
  std::ranges::stable_sort(pending_, {}, &Pending::bytes);
  places_.clear();
  for (size_t i = 0; i < pending_.size(); ++i) places_[pending_[i].from] = i;
  stages_ = std::make_unique<std::atomic<Stage>[]>(pending_.size());
  copy_failure_ = Ok();
}

bool AsyncSaver::take_pending(size_t index) {
  Stage open = Stage::kOpen;
  return stages_[index].compare_exchange_strong(open, Stage::kTaken);
}

void AsyncSaver::copy_pending(size_t index) {
  Status status = without_exceptions("in the copy of a checkpoint", [&] {
    return async_save::copy_value(*pending_[index].from, *pending_[index].to);
  });
  {
    const std::lock_guard lock(mutex_);
    if (!status.ok() && copy_failure_.ok()) copy_failure_ = std::move(status);
    stages_[index] = Stage::kDone;
  }
  progress_.notify_all();
}

void AsyncSaver::wait_for_pending(size_t index) {
  if (take_pending(index)) return copy_pending(index);
  if (stages_[index] == Stage::kDone) return;
  std::unique_lock lock(mutex_);
  progress_.wait(lock, [&] { return stages_[index] == Stage::kDone; });
}

Status AsyncSaver::copy_all_pending() {
  for (size_t i = 0; i < pending_.size(); ++i)
    if (take_pending(i)) copy_pending(i);
  // The caller may still be copying some of them in before_change().
  for (size_t i = 0; i < pending_.size(); ++i) wait_for_pending(i);
  copying_.store(false, std::memory_order_release);
  const std::lock_guard lock(mutex_);
  return std::exchange(copy_failure_, Ok());
}

void AsyncSaver::before_change(const Value* value) {
  if (!copying()) return;
  if (const auto place = places_.find(value); place != places_.end())
    wait_for_pending(place->second);
}

// Each converted tensor leaves its old memory as the spare for the next one.
Status AsyncSaver::make_copies_plain() {
  for (auto& [name, value] : values_) {
    Tensor* const copy = async_save::tensor_of(value);
    if (copy == nullptr || copy->layout() == nullptr) continue;
    MILLRACE_RETURN_IF_ERROR(copy_plain(*copy, spare_));
    copy->swap(spare_);
  }
  return Ok();
}

Status AsyncSaver::prepare(const LocalState& state, IfBusy if_busy, bool lazily) {
  if (if_busy == IfBusy::kFail && busy())
    return {StatusCode::kResource, "an earlier checkpoint is still being written"};
  MILLRACE_RETURN_IF_ERROR(wait());
  return copy(state, lazily);
}

Status AsyncSaver::run(Save save) {
  running_ = true;
  copying_ = !pending_.empty();
  try {
    thread_ = std::thread([this, save = std::move(save)] {
      Status outcome = copy_all_pending();
      if (outcome.ok()) {
        outcome = without_exceptions("while the checkpoint is written", [&]() -> Status {
          MILLRACE_RETURN_IF_ERROR(make_copies_plain());
          return save(state_);
        });
      }
      const std::lock_guard lock(mutex_);
      outcome_ = std::move(outcome);
      running_ = false;
    });
  } catch (const std::exception& error) {
    running_ = false;
    copying_ = false;
    return {StatusCode::kResource,
            fmt::format("no thread to write the checkpoint: {}", error.what())};
  }
  return Ok();
}

Status AsyncSaver::start(const LocalState& state, Save save, IfBusy if_busy) {
  MILLRACE_RETURN_IF_ERROR(prepare(state, if_busy, false));
  return run(std::move(save));
}

Status AsyncSaver::start_lazily(const LocalState& state, Save save, IfBusy if_busy) {
  MILLRACE_RETURN_IF_ERROR(prepare(state, if_busy, true));
  return run(std::move(save));
}

}  // namespace millrace::io

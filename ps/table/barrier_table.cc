#include "ps/table/barrier_table.h"

#include <algorithm>
#include <utility>

#include "framework/base/errors.h"

namespace millrace::ps {

BarrierTable::BarrierTable(int trainers, Completed completed)
    : completed_(std::move(completed)), trainers_(trainers) {
  for (int trainer = 0; trainer < trainers; ++trainer) live_.insert(trainer);
}

Status BarrierTable::arrive(CommBarrier kind, int trainer, int64_t phase, Deadline deadline) {
  std::unique_lock lock(mutex_);
  MILLRACE_RETURN_IF_ERROR(Status(ended_));
  if (!live_.contains(trainer))
    return InvalidArgument("barrier '{}': trainer {} is unknown or has left", barrier_name(kind),
                           trainer);
  Barrier& barrier = barriers_[kind];
  if (joined_.contains(trainer))
    phase += barrier.ahead.try_emplace(trainer, barrier.phase - phase).first->second;
  if (phase < barrier.phase) return Ok();
  if (phase > barrier.phase && resumed_) go_on_to(barrier, phase);
  if (phase > barrier.phase)
    return InvalidArgument("barrier '{}': trainer {} is at phase {}, expected {}",
                           barrier_name(kind), trainer, phase, barrier.phase);
  barrier.arrived.insert(trainer);
  finish_if_complete(kind, barrier);
  const int64_t left = left_[trainer];
  const bool in_time = pauses_.wait_until(changed_, lock, deadline, [&] {
    return barrier.phase != phase || !ended_.ok() || left_[trainer] != left;
  });
  // the phase may be over because the others no longer wait for this trainer
  if (left_[trainer] != left)
    return {StatusCode::kDistributed, fmt::format("barrier '{}': trainer {} was lost or has left",
                                                  barrier_name(kind), trainer)};
  if (in_time) return barrier.phase != phase ? barrier.result : ended_;
  return {StatusCode::kDistributed, fmt::format("barrier '{}', phase {}: no arrival of trainer {}",
                                                barrier_name(kind), phase, missing(barrier))};
}

void BarrierTable::finish_if_complete(CommBarrier kind, Barrier& barrier) {
  const auto has_arrived = [&](int trainer) { return barrier.arrived.contains(trainer); };
  if (barrier.arrived.empty() || !std::all_of(live_.begin(), live_.end(), has_arrived)) return;
  barrier.result = completed_ ? completed_(kind, barrier.arrived) : Ok();
  barrier.arrived.clear();
  ++barrier.phase;
  changed_.notify_all();
}

void BarrierTable::go_on_to(Barrier& barrier, int64_t phase) {
  barrier.arrived.clear();
  barrier.result = Ok();
  barrier.phase = phase;
  changed_.notify_all();
}

void BarrierTable::resume() {
  const std::lock_guard lock(mutex_);
  resumed_ = true;
}

Status BarrierTable::leave(int trainer) {
  const std::lock_guard lock(mutex_);
  if (live_.erase(trainer) == 0) return Ok();
  ++left_[trainer];
  changed_.notify_all();
  for (auto& [kind, barrier] : barriers_) {
    barrier.arrived.erase(trainer);
    finish_if_complete(kind, barrier);
  }
  return Ok();
}

Status BarrierTable::join(int trainer) {
  const std::lock_guard lock(mutex_);
  if (trainer < 0 || trainer >= trainers_) return InvalidArgument("trainer {} is unknown", trainer);
  live_.insert(trainer);
  joined_.insert(trainer);
  for (auto& [kind, barrier] : barriers_) barrier.ahead.erase(trainer);
  return Ok();
}

void BarrierTable::end(Status why) {
  const std::lock_guard lock(mutex_);
  ended_ = std::move(why);
  changed_.notify_all();
}

int BarrierTable::live() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(live_.size());
}

std::string BarrierTable::missing(const Barrier& barrier) const {
  std::string list;
  for (const int trainer : live_) {
    if (barrier.arrived.contains(trainer)) continue;
    if (!list.empty()) list += ", ";
    list += std::to_string(trainer);
  }
  return list;
}

}  // namespace millrace::ps

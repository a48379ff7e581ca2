#include "ps/server/sync_steps.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "framework/base/errors.h"
#include "framework/names.h"
#include "ps/kill_points.h"
#include "ps/table/table_handler.h"
#include "ps/values.h"

namespace millrace::ps {
namespace {

Status wrong_phase(int trainer, const char* does, const char* instead, int64_t step) {
  return {StatusCode::kDistributed,
          fmt::format("trainer {} {} in step {}, expected {}", trainer, does, step, instead)};
}

// Scales the sum to a mean over the trainers that arrived; replaces the scale op of the program.
template <typename T>
void multiply(Tensor& tensor, double factor) {
  for (T& value : tensor.values<T>()) value *= static_cast<T>(factor);
}

Status scale(Value& value, double factor) {
  auto* const rows = value.get_if<SelectedRows>();
  Tensor* const tensor = rows != nullptr ? &rows->value : value.get_if<Tensor>();
  if (tensor == nullptr || !tensor->initialized()) return Ok();
  switch (tensor->dtype()) {
    case DType::kFloat32:
      multiply<float>(*tensor, factor);
      return Ok();
    case DType::kFloat64:
      multiply<double>(*tensor, factor);
      return Ok();
    default:
      return Unimplemented("the mean over fewer than all trainers is not implemented for {}",
                           describe(*tensor));
  }
}

}  // namespace

StatusOr<std::unique_ptr<SyncSteps>> SyncSteps::create(ServerCore& core) {
  std::unique_ptr<SyncSteps> steps(new SyncSteps(core));
  steps->own_names_.resize(static_cast<size_t>(core.plan.trainers));
  MILLRACE_RETURN_IF_ERROR(steps->add_merges());
  steps->add_plain_inputs();
  return steps;
}

Status SyncSteps::add_merges() {
  for (const std::vector<int32_t>& group : core_.plan.groups) {
    for (const int32_t index : group) {
      auto merged = std::make_unique<MergedBlock>();
      merged->block = core_.block(index);
      if (index == core_.plan.lr_block ||
          !find_merge(merged->block->block(), core_.plan.trainers, merged->merge))
        continue;
      merged->arrived.assign(merged->merge.slots.size(), 0);
      for (int t = 0; t < core_.plan.trainers; ++t) {
        const std::string& name = merged->merge.slots[static_cast<size_t>(t)];
        MILLRACE_ASSIGN_OR_RETURN(const ServerVar* const var, core_.find_var(name));
        merged->slots.push_back(var);
        const Slot slot{merged.get(), var, t};
        if (!slots_.try_emplace(name, slot).second)
          return InvalidProgram("block {} merges '{}', which another block also merges", index,
                                name);
        // in a job with one trainer, gradients are sent under their plain names
        own_names_[static_cast<size_t>(t)].try_emplace(merged->merge.out, slot);
      }
      merged_.push_back(std::move(merged));
    }
  }
  return Ok();
}

// Adds vars that are sent but not merged: the parameter is replaced by what one federated trainer
// sends.
void SyncSteps::add_plain_inputs() {
  for (const std::string& name : core_.plan.inputs) {
    const auto var = core_.vars().find(name);
    if (var == core_.vars().end() || slots_.count(name) > 0) continue;
    const Slot slot{nullptr, &var->getValue(), -1};
    if (!core_.plan.federated) {
      slots_.try_emplace(name, slot);
      continue;
    }
    for (int t = 0; t < core_.plan.trainers; ++t)
      own_names_[static_cast<size_t>(t)].try_emplace(names::federated(name, t), slot);
  }
}

StatusOr<SyncSteps::Slot> SyncSteps::find_slot(int trainer, const std::string& name) const {
  auto found = slots_.find(name);
  if (found == slots_.end()) {
    const auto& own = own_names_[static_cast<size_t>(trainer)];
    found = own.find(name);
    if (found == own.end())
      return NotFound("this server ({}) does not accept '{}' from trainer {}", core_.plan.endpoint,
                      name, trainer);
  }
  const Slot& slot = found->getValue();
  if (slot.trainer >= 0 && slot.trainer != trainer) {
    return InvalidArgument("trainer {} sends '{}', which belongs to trainer {}", trainer, name,
                           slot.trainer);
  }
  return slot;
}

Status SyncSteps::send(const Request& request, llvm::ArrayRef<RequestItem> items) {
  const int trainer = request.caller.trainer;
  {
    const std::lock_guard lock(core_.mutex);
    MILLRACE_RETURN_IF_ERROR(core_.check_served(request));
    if (!core_.trainers.at(trainer).may_send())
      return wrong_phase(trainer, "sends gradients", "its fetch barrier first", applied_)
          .with_hint("run the startup program of the trainer, which fetches parameters");
  }
  for (const RequestItem& item : items) {
    if (core_.options.tables != nullptr && TableSteps::is_item(item.name)) {
      MILLRACE_RETURN_IF_ERROR(core_.options.tables->steps().keep(trainer, item));
      continue;
    }
    MILLRACE_ASSIGN_OR_RETURN(const Slot slot, find_slot(trainer, item.name));
    MILLRACE_RETURN_IF_ERROR(ServerCore::store(item, *slot.var));
    if (slot.merged == nullptr) continue;
    const std::lock_guard lock(core_.mutex);
    // what a lost trainer has sent was dropped, and must not come back
    MILLRACE_RETURN_IF_ERROR(core_.check_served(request));
    slot.merged->arrived[static_cast<size_t>(trainer)] = 1;
  }
  return Ok();
}

Status SyncSteps::arrive(const Request& request) {
  const int trainer = request.caller.trainer;
  const std::lock_guard lock(core_.mutex);
  MILLRACE_RETURN_IF_ERROR(core_.check_served(request));
  Trainer& who = core_.trainers.at(trainer);
  if (!who.may_send())
    return wrong_phase(trainer, "reached the send barrier", "its fetch barrier first", applied_);
  for (const auto& merged : merged_) {
    if (merged->arrived[static_cast<size_t>(trainer)] != 0) continue;
    Location place;
    place.var = merged->merge.slots[static_cast<size_t>(trainer)];
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("trainer {} has not sent this var in step {}", trainer, applied_))
        .at(std::move(place));
  }
  ++who.sent;
  core_.changed.notify_all();
  return Ok();
}

// A replacement that was placed at a later step has sent nothing yet, also if it is lost meanwhile.
bool SyncSteps::has_arrived(int trainer) const {
  const Trainer& who = core_.trainers.at(trainer);
  return who.sent > applied_ && !who.is_placed;
}

// Another server may lack the gradients of this step, and the trainer may be gone before it sends
// them there. What a lost trainer takes part in was agreed on.
bool SyncSteps::is_doubtful(int trainer) const {
  const Trainer& who = core_.trainers.at(trainer);
  return core_.options.elastic && who.confirmed <= applied_ && who.life != Trainer::Life::kLost;
}

void SyncSteps::finish(int trainer, bool sent_everywhere) {
  Trainer& who = core_.trainers.at(trainer);
  if (sent_everywhere) {
    who.confirmed = who.sent;
  } else if (core_.options.elastic && has_arrived(trainer) && is_doubtful(trainer)) {
    who.sent = applied_;
  }
  drop_partial(trainer);
}

int64_t SyncSteps::applied_with(int trainer) const {
  const Trainer& who = core_.trainers.at(trainer);
  return who.is_placed ? -1 : std::min(who.sent, applied_);
}

bool SyncSteps::end_at(int trainer, int64_t step) {
  Trainer& who = core_.trainers.at(trainer);
  if (who.is_placed || step < 0) return true;
  if (step > who.sent) return false;
  who.sent = std::max(step, applied_with(trainer));
  return who.sent == step;
}

// The step may change meanwhile: a replacement that all others have left behind begins earlier.
Status SyncSteps::wait_applied(const Request& request, bool sent_everywhere,
                               std::unique_lock<std::mutex>& lock, Deadline deadline) {
  const int trainer = request.caller.trainer;
  MILLRACE_RETURN_IF_ERROR(core_.check_served(request));
  Trainer& who = core_.trainers.at(trainer);
  if (sent_everywhere && who.confirmed != who.sent) {
    who.confirmed = who.sent;
    core_.changed.notify_all();
  }
  const auto is_applied = [&] { return applied_ >= core_.trainers.at(trainer).sent; };
  if (!is_applied()) reach(core_.options.kill_point, "server/in-barrier");
  return core_.wait_for(
      request, lock, deadline, [&] { return is_applied() && !held_; },
      [&] {
        return fmt::format("the gradients of step {} of {}", applied_, describe_late(core_.now()));
      });
}

std::string SyncSteps::describe_late(Clock::time_point now) const {
  constexpr size_t kMostNames = 4;
  std::string text;
  for (int t = 0; t < core_.trainers.count(); ++t) {
    const Trainer& trainer = core_.trainers.at(t);
    if (!trainer.is_expected() || trainer.sent > applied_) continue;
    text += (text.empty() ? "" : ", ") + core_.trainers.describe(t, now);
    std::vector<std::string> missing;
    for (const auto& merged : merged_) {
      const auto slot = static_cast<size_t>(t);
      if (merged->arrived[slot] == 0) missing.push_back(merged->merge.slots[slot]);
    }
    if (missing.empty()) continue;
    const size_t more = missing.size() - std::min(missing.size(), kMostNames);
    missing.resize(missing.size() - more);
    text += fmt::format(" with {}{}", fmt::join(missing, ", "),
                        more > 0 ? fmt::format(" and {} more", more) : "");
  }
  return text;
}

Status SyncSteps::fetched(const Request& request) {
  MILLRACE_RETURN_IF_ERROR(core_.check_served(request));
  const int trainer = request.caller.trainer;
  Trainer& who = core_.trainers.at(trainer);
  if (who.may_send())
    return wrong_phase(trainer, "reached the fetch barrier", "its send barrier first", applied_);
  ++who.fetched;
  who.is_placed = false;
  core_.changed.notify_all();
  return Ok();
}

void SyncSteps::drop_partial(int trainer) {
  if (has_arrived(trainer)) return;
  for (const auto& merged : merged_) merged->arrived[static_cast<size_t>(trainer)] = 0;
  if (core_.options.tables != nullptr) core_.options.tables->steps().drop(trainer);
}

void SyncSteps::restore(int64_t applied) {
  applied_ = applied;
  core_.trainers.go_back(applied);
  for (const auto& merged : merged_)
    std::fill(merged->arrived.begin(), merged->arrived.end(), char{0});
  if (core_.options.tables == nullptr) return;
  for (int t = 0; t < core_.trainers.count(); ++t) core_.options.tables->steps().drop(t);
}

void SyncSteps::place(int trainer, int64_t step) {
  Trainer& who = core_.trainers.at(trainer);
  who.sent = who.fetched = who.confirmed = step;
  who.is_placed = true;
  who.life = step > applied_ ? Trainer::Life::kJoining : Trainer::Life::kLive;
  drop_partial(trainer);
  admit_joining();
  core_.changed.notify_all();
}

void SyncSteps::admit_joining() {
  for (int t = 0; t < core_.trainers.count(); ++t) {
    Trainer& trainer = core_.trainers.at(t);
    if (trainer.life != Trainer::Life::kJoining || !trainer.is_placed) continue;
    const bool alone = core_.trainers.all_done() && !is_ready();
    if (alone && trainer.sent > applied_)
      trainer.sent = trainer.fetched = trainer.confirmed = applied_;
    if (trainer.sent > applied_) continue;
    trainer.life = Trainer::Life::kLive;
    core_.changed.notify_all();
  }
}

bool SyncSteps::is_ready() const {
  bool any_expected = false;
  for (int t = 0; t < core_.trainers.count(); ++t) {
    if (core_.trainers.at(t).life == Trainer::Life::kJoining) continue;
    if (core_.trainers.at(t).life == Trainer::Life::kSuspected) return false;
    if (has_arrived(t)) {
      if (is_doubtful(t)) return false;
      any_expected = true;
    } else if (core_.trainers.at(t).is_expected()) {
      return false;
    }
  }
  return any_expected;
}

Status SyncSteps::apply(std::unique_lock<std::mutex>& lock) {
  std::vector<char> arrivals;
  for (int t = 0; t < core_.trainers.count(); ++t) {
    const bool joins = core_.trainers.at(t).life == Trainer::Life::kJoining;
    arrivals.push_back(has_arrived(t) && !joins ? 1 : 0);
  }
  applying_ = true;
  const int64_t applied = applied_;
  lock.unlock();
  // no trainer is sending now: all expected trainers have arrived, and wait or fetch
  reach(core_.options.kill_point, "server/before-apply");
  Status status;
  for (const std::vector<int32_t>& group : core_.plan.groups) {
    status = core_.run_group(group, [&](ServerBlock& block) { return run_block(block, arrivals); });
    if (!status.ok()) break;
  }
  if (status.ok() && core_.options.tables != nullptr)
    status = core_.options.tables->steps().apply(arrivals, applied + 1);
  reach(core_.options.kill_point, "server/after-apply");
  lock.lock();
  applying_ = false;
  if (!status.ok()) return std::move(status).with_note(fmt::format("in step {}", applied_));
  ++applied_;
  for (const auto& merged : merged_)
    std::fill(merged->arrived.begin(), merged->arrived.end(), char{0});
  admit_joining();
  core_.changed.notify_all();
  return Ok();
}

Status SyncSteps::run_block(ServerBlock& block, llvm::ArrayRef<char> arrivals) {
  const BlockLock lock = block.lock();
  const auto count = std::count(arrivals.begin(), arrivals.end(), char{1});
  const auto merged = std::find_if(merged_.begin(), merged_.end(),
                                   [&](const auto& each) { return each->block == &block; });
  if (merged == merged_.end() || count == static_cast<int64_t>(arrivals.size())) return block.run();
  MILLRACE_RETURN_IF_ERROR(fill_absent(**merged, arrivals));
  if (!(*merged)->merge.averages) return block.run();
  MILLRACE_RETURN_IF_ERROR(block.run_first(1));
  MILLRACE_RETURN_IF_ERROR(
      scale(*block.find((*merged)->merge.out), 1.0 / static_cast<double>(count)));
  return block.run_after(2);
}

// Fills the slots of absent trainers with zeros, so that they add nothing to the sum.
Status SyncSteps::fill_absent(const MergedBlock& merged, llvm::ArrayRef<char> arrivals) {
  const size_t first =
      static_cast<size_t>(std::find(arrivals.begin(), arrivals.end(), char{1}) - arrivals.begin());
  const Value& like = *merged.slots[first]->value;
  for (size_t t = 0; t < arrivals.size(); ++t) {
    if (arrivals[t] != 0) continue;
    Value& slot = *merged.slots[t]->value;
    if (const auto* const rows = like.get_if<SelectedRows>()) {
      auto& to = slot.as<SelectedRows>();
      to.height = rows->height;
      to.rows.clear();
      Dims dims(rows->value.dims().begin(), rows->value.dims().end());
      if (!dims.empty()) dims[0] = 0;
      MILLRACE_RETURN_IF_ERROR(to.value.resize(rows->value.dtype(), dims));
    } else if (const auto* const tensor = like.get_if<Tensor>()) {
      MILLRACE_RETURN_IF_ERROR(fill_zeros(slot.as<Tensor>(), tensor->dtype(), tensor->dims()));
    }
  }
  return Ok();
}

}  // namespace millrace::ps

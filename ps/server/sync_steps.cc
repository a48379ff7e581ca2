#include "ps/server/sync_steps.h"

#include <algorithm>

#include <fmt/ranges.h>
#include <llvm/ADT/ScopeExit.h>

#include "framework/base/errors.h"
#include "framework/names.h"
#include "ps/kill_points.h"
#include "ps/table/table_handler.h"
#include "ps/values.h"

namespace millrace::ps {
namespace {

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
    if (Status status = rules_.check_sends(trainer, "sends gradients"); !status.ok())
      return std::move(status).with_hint(
          "run the startup program of the trainer, which fetches parameters");
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
  MILLRACE_RETURN_IF_ERROR(rules_.check_sends(trainer, "reached the send barrier"));
  for (const auto& merged : merged_) {
    if (merged->arrived[static_cast<size_t>(trainer)] != 0) continue;
    Location place;
    place.var = merged->merge.slots[static_cast<size_t>(trainer)];
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("trainer {} has not sent this var in step {}", trainer, applied()))
        .at(std::move(place));
  }
  MILLRACE_RETURN_IF_ERROR(rules_.arrive(trainer));
  core_.changed.notify_all();
  return Ok();
}

// The step may change meanwhile: a replacement that all others have left behind begins earlier.
Status SyncSteps::wait_applied(const Request& request, bool sent_everywhere,
                               std::unique_lock<std::mutex>& lock, Deadline deadline) {
  const int trainer = request.caller.trainer;
  MILLRACE_RETURN_IF_ERROR(core_.check_served(request));
  if (sent_everywhere && rules_.confirm(trainer)) core_.changed.notify_all();
  if (applied() < core_.trainers.at(trainer).sent)
    reach(core_.options.kill_point, "server/in-barrier");
  const auto half = half_times_.insert(core_.now() + (deadline - Clock::now()) / 2);
  const auto ended = llvm::make_scope_exit([&] { half_times_.erase(half); });
  return core_.wait_for(
      request, lock, deadline, [&] { return rules_.may_fetch(trainer); },
      [&] {
        return fmt::format("the gradients of step {} of {}", applied(), describe_late(core_.now()));
      });
}

std::string SyncSteps::describe_late(Clock::time_point now) const {
  constexpr size_t kMostNames = 4;
  std::string text;
  for (int t = 0; t < core_.trainers.count(); ++t) {
    const Trainer& trainer = core_.trainers.at(t);
    if (!trainer.is_expected() || trainer.sent > applied()) continue;
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

Status SyncSteps::fetched(const Request& request, bool is_repeat) {
  MILLRACE_RETURN_IF_ERROR(core_.check_served(request));
  MILLRACE_RETURN_IF_ERROR(rules_.fetched(request, is_repeat));
  core_.changed.notify_all();
  return Ok();
}

void SyncSteps::drop_partial(int trainer) {
  if (rules_.has_arrived(trainer)) return;
  for (const auto& merged : merged_) merged->arrived[static_cast<size_t>(trainer)] = 0;
  if (core_.options.tables != nullptr) core_.options.tables->steps().drop(trainer);
}

void SyncSteps::restore(int64_t applied) {
  rules_.restore(applied);
  for (const auto& merged : merged_)
    std::fill(merged->arrived.begin(), merged->arrived.end(), char{0});
  if (core_.options.tables == nullptr) return;
  for (int t = 0; t < core_.trainers.count(); ++t) core_.options.tables->steps().drop(t);
}

Status SyncSteps::settle(const Request& request, const protocol::GoTo& message) {
  MILLRACE_RETURN_IF_ERROR(rules_.settle(request, message, core_.now()));
  drop_partial(request.caller.trainer);
  core_.changed.notify_all();
  return Ok();
}

void SyncSteps::discard(const std::vector<int>& others, int64_t step) {
  rules_.discard(others, step);
  for (const int id : others) drop_partial(id);
  core_.changed.notify_all();
}

Status SyncSteps::apply(std::unique_lock<std::mutex>& lock) {
  const std::vector<char> arrivals = rules_.arrivals();
  counts_.applying = true;
  const int64_t applied = counts_.applied;
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
  counts_.applying = false;
  if (!status.ok()) return std::move(status).with_note(fmt::format("in step {}", applied));
  rules_.advance();
  for (const auto& merged : merged_)
    std::fill(merged->arrived.begin(), merged->arrived.end(), char{0});
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

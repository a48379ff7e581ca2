#include <algorithm>
#include <string>

#include <fmt/format.h>

#include "framework/base/errors.h"
#include "ps/protocol/answers.h"
#include "ps/server/service.h"
#include "ps/table/table_handler.h"
#include "ps/transport/epoch.h"

// What a server of an elastic job does about a lost trainer.
namespace millrace::ps {

Status Service::give_up(int id) {
  const std::string who = core_->trainers.describe(id, core_->now());
  if (steps_ == nullptr) {
    core_->log(fmt::format("{} is lost; the job continues without it", who));
    return lose(id);
  }
  core_->log(fmt::format("{} is lost; the servers agree on its last step", who));
  suspect(id);
  return Ok();
}

// No trainer waits for a step that the lost ones may have taken part in. A server that has not
// applied it stays at an earlier step than the others, so that a later job goes back to that.
Status Service::give_up_suspects() {
  if (steps_ == nullptr || core_->trainers.can_agree()) return Ok();
  for (int id = 0; id < core_->trainers.count(); ++id) {
    if (core_->trainers.at(id).life != Trainer::Life::kSuspected) continue;
    MILLRACE_RETURN_IF_ERROR(end_at(id, steps_->rules().applied_with(id)));
  }
  return Ok();
}

void Service::suspect(int id) {
  steps_->rules().suspect(id);
  core_->changed.notify_all();
}

Status Service::lacks_step_of(int id, int64_t step) const {
  return {StatusCode::kDistributed,
          fmt::format("this server ({}) cannot continue without trainer {}, which is lost: "
                      "another server has applied its update of step {}, this one has not",
                      core_->plan.endpoint, id, step)};
}

Status Service::end_at(int id, int64_t step) {
  const int64_t own = steps_->rules().applied_with(id);
  if (!steps_->rules().end_at(id, step))
    return lacks_step_of(id, std::min(step, std::max<int64_t>(own, 0)));
  core_->log(fmt::format("trainer {} is lost; the job continues without it from step {}", id,
                         std::max(step, own)));
  return lose(id);
}

Status Service::lose(int id) {
  core_->trainers.at(id).life = Trainer::Life::kLost;
  // its arrival must not count for a replacement
  for (auto& [kind, barrier] : barriers_) barrier.arrived.erase(id);
  if (steps_ != nullptr) steps_->drop_partial(id);
  core_->changed.notify_all();
  TableHandler* const tables = core_->options.tables;
  return tables == nullptr ? Ok() : tables->leave(id);
}

// A trainer asks all servers, which stop serving the lost one, and then reports the largest number
// of steps that one of them has applied with it. A server that applied a step knew that all others
// have the gradients, so all can do that many.
Status Service::agree_on_loss(const Call& call, const protocol::Loss& message) {
  if (steps_ == nullptr || !core_->options.elastic)
    return InvalidArgument("this server ({}) is not one of an elastic synchronous job",
                           core_->plan.endpoint);
  const int id = message.trainer;
  if (id >= core_->trainers.count() || id == call.trainer())
    return InvalidArgument("trainer {} reports the loss of trainer {}", call.trainer(), id);
  std::unique_lock lock(core_->mutex);
  // its answer must not leave out steps that it lost when it was started again, and others have
  const bool keeps_all = core_->options.snapshot_durable && core_->options.snapshot_every == 1;
  const bool is_absent = core_->trainers.at(call.trainer()).life == Trainer::Life::kAbsent;
  const bool is_for_any_run = call.request.epoch != 0 && !names_run(call.request.epoch);
  if (!keeps_all && (is_absent || is_for_any_run))
    return {StatusCode::kDistributed,
            fmt::format("trainer {} reports a loss before its hello, to a server without durable "
                        "snapshots of each step",
                        call.trainer())};
  MILLRACE_RETURN_IF_ERROR(core_->wait_for(
      call.request, lock, call.deadline, [&] { return !steps_->is_applying() && !going_back_; },
      [] { return std::string("the end of the step"); }));
  if (steps_->rules().suspect_reported(message)) {
    core_->log(
        fmt::format("trainer {} reports that a server has lost trainer {}", call.trainer(), id));
    core_->changed.notify_all();
  }
  if (!message.steps) {
    put_answer(steps_->rules().answer(message), call.reply);
    return Ok();
  }
  const bool lacks = steps_->rules().lacks_steps_of(message);
  if (!lacks && !steps_->rules().is_open(message)) return Ok();
  Status status = lacks ? lacks_step_of(id, steps_->applied()) : end_at(id, *message.steps);
  if (!status.ok() && core_->failure.ok()) core_->failure = status;
  core_->changed.notify_all();
  return status;
}

}  // namespace millrace::ps

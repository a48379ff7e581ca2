#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "executor/collective/break_group.h"
#include "executor/collective/group_link.h"
#include "executor/parallel/start_values.h"
#include "fleet/runtime/fleet_worker.h"
#include "framework/base/errors.h"

// Workers that average dense gradients by all-reduce: how they meet and begin alike.
namespace millrace::fleet {
namespace worker_group {
namespace {

// What a member of the group is about to do.
struct Member {
  int64_t does;  // a FleetWorker::Meeting
  int64_t step;  // the number of steps that it has made
};

}  // namespace
}  // namespace worker_group

// Afterwards all workers have the dense parameters, state and rates of worker 0.
Status FleetWorker::join_workers() {
  MILLRACE_ASSIGN_OR_RETURN(group_, rings_->world());
  if (group_->size() != workers_ || group_->rank() != index())
    return InvalidArgument(
        "this is trainer {} of {}, but rank {} of the {} processes that exchange dense gradients",
        index(), workers_, group_->rank(), group_->size());
  return share_values();
}

Status FleetWorker::share_values() {
  MILLRACE_RETURN_IF_ERROR(executor::bring_home(scope_));
  MILLRACE_ASSIGN_OR_RETURN(const std::unique_ptr<executor::TrainerLink> link,
                            executor::make_group_link(*group_));
  return executor::share_start_values(*main_, scope_, *link);
}

// Dense parameters of one run and rows of another would be trained together.
Status FleetWorker::check_loaded_together() {
  if (index() != 0) return Ok();
  MILLRACE_ASSIGN_OR_RETURN(const auto answers, table_client_->count_loaded());
  for (size_t i = 0; i < answers.size(); ++i) {
    if ((answers[i].count > 0) == expects_loaded_) continue;
    return InvalidArgument(
               "trainer 0 has {} parameters of a saved job, but the server at {} has {} tables of "
               "one",
               expects_loaded_ ? "loaded" : "no", servers_[i], expects_loaded_ ? "no" : "loaded")
        .with_hint("load the same folder in trainers and servers, or in none");
  }
  return Ok();
}

// Dense parameters of the steps of snapshots stay in the memory of workers, which another run
// lacks.
Status FleetWorker::find_snapshots() {
  MILLRACE_ASSIGN_OR_RETURN(const auto answers, table_client_->count_loaded());
  for (size_t i = 0; i < answers.size(); ++i) {
    if (index() == 0 && answers[i].restored)
      return InvalidArgument(
                 "the server at {} has loaded a snapshot of an earlier run, whose dense parameters "
                 "no trainer has",
                 servers_[i])
          .with_hint(
              "continue from a folder that the job has saved, with new folders of snapshots");
    if (answers[i].snapshot_every != answers.front().snapshot_every)
      return InvalidArgument(
          "the server at {} takes snapshots every {} steps, that at {} every {}: expected the same "
          "in a job with dense_gradients all_reduce",
          servers_[0], answers[0].snapshot_every, servers_[i], answers[i].snapshot_every);
  }
  if (mode_ == ps::CommMode::kSync) dense_every_ = answers.front().snapshot_every;
  return Ok();
}

// Each member calls this once in each step that it begins, and when it goes back by itself or has
// ended, so that the calls of all belong together.
Status FleetWorker::meet(Meeting own) {
  using worker_group::Member;
  std::vector<Member> all(static_cast<size_t>(group_->size()));
  const Member mine{static_cast<int64_t>(own), step_};
  MILLRACE_RETURN_IF_ERROR(group_->all_gather(reinterpret_cast<const std::byte*>(&mine),
                                              sizeof mine,
                                              reinterpret_cast<std::byte*>(all.data())));
  if (own == Meeting::kGoBack) return Ok();
  for (size_t i = 0; i < all.size(); ++i) {
    const bool goes_back = all[i].does == static_cast<int64_t>(Meeting::kGoBack);
    // it went back alone, and a server was lost again before this one did
    const bool apart = dense_every_ > 0 && all[i].does == mine.does && all[i].step != step_;
    if (!goes_back && !apart) continue;
    told_to_go_back_ = true;
    client_->require_settling();
    return Status(StatusCode::kDistributed,
                  fmt::format("trainer {} has gone back to step {}: a server was started again", i,
                              all[i].step));
  }
  const auto other = std::ranges::find_if_not(
      all, [&](const Member& member) { return member.does == mine.does && member.step == step_; });
  if (other == all.end()) return Ok();
  constexpr const char* kDoes[] = {"begins another step after", "goes back after",
                                   "has ended after"};
  return Status(StatusCode::kDistributed,
                fmt::format("trainer {} {} {} steps, trainer {} {} {}; all trainers of a job with "
                            "dense_gradients all_reduce must make the same number of steps",
                            other - all.begin(), kDoes[other->does], other->step, index(),
                            kDoes[mine.does], step_));
}

Status FleetWorker::meet_in_step() {
  return std::exchange(met_in_step_, true) ? Ok() : meet(Meeting::kStep);
}

Status FleetWorker::step(const executor::NamedValues& feeds,
                         const std::vector<std::string>& fetches, std::vector<Value>& results) {
  met_in_step_ = false;
  Status status = run_step(feeds, fetches, results);
  return must_go_back() ? status : abandon(std::move(status));
}

Status FleetWorker::end_steps() {
  MILLRACE_RETURN_IF_ERROR(executor::bring_home(scope_));
  MILLRACE_RETURN_IF_ERROR(communicator_->stop());
  MILLRACE_RETURN_IF_ERROR(client_->complete(true));
  return communicator_->recv(scope_);
}

// A server may be lost while only some members know that all have ended.
Status FleetWorker::wait_for_all() {
  if (!meets_) return end_steps();
  Status status = meet(Meeting::kEnd);
  if (status.ok()) status = end_steps();
  if (status.ok()) status = meet(Meeting::kEnd);
  if (!must_go_back()) meets_ = false;
  return meets_ ? status : abandon(std::move(status));
}

Status FleetWorker::stop() {
  MILLRACE_RETURN_IF_ERROR(executor::bring_home(scope_));
  const bool ran = communicator_->is_running();
  Status flushed = meets_ && group_->state().ok() ? wait_for_all() : communicator_->stop();
  if (!flushed.ok() && meets_ && must_go_back()) return flushed;
  if (flushed.ok() && ran) flushed = communicator_->recv(scope_);
  // servers end when all workers have completed, including those that failed
  const Status completed = client_->complete(false);
  return flushed.ok() ? completed : flushed;
}

Status FleetWorker::abandon(Status status) {
  return executor::break_group(group_, "trainer", std::move(status));
}

}  // namespace millrace::fleet

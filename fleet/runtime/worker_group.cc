#include <utility>

#include "executor/collective/break_group.h"
#include "executor/collective/group_link.h"
#include "executor/parallel/start_values.h"
#include "fleet/runtime/fleet_worker.h"
#include "framework/base/errors.h"

// Workers that average dense gradients by all-reduce: how they meet and begin alike.
namespace millrace::fleet {

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

Status FleetWorker::abandon(Status status) {
  return executor::break_group(group_, "trainer", std::move(status));
}

}  // namespace millrace::fleet

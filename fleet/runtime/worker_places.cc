#include <set>
#include <string>

#include "fleet/runtime/fleet_worker.h"
#include "framework/tensor/layout.h"

// A worker on a GPU: vars in device memory that other code than the main program uses.
namespace millrace::fleet {

Status FleetWorker::bring_rates() {
  if (places_ == nullptr) return Ok();
  std::set<std::string> names = rate_vars_;
  if (!scheduled_rate_.empty()) names.insert(scheduled_rate_);
  for (const StepCounter& counter : step_counters_) names.insert(counter.name);
  for (const std::string& name : names) {
    Value* const value = scope_.find(name);
    auto* const tensor = value == nullptr ? nullptr : value->get_if<Tensor>();
    if (tensor == nullptr || !tensor->initialized()) continue;
    places_->note(*value, name);
    MILLRACE_RETURN_IF_ERROR(make_plain(*tensor));
  }
  return Ok();
}

void FleetWorker::note_received() {
  if (places_ == nullptr) return;
  for (const auto& [key, context] : receives_) {
    for (const std::string& name : context.vars()) {
      if (Value* const value = scope_.find(name)) places_->note(*value, name);
    }
  }
}

}  // namespace millrace::fleet

#include "executor/collective/rings.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "executor/collective/device_group.h"
#include "framework/base/errors.h"

namespace millrace::executor {

bool exchanges_with_ranks(llvm::StringRef op_type) {
  return op_type.startswith("c_allreduce") || op_type.startswith("c_reduce") ||
         op_type == "c_broadcast" || op_type == "c_allgather" || op_type == "allreduce" ||
         op_type == "broadcast" || op_type == "barrier";
}

Rings::Rings(Opener open, std::vector<std::string> endpoints, int rank)
    : open_(std::move(open)), endpoints_(std::move(endpoints)), rank_(rank) {}

StatusOr<CollectiveGroup*> Rings::world() {
  if (!open_error_.ok()) return open_error_;
  if (world_ == nullptr) {
    StatusOr<std::unique_ptr<CollectiveGroup>> opened = open_();
    if (!opened.ok()) {
      open_error_ = opened.status();
      return open_error_;
    }
    world_ = *std::move(opened);
  }
  return world_.get();
}

Status Rings::check_made(int32_t number) const {
  // programs for CPUs make no rings, and ops of old programs name none
  if (rings_.empty() || number == 0 || rings_.contains(number)) return Ok();
  return NotFound("no op has made ring {}", number)
      .with_hint("the startup program makes rings (c_comm_init)");
}

StatusOr<CollectiveGroup*> Rings::ring(int32_t number) {
  MILLRACE_RETURN_IF_ERROR(check_made(number));
  const auto found = rings_.find(number);
  return found == rings_.end() ? world() : StatusOr<CollectiveGroup*>(found->second);
}

StatusOr<CollectiveGroup*> Rings::ring_on_device(int32_t number,
                                                 const std::shared_ptr<gpu::Context>& context) {
  MILLRACE_ASSIGN_OR_RETURN(CollectiveGroup* const host, ring(number));
  std::unique_ptr<CollectiveGroup>& group = on_device_[host];
  if (group == nullptr) {
    MILLRACE_ASSIGN_OR_RETURN(group, make_device_group(*host, context));
  }
  return group.get();
}

const std::vector<std::string>* Rings::find_id(const std::string& var) const {
  const auto found = ids_.find(var);
  return found == ids_.end() ? nullptr : &found->second;
}

// A program may have been made for other machines; then only the number of ranks can be compared.
StatusOr<std::vector<int>> Rings::ranks_of(const std::vector<std::string>& members) {
  MILLRACE_ASSIGN_OR_RETURN(const CollectiveGroup* const all, world());
  std::vector<int> ranks;
  std::string unknown;
  std::set<std::string> seen;
  for (const std::string& member : members) {
    if (!seen.insert(member).second)
      return InvalidArgument("the program names '{}' twice among the members of a ring", member);
    const auto found = std::find(endpoints_.begin(), endpoints_.end(), member);
    if (found == endpoints_.end()) unknown = member;
    ranks.push_back(static_cast<int>(found - endpoints_.begin()));
  }
  if (!members.empty() && unknown.empty()) return ranks;
  if (!members.empty() && members.size() != static_cast<size_t>(all->size())) {
    return InvalidArgument("'{}' is not an endpoint of this job, which has {} ranks", unknown,
                           all->size());
  }
  ranks.resize(static_cast<size_t>(all->size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

Status Rings::make(int32_t number, const std::vector<std::string>& members, int ranks, int rank) {
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<int> places, ranks_of(members));
  MILLRACE_ASSIGN_OR_RETURN(CollectiveGroup* const all, world());
  const auto own = std::find(places.begin(), places.end(), all->rank()) - places.begin();
  if (places.size() != static_cast<size_t>(ranks) || own != rank) {
    return InvalidArgument(
        "the program makes ring {} as rank {} of {}, but this process is rank {} of {} in it",
        number, rank, ranks, own, places.size());
  }
  std::vector<int> everybody(static_cast<size_t>(all->size()));
  std::iota(everybody.begin(), everybody.end(), 0);
  if (places == everybody) {
    rings_[number] = all;
    return Ok();
  }
  std::unique_ptr<CollectiveGroup>& group = groups_[places];
  if (group == nullptr) {
    MILLRACE_ASSIGN_OR_RETURN(group, all->subgroup(places));
  }
  rings_[number] = group.get();
  return Ok();
}

}  // namespace millrace::executor

#include <memory>
#include <mutex>
#include <utility>

#include "api/fleet.h"
#include "api/internals.h"
#include "executor/collective/break_group.h"
#include "executor/collective/open_group.h"
#include "executor/collective/shared_group.h"
#include "framework/base/errors.h"
#include "jobs/run/rank_group.h"

// How the processes of a job that exchange values by collective engines find each other.
namespace millrace::api {
namespace ranks {
namespace {

constexpr std::chrono::milliseconds kJoin{120'000};

// True if the groups were made for this worker's job: its own is not taken, and those that are
// taken are in use. Otherwise that job has ended, perhaps before all of its workers had come.
bool may_take(const std::vector<std::unique_ptr<executor::CollectiveGroup>>& groups,
              const std::vector<std::weak_ptr<void>>& users, const FleetRole& role) {
  if (groups.size() != static_cast<size_t>(role.worker_num)) return false;
  for (size_t i = 0; i < groups.size(); ++i) {
    if (groups[i] == nullptr && users[i].expired()) return false;
  }
  return groups[static_cast<size_t>(role.id)] != nullptr;
}

// The group of a worker whose peers are threads that use the same connection.
StatusOr<std::shared_ptr<executor::Rings>> rings_of_threads(const Connection& connection,
                                                            const FleetRole& role,
                                                            const FleetWorkerOptions& options) {
  if (const char* const given = given_meeting_option(options))
    return InvalidArgument("options.{}: the workers of this connection are in one process", given);
  auto& state = Internals::state(connection);
  const std::lock_guard lock(state.grouping);
  if (!may_take(state.groups, state.users, role)) {
    MILLRACE_ASSIGN_OR_RETURN(
        state.groups, executor::make_thread_groups(role.worker_num, options.deadline.count()));
    state.users.assign(state.groups.size(), {});
  }
  const auto own = static_cast<size_t>(role.id);
  auto group =
      std::make_shared<std::unique_ptr<executor::CollectiveGroup>>(std::move(state.groups[own]));
  auto rings = std::make_shared<executor::Rings>(
      [group]() -> StatusOr<std::unique_ptr<executor::CollectiveGroup>> {
        return std::move(*group);
      },
      std::vector<std::string>(), role.id);
  state.users[own] = rings;
  return rings;
}

StatusOr<executor::GroupEngine> engine_of_workers(const FleetWorkerOptions& options,
                                                  bool encrypts) {
  MILLRACE_ASSIGN_OR_RETURN(const executor::GroupEngine engine,
                            executor::parse_engine(options.engine));
  if (engine == executor::GroupEngine::kMpi || engine == executor::GroupEngine::kNccl)
    return Unimplemented("options.engine {} of workers: expected auto, shm or gloo",
                         options.engine);
  if (encrypts && engine != executor::GroupEngine::kShm)
    return Unimplemented(
        "TLS between workers, which average dense gradients by all-reduce; options.engine shm "
        "keeps "
        "them on this machine");
  return engine;
}

}  // namespace
}  // namespace ranks

const char* given_meeting_option(const FleetWorkerOptions& options) {
  if (options.engine != "auto") return "engine";
  if (!options.rendezvous.empty()) return "rendezvous";
  return options.join_deadline ? "join_deadline" : nullptr;
}

Status tell_ranks(executor::CollectiveGroup* group, Status status) {
  return executor::break_group(group, "rank", std::move(status));
}

Ranks::Ranks(std::shared_ptr<State> state) : state_(std::move(state)) {}
Ranks::Ranks(const Ranks&) = default;
Ranks& Ranks::operator=(const Ranks&) = default;
Ranks::~Ranks() = default;

StatusOr<Ranks> Ranks::open(const RankOptions& options) {
  if (options.rank < -1)
    return InvalidArgument("options.rank: expected -1 or more, found {}", options.rank);
  jobs::RankOptions settings;
  settings.rank = options.rank;
  settings.endpoints = options.endpoints;
  MILLRACE_ASSIGN_OR_RETURN(settings.engine, executor::parse_engine(options.engine));
  settings.rendezvous = options.rendezvous;
  settings.wait_ms = options.wait.count();
  settings.join_ms = options.join.count();
  auto state = std::make_shared<State>();
  MILLRACE_ASSIGN_OR_RETURN(state->rings, jobs::rings_of_job(settings, options.job_key_file));
  if (state->rings != nullptr) {
    MILLRACE_ASSIGN_OR_RETURN(state->group, state->rings->world());
  }
  return Ranks(std::move(state));
}

int Ranks::rank() const {
  return state_->group == nullptr ? 0 : state_->group->rank();
}
int Ranks::size() const {
  return state_->group == nullptr ? 1 : state_->group->size();
}
Status Ranks::barrier() const {
  return state_->group == nullptr ? Ok() : state_->group->barrier();
}

StatusOr<std::shared_ptr<executor::Rings>> rings_of_workers(const Connection& connection,
                                                            const FleetRole& role,
                                                            const FleetWorkerOptions& options) {
  const auto& state = Internals::state(connection);
  if (state.inproc != nullptr) return ranks::rings_of_threads(connection, role, options);
  executor::GroupOptions group;
  MILLRACE_ASSIGN_OR_RETURN(group.engine, ranks::engine_of_workers(options, state.encrypts));
  group.settings.rank = role.id;
  group.settings.size = role.worker_num;
  group.settings.timeout_ms = options.deadline.count();
  group.join_timeout_ms = options.join_deadline.value_or(ranks::kJoin).count();
  group.endpoints = role.worker_endpoints;
  group.folder = options.rendezvous;
  group.job = state.job;
  group.key = state.key;
  if (role.worker_num > 1 && group.endpoints.empty() && group.folder.empty())
    return InvalidArgument(
               "the {} workers of a job with dense_gradients all_reduce cannot find each other",
               role.worker_num)
        .with_hint("give worker_endpoints of the role, which launch sets, or options.rendezvous");
  return std::make_shared<executor::Rings>([group] { return executor::open_group(group); },
                                           group.endpoints, role.id);
}

}  // namespace millrace::api

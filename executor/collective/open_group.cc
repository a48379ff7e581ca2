#include "executor/collective/open_group.h"

#include <algorithm>

#include "executor/collective/engines.h"
#include "executor/collective/shm_segment.h"
#include "executor/collective/sockets.h"
#include "executor/collective/store.h"
#include "framework/base/errors.h"

namespace millrace::executor {
namespace {

constexpr const char* kShmKey = "shm/world";

bool one_host(const std::vector<std::string>& endpoints) {
  const auto host = [](const std::string& endpoint) {
    return endpoint.substr(0, endpoint.rfind(':'));
  };
  return std::all_of(endpoints.begin(), endpoints.end(), [&](const std::string& endpoint) {
    return host(endpoint) == host(endpoints.front());
  });
}

Status check(const GroupOptions& options) {
  const auto [rank, size, timeout_ms] = options.settings;
  if (size < 1) return InvalidArgument("expected at least one rank, found {}", size);
  if (rank < 0 || rank >= size)
    return InvalidArgument("expected a rank in [0, {}), found {}", size, rank);
  if (timeout_ms < 1)
    return InvalidArgument("expected a time-out of 1 ms or more, found {}", timeout_ms);
  if (!options.endpoints.empty() && options.endpoints.size() != static_cast<size_t>(size))
    return InvalidArgument("there are {} ranks, but {} endpoints", size, options.endpoints.size());
  for (const std::string& endpoint : options.endpoints)
    MILLRACE_RETURN_IF_ERROR(parse_endpoint(endpoint).status());
  if (options.endpoints.empty() && options.folder.empty() && size > 1)
    return InvalidArgument("{} ranks cannot find each other without endpoints or a folder", size);
  return Ok();
}

bool is_automatic(GroupEngine engine) {
  return engine == GroupEngine::kAuto || engine == GroupEngine::kNccl;
}

GroupEngine chosen(const GroupOptions& options) {
  if (!is_automatic(options.engine)) return options.engine;
  const bool near = options.settings.size <= SharedBoard::kMostRanks && one_host(options.endpoints);
  return near ? GroupEngine::kShm : GroupEngine::kGloo;
}

StatusOr<std::unique_ptr<Store>> open_store(const GroupOptions& options) {
  if (!options.folder.empty()) return open_file_store(options.folder, options.job);
  return open_tcp_store({.endpoint = options.endpoints.front(),
                         .rank = options.settings.rank,
                         .serve = options.settings.rank == 0,
                         .job = options.job,
                         .key = options.key,
                         .join_timeout_ms = options.join_timeout_ms});
}

// Rank 0 creates the memory and publishes its name; all ranks have joined when the first round is
// over.
StatusOr<std::unique_ptr<CollectiveGroup>> open_shm_group(const GroupOptions& options) {
  const int size = options.settings.size;
  if (size > SharedBoard::kMostRanks)
    return InvalidArgument("engine shm: expected up to {} ranks, found {}", SharedBoard::kMostRanks,
                           size);
  MILLRACE_ASSIGN_OR_RETURN(const std::unique_ptr<Store> store, open_store(options));
  std::shared_ptr<SharedSegment> segment;
  if (options.settings.rank == 0) {
    std::string key;
    MILLRACE_ASSIGN_OR_RETURN(segment, create_shm(size, key));
    MILLRACE_RETURN_IF_ERROR(store->set(kShmKey, key));
  } else {
    MILLRACE_ASSIGN_OR_RETURN(const std::string key, store->get(kShmKey, options.join_timeout_ms));
    MILLRACE_ASSIGN_OR_RETURN(segment, attach_shm(size, options.settings.rank, key));
  }
  GroupSettings joining = options.settings;
  joining.timeout_ms = options.join_timeout_ms;
  // the first meeting waits longer and is the last that needs the store
  MILLRACE_RETURN_IF_ERROR(segment->board().gather(joining.rank, joining.timeout_ms));
  if (joining.rank == 0) segment->complete();
  return std::unique_ptr<CollectiveGroup>(
      std::make_unique<SharedGroup>(options.settings, std::move(segment)));
}

// Rank 0 creates the memory, the others try to attach to it.
StatusOr<std::shared_ptr<SharedSegment>> try_shm(const CollectiveGroup& all, std::string& key) {
  if (all.rank() == 0) return create_shm(all.size(), key);
  if (key.empty()) return Status(StatusCode::kResource, "rank 0 has no shared memory");
  return attach_shm(all.size(), all.rank(), key);
}

// MPI already connects all ranks. If all of them can attach to memory of rank 0 they use it,
// because it is faster than messages at every size. They decide from the results of all ranks, so
// all choose alike.
StatusOr<std::unique_ptr<CollectiveGroup>> open_fastest_mpi(const GroupSettings& settings) {
  MILLRACE_ASSIGN_OR_RETURN(std::unique_ptr<CollectiveGroup> all, open_mpi_group(settings));
  if (all->size() == 1 || all->size() > SharedBoard::kMostRanks) return all;
  std::string key;
  StatusOr<std::shared_ptr<SharedSegment>> segment(std::shared_ptr<SharedSegment>{});
  if (all->rank() == 0) segment = try_shm(*all, key);
  key.resize(SharedSegment::kKeyBytes);
  MILLRACE_RETURN_IF_ERROR(
      all->broadcast(reinterpret_cast<std::byte*>(key.data()), SharedSegment::kKeyBytes, 0));
  key.resize(key.find_last_not_of('\0') + 1);
  if (all->rank() != 0) segment = try_shm(*all, key);
  int32_t reached = segment.ok() ? 1 : 0;
  MILLRACE_RETURN_IF_ERROR(
      all->all_reduce(DType::kInt32, reinterpret_cast<std::byte*>(&reached), 1, Reduction::kMin));
  if (all->rank() == 0 && segment.ok()) (*segment)->complete();
  if (reached == 0) return all;
  GroupSettings own = settings;
  own.rank = all->rank();
  own.size = all->size();
  return std::unique_ptr<CollectiveGroup>(
      std::make_unique<SharedGroup>(own, *std::move(segment), std::move(all)));
}

StatusOr<std::unique_ptr<CollectiveGroup>> open_gloo(const GroupOptions& options) {
  if (!has_gloo()) return open_gloo_group(options.settings, {});
  GlooPlace place;
  place.join_timeout_ms = options.join_timeout_ms;
  if (!options.endpoints.empty()) {
    const auto own = static_cast<size_t>(options.settings.rank);
    MILLRACE_ASSIGN_OR_RETURN(const HostPort parts, parse_endpoint(options.endpoints[own]));
    place.host = parts.host;
  }
  MILLRACE_ASSIGN_OR_RETURN(place.store, open_store(options));
  return open_gloo_group(options.settings, place);
}

}  // namespace

StatusOr<GroupEngine> parse_engine(const std::string& name) {
  if (name == "auto") return GroupEngine::kAuto;
  if (name == "shm") return GroupEngine::kShm;
  if (name == "gloo") return GroupEngine::kGloo;
  if (name == "mpi") return GroupEngine::kMpi;
  if (name == "nccl") return GroupEngine::kNccl;
  return InvalidArgument("expected an engine auto, shm, gloo, mpi or nccl, found '{}'", name);
}

StatusOr<std::unique_ptr<CollectiveGroup>> open_group(const GroupOptions& options) {
  if (is_automatic(options.engine) && options.by_mpirun && has_mpi())
    return open_fastest_mpi(options.settings);
  const GroupEngine engine = chosen(options);
  if (engine == GroupEngine::kMpi) return open_mpi_group(options.settings);
  MILLRACE_RETURN_IF_ERROR(check(options));
  if (options.settings.size == 1) {
    using Groups = std::vector<std::unique_ptr<CollectiveGroup>>;
    MILLRACE_ASSIGN_OR_RETURN(Groups alone, make_thread_groups(1, options.settings.timeout_ms));
    return std::move(alone.front());
  }
  return engine == GroupEngine::kShm ? open_shm_group(options) : open_gloo(options);
}

}  // namespace millrace::executor

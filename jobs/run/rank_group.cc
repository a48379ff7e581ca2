#include "jobs/run/rank_group.h"

#include <fmt/format.h>

#include "framework/base/errors.h"

namespace millrace::jobs {
namespace rank_group {
namespace {

constexpr const char* kNeighbour = "127.0.0.1:0";

}  // namespace
}  // namespace rank_group

executor::GroupOptions group_options(const RankOptions& options, const fleet::JobEnvironment& job) {
  executor::GroupOptions group;
  group.endpoints = options.endpoints.empty() ? job.trainer_endpoints : options.endpoints;
  group.settings.rank = job.rank;
  group.settings.size =
      options.endpoints.empty() ? job.size : static_cast<int>(group.endpoints.size());
  group.engine = options.engine;
  group.settings.timeout_ms = options.wait_ms;
  group.join_timeout_ms = options.join_ms;
  group.folder = options.rendezvous;
  group.by_mpirun = job.by_mpirun;
  group.job = job.job;
  return group;
}

std::shared_ptr<executor::Rings> make_rings(const executor::GroupOptions& options) {
  return std::make_shared<executor::Rings>([options] { return executor::open_group(options); },
                                           options.endpoints, options.settings.rank);
}

StatusOr<std::shared_ptr<const io::JobKey>> read_job_key(const std::string& file) {
  const std::string path = file.empty() ? fleet::job_key_file(fleet::process_environment()) : file;
  if (path.empty()) return std::shared_ptr<const io::JobKey>();
  return io::JobKey::read(path);
}

StatusOr<std::shared_ptr<executor::Rings>> rings_of_job(const RankOptions& options,
                                                        const std::string& job_key) {
  MILLRACE_ASSIGN_OR_RETURN(const fleet::JobEnvironment job,
                            fleet::read_job_environment(fleet::process_environment()));
  executor::GroupOptions group = group_options(options, job);
  if (options.rank >= 0) group.settings.rank = options.rank;
  if (job.role == "PSERVER" || group.settings.size <= 1) return std::shared_ptr<executor::Rings>();
  if (group.settings.rank >= group.settings.size)
    return Status(StatusCode::kUsage,
                  fmt::format("options.rank: expected a rank below {}, found {}",
                              group.settings.size, group.settings.rank));
  MILLRACE_ASSIGN_OR_RETURN(group.key, read_job_key(job_key));
  if (group.endpoints.empty() && !job.master.empty()) {
    // Rank 0 keeps the store in the folder. The other ranks are only known to be on this machine.
    group.endpoints.assign(static_cast<size_t>(group.settings.size), rank_group::kNeighbour);
    group.endpoints.front() = job.master;
  }
  std::shared_ptr<executor::Rings> rings = make_rings(group);
  if (group.engine == executor::GroupEngine::kNccl) rings->use_devices();
  return rings;
}

}  // namespace millrace::jobs

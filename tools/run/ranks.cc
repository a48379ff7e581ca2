#include "tools/run/ranks.h"

#include <algorithm>

#include "fleet/launch/job_environment.h"
#include "framework/base/errors.h"
#include "jobs/run/rank_group.h"
#include "tools/common/numbers.h"
#include "tools/common/switch.h"

namespace millrace::tools {
namespace {

using fleet::JobEnvironment;

constexpr int64_t kLongestMs = int64_t{1} << 40;

StatusOr<jobs::RankOptions> rank_options(const RankFlags& flags) {
  jobs::RankOptions options;
  options.rank = flags.rank;
  options.endpoints = fleet::split_list(flags.endpoints);
  MILLRACE_ASSIGN_OR_RETURN(options.engine, executor::parse_engine(flags.engine));
  options.rendezvous = flags.rendezvous;
  options.wait_ms = flags.wait_ms;
  options.join_ms = flags.join_ms;
  return options;
}

}  // namespace

void add_rank_options(CLI::App& app, RankFlags& flags) {
  app.option_defaults()->group("Several processes");
  app.add_option("--rank", flags.rank, "rank of this process; default: set by its launcher")
      ->check(whole_number(0, 1 << 20))
      ->type_name("N");
  app.add_option("--endpoints", flags.endpoints, "endpoints of all ranks in order; likewise")
      ->type_name("HOST:PORT,...");
  app.add_option(
         "--engine", flags.engine,
         "transport of values: shm (one machine), gloo (TCP), mpi (under mpirun); auto: shm on one "
         "machine, else mpi under mpirun, else gloo; nccl: as auto, but dense tensors of "
         "collective "
         "ops and dense gradients are sent from GPU to GPU")
      ->check(CLI::IsMember({"auto", "shm", "gloo", "mpi", "nccl"}).description(""))
      ->type_name("ENGINE");
  app.add_option("--rendezvous", flags.rendezvous,
                 "new folder that all ranks can access, where they find each other")
      ->type_name("DIR");
  app.add_option("--wait-ms", flags.wait_ms, "maximum wait for another rank")
      ->check(whole_number(int64_t{1}, kLongestMs));
  app.add_option("--join-ms", flags.join_ms, "maximum wait until all ranks have connected")
      ->check(whole_number(int64_t{1}, kLongestMs));
  add_switch(app, "--data-parallel", flags.data_parallel,
             "sum gradients over all ranks; always on for programs of mode nccl2");
}

StatusOr<std::shared_ptr<executor::Rings>> rings_of_job(const RankFlags& flags,
                                                        const std::string& job_key) {
  MILLRACE_ASSIGN_OR_RETURN(const jobs::RankOptions options, rank_options(flags));
  return jobs::rings_of_job(options, job_key);
}

StatusOr<std::shared_ptr<executor::Rings>> rings_of_trainer(
    const RankFlags& flags, const std::string& job_key, const std::vector<std::string>& endpoints,
    int trainer, int trainers) {
  MILLRACE_ASSIGN_OR_RETURN(const JobEnvironment job,
                            fleet::read_job_environment(fleet::process_environment()));
  MILLRACE_ASSIGN_OR_RETURN(const jobs::RankOptions given, rank_options(flags));
  executor::GroupOptions options = jobs::group_options(given, job);
  options.settings.rank = trainer;
  options.settings.size = trainers;
  if (options.endpoints.empty()) options.endpoints = endpoints;
  const bool needs_endpoints = trainers > 1 && options.folder.empty() && !options.by_mpirun;
  if (options.endpoints.empty() ? needs_endpoints
                                : options.endpoints.size() != static_cast<size_t>(trainers))
    return Status(StatusCode::kUsage,
                  fmt::format("trainers that average dense gradients by all-reduce need the "
                              "endpoints of all {}, found {}",
                              trainers, options.endpoints.size()))
        .with_hint(
            "launch sets them; else give --endpoints, or trainer_endpoints in the file of "
            "--fleet");
  MILLRACE_ASSIGN_OR_RETURN(options.key, jobs::read_job_key(job_key));
  std::shared_ptr<executor::Rings> rings = jobs::make_rings(options);
  if (options.engine == executor::GroupEngine::kNccl) rings->use_devices();
  return rings;
}

std::string of_rank(std::string path, int rank) {
  constexpr std::string_view kPlace = "{rank}";
  for (size_t at = 0; (at = path.find(kPlace, at)) != std::string::npos;)
    path.replace(at, kPlace.size(), std::to_string(rank));
  return path;
}

}  // namespace millrace::tools

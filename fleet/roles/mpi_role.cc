#include "fleet/roles/mpi_role.h"

#include <algorithm>
#include <memory>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>

#include "executor/collective/group_gather.h"
#include "executor/collective/open_group.h"
#include "fleet/launch/free_ports.h"
#include "framework/base/errors.h"
#include "io/checkpoint/gather.h"

namespace millrace::fleet {

namespace mpi_role {

std::string machine_name() {
  std::string name(256, '\0');
  if (::gethostname(name.data(), name.size() - 1) != 0) return "localhost";
  return name.substr(0, name.find('\0'));
}

// Where the server of a rank listens.
StatusOr<std::string> endpoint_of(int rank, const std::vector<std::string>& machines,
                                  const std::string& host) {
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<int> ports, free_ports(1));
  const std::string& own = machines[static_cast<size_t>(rank)];
  const bool alone = std::ranges::all_of(machines, [&](const auto& each) { return each == own; });
  return fmt::format("{}:{}", !host.empty() ? host : alone ? "127.0.0.1" : own, ports.front());
}

}  // namespace mpi_role

StatusOr<RoleMaker> mpi_symmetric_role(const EnvironmentReader& read, const std::string& host) {
  MILLRACE_ASSIGN_OR_RETURN(const JobEnvironment job, read_job_environment(read));
  if (!job.by_mpirun)
    return InvalidArgument("a role by ranks of MPI: expected a process that mpirun has started");
  executor::GroupOptions options;
  options.settings.rank = job.rank;
  options.settings.size = job.size;
  options.engine = executor::GroupEngine::kMpi;
  options.by_mpirun = true;
  MILLRACE_ASSIGN_OR_RETURN(const std::unique_ptr<executor::CollectiveGroup> group,
                            executor::open_group(options));
  const std::unique_ptr<io::Gather> ranks = executor::make_group_gather(*group);
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<std::string> machines,
                            ranks->all_gather(mpi_role::machine_name()));
  MILLRACE_ASSIGN_OR_RETURN(const std::string endpoint,
                            mpi_role::endpoint_of(ranks->rank(), machines, host));
  return gather_symmetric_role(*ranks, endpoint);
}

}  // namespace millrace::fleet

#include "jobs/ps/server.h"

#include <utility>

#include "executor/parallel/replica.h"
#include "jobs/ps/fleet_role.h"
#include "jobs/ps/fleet_server_job.h"
#include "jobs/ps/server_job.h"

namespace millrace::jobs {

Server::Settings heter_settings(Server::Settings settings, int number) {
  settings.service.snapshot_root.clear();
  settings.service.seed += static_cast<uint64_t>(number) * executor::kSeedStep;
  return settings;
}

StatusOr<std::unique_ptr<Server>> open_server(const Server::Files& files, Server::Settings settings,
                                              std::shared_ptr<ps::Transport> transport) {
  settings.service.continues = !files.params.empty();
  std::unique_ptr<Server> server;
  if (is_fleet_role(files.program)) {
    MILLRACE_ASSIGN_OR_RETURN(
        server, FleetServerJob::open(files, std::move(settings), std::move(transport)));
  } else {
    MILLRACE_ASSIGN_OR_RETURN(server,
                              ServerJob::open(files, std::move(settings), std::move(transport)));
  }
  return server;
}

}  // namespace millrace::jobs

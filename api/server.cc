#include "api/server.h"

#include <utility>

#include "api/internals.h"
#include "framework/base/errors.h"
#include "jobs/config/slices_file.h"
#include "jobs/ps/server.h"

namespace millrace::api {

ps::ServerOptions service_of(const ServerOptions& options, const Connection& connection) {
  ps::ServerOptions service;
  service.job = connection.job();
  service.threads = options.threads;
  service.seed = options.seed;
  service.start_timeout = options.start_timeout;
  service.silence_timeout = options.silence_timeout;
  service.report_interval = options.report_interval;
  service.dc_lambda = options.dc_lambda;
  service.elastic = options.elastic;
  service.files_root = options.files_root;
  service.snapshot_root = options.snapshot_root;
  service.snapshot_every = options.snapshot_every;
  service.snapshot_interval = options.snapshot_interval;
  service.snapshot_durable = options.snapshot_durable;
  service.log = log_at(sink_of(options.log), LogLevel::kInfo);
  return service;
}

Status check_server_options(const ServerOptions& options) {
  if (options.threads < 1)
    return InvalidArgument("options.threads: expected at least 1, found {}", options.threads);
  if (!options.snapshot_root.empty()) return Ok();
  if (options.snapshot_every == 0 && options.snapshot_interval.count() == 0 &&
      !options.snapshot_durable)
    return Ok();
  return InvalidArgument("options of snapshots have no effect without options.snapshot_root");
}

struct ParameterServer::Parts {
  std::unique_ptr<jobs::Server> server;
  bool served = false;
};

ParameterServer::ParameterServer(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
ParameterServer::ParameterServer(ParameterServer&&) noexcept = default;
ParameterServer& ParameterServer::operator=(ParameterServer&&) noexcept = default;
ParameterServer::~ParameterServer() = default;

StatusOr<ParameterServer> ParameterServer::open(const RoleFiles& files,
                                                const Connection& connection,
                                                const ServerOptions& options) {
  MILLRACE_RETURN_IF_ERROR(check_server_options(options));
  const auto& state = Internals::state(connection);
  if (state.has_directory && !options.endpoint.empty())
    return InvalidArgument("options.endpoint: with etcd it is an option of the connection");
  jobs::Server::Settings settings;
  settings.service = service_of(options, connection);
  settings.endpoint = options.endpoint;
  settings.log = sink_of(options.log);
  settings.loading_threads = options.threads;
  const jobs::Server::Files input{files.program, files.startup,
                                  jobs::find_slices(files.slices, files.program), files.params,
                                  files.load_program};
  auto parts = std::make_unique<Parts>();
  MILLRACE_ASSIGN_OR_RETURN(parts->server,
                            jobs::open_server(input, std::move(settings), state.transport));
  return ParameterServer(std::move(parts));
}

void ParameterServer::on_ready(std::function<void(const std::string&)> callback) {
  parts_->server->on_ready(std::move(callback));
}
Status ParameterServer::serve() {
  if (std::exchange(parts_->served, true))
    return InvalidArgument("serve: this server has served before");
  return parts_->server->serve();
}
void ParameterServer::stop() {
  parts_->server->stop();
}

}  // namespace millrace::api

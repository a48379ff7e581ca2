#include "fleet/runtime/fleet_server.h"

namespace millrace::fleet {

StatusOr<std::unique_ptr<FleetServer>> FleetServer::create(const std::string& description,
                                                           int workers,
                                                           const ServerTableOptions& options) {
  MILLRACE_ASSIGN_OR_RETURN(std::unique_ptr<ps::TableHandler> tables,
                            make_described_tables(description, options));
  return std::unique_ptr<FleetServer>(new FleetServer(std::move(tables), workers));
}

Status FleetServer::handle(const ps::Request& request, ps::Deadline deadline,
                           ps::ReplySink& reply) {
  MILLRACE_RETURN_IF_ERROR(tables_->handle(request, deadline, reply));
  if (request.method != ps::Method::kComplete) return Ok();
  const std::lock_guard lock(mutex_);
  completed_.insert(request.caller.trainer);
  changed_.notify_all();
  return Ok();
}

Status FleetServer::serve(ps::Transport& transport, const std::string& endpoint,
                          const std::function<void(const std::string&)>& on_ready) {
  MILLRACE_ASSIGN_OR_RETURN(const std::unique_ptr<ps::Listener> listener,
                            transport.listen(endpoint, *this));
  if (on_ready) on_ready(listener->endpoint());
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return stopped_ || completed_.size() >= workers_; });
  return Ok();
}

void FleetServer::stop() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  changed_.notify_all();
}

}  // namespace millrace::fleet

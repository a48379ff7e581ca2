#include <utility>

#include <absl/synchronization/mutex.h>
#include <grpc/support/log.h>

#include "framework/base/errors.h"
#include "framework/base/module.h"
#include "ps/transport/endpoint.h"
#include "ps/transport/grpc_parts.h"

namespace millrace::ps {
namespace {

// gRPC logs errors to standard error that calls also return as a status.
void drop_line(gpr_log_func_args* /*line*/) {}

// Some builds of gRPC check for deadlocks at every lock, which costs a tenth of the time.
void spare_lock_checks() {
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
}

class GrpcTransport final : public Transport {
 public:
  explicit GrpcTransport(std::shared_ptr<GrpcShared> shared) : shared_(std::move(shared)) {}

  StatusOr<std::shared_ptr<Channel>> connect(const std::string& endpoint) override {
    MILLRACE_ASSIGN_OR_RETURN(const Endpoint parsed, parse_endpoint(endpoint));
    if (parsed.port == 0)
      return InvalidArgument("endpoint '{}': cannot connect to port 0", endpoint);
    return make_grpc_channel(shared_, endpoint);
  }

  StatusOr<std::unique_ptr<Listener>> listen(const std::string& endpoint,
                                             Handler& handler) override {
    MILLRACE_ASSIGN_OR_RETURN(const Endpoint parsed, parse_endpoint(endpoint));
    MILLRACE_RETURN_IF_ERROR(check_may_listen(parsed, shared_->options));
    MILLRACE_RETURN_IF_ERROR(check_port_free(parsed));
    return make_grpc_listener(shared_, endpoint, handler);
  }

 private:
  std::shared_ptr<GrpcShared> shared_;
};

StatusOr<std::unique_ptr<Transport>> make_transport(const GrpcOptions& options) {
  MILLRACE_ASSIGN_OR_RETURN(std::shared_ptr<GrpcShared> shared, make_grpc_shared(options));
  return std::unique_ptr<Transport>(std::make_unique<GrpcTransport>(std::move(shared)));
}

constexpr GrpcEngine kEngine{&make_transport, &make_guests};

}  // namespace

StatusOr<std::shared_ptr<GrpcShared>> make_grpc_shared(const GrpcOptions& options) {
  if (options.max_streams_per_connection < 1 || options.max_handler_threads < 1)
    return InvalidArgument("streams per connection and handler threads: expected at least 1");
  if (options.keepalive_time.count() < 1 || options.keepalive_timeout.count() < 1)
    return InvalidArgument("keep-alive times: expected at least 1 ms");
  spare_lock_checks();
  if (options.quiet_library) gpr_set_log_function(drop_line);
  auto shared = std::make_shared<GrpcShared>();
  shared->options = options;
  MILLRACE_ASSIGN_OR_RETURN(shared->credentials, make_credentials(options.tls));
  return shared;
}

}  // namespace millrace::ps

extern "C" const char* millrace_module(const void** functions) {
  *functions = &millrace::ps::kEngine;
  return millrace::build_stamp();
}

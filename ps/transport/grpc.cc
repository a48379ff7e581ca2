#include "ps/transport/grpc.h"

#include "framework/base/errors.h"
#include "framework/base/module.h"
#include "ps/transport/endpoint.h"
#include "ps/transport/grpc_engine.h"

namespace millrace::ps {

Status check_may_listen(const Endpoint& endpoint, const GrpcOptions& options) {
  if (options.tls || options.insecure_listen) return Ok();
  MILLRACE_ASSIGN_OR_RETURN(const bool loopback, is_loopback(endpoint));
  if (loopback) return Ok();
  return InvalidArgument(
             "listening on {} without TLS would accept calls of any process that can reach it",
             to_string(endpoint))
      .with_hint(
          "give certificates (--tls-ca, --tls-cert, --tls-key), or --insecure-listen if the "
          "network is closed to others");
}

StatusOr<std::unique_ptr<Transport>> make_grpc_transport(const GrpcOptions& options) {
  MILLRACE_ASSIGN_OR_RETURN(const GrpcEngine* const engine, load_functions<GrpcEngine>("grpc"));
  return engine->make_transport(options);
}

StatusOr<std::unique_ptr<GrpcGuests>> make_grpc_guests(const GrpcOptions& options,
                                                       Handler& handler) {
  MILLRACE_ASSIGN_OR_RETURN(const GrpcEngine* const engine, load_functions<GrpcEngine>("grpc"));
  return engine->make_guests(options, handler);
}

}  // namespace millrace::ps

#include "ps/transport/wire.h"

#include <utility>

#include "framework/base/errors.h"
#include "ps/transport/tcp.h"

namespace millrace::ps {

StatusOr<std::unique_ptr<Transport>> make_wire_transport(WireKind kind,
                                                         const GrpcOptions& options) {
  const bool grpc = kind == WireKind::kGrpc || (kind == WireKind::kAuto && options.tls);
  if (grpc && options.job_key != nullptr)
    return InvalidArgument("calls by gRPC, and so with TLS, carry no proof of the job's key")
        .with_hint("use --job-key with --transport tcp or auto, or TLS without it");
  if (grpc) return make_grpc_transport(options);
  TcpGuests guests = kind == WireKind::kAuto ? TcpGuests::kGrpc : TcpGuests::kNone;
  return make_tcp_transport(options, guests);
}

}  // namespace millrace::ps

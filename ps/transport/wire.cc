#include "ps/transport/wire.h"

#include <utility>

#include "ps/transport/tcp.h"

namespace millrace::ps {

StatusOr<std::unique_ptr<Transport>> make_wire_transport(WireKind kind,
                                                         const GrpcOptions& options) {
  const bool grpc = kind == WireKind::kGrpc || (kind == WireKind::kAuto && options.tls);
  if (grpc) return make_grpc_transport(options);
  TcpGuests guests = kind == WireKind::kAuto ? TcpGuests::kGrpc : TcpGuests::kNone;
  return make_tcp_transport(options, guests);
}

}  // namespace millrace::ps

#pragma once

#include <memory>

#include "framework/base/status.h"
#include "ps/transport/grpc.h"
#include "ps/transport/transport.h"

namespace millrace::ps {

/// The way calls take between processes.
enum class WireKind {
  kAuto,  ///< gRPC where there is TLS; else TCP, and servers answer to gRPC at the same port
  kGrpc,
  kTcp,
};

/// The transport between processes of that kind. Errors: those of make_grpc_transport() and
/// make_tcp_transport().
StatusOr<std::unique_ptr<Transport>> make_wire_transport(WireKind kind, const GrpcOptions& options);

}  // namespace millrace::ps

#pragma once

#include <memory>

#include "framework/base/status.h"
#include "ps/transport/grpc.h"
#include "ps/transport/transport.h"

namespace millrace::ps {

/// Protocol of calls between processes.
enum class WireKind {
  kAuto,  ///< with TLS gRPC, else TCP; servers then also accept gRPC on the same port
  kGrpc,
  kTcp,
};

/// Creates the transport of that kind. Errors: those of make_grpc_transport() and
/// make_tcp_transport(); kInvalidArgument for a job key where calls would travel by gRPC.
StatusOr<std::unique_ptr<Transport>> make_wire_transport(WireKind kind, const GrpcOptions& options);

}  // namespace millrace::ps

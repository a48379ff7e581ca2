#pragma once

#include <memory>

#include "framework/base/status.h"
#include "ps/transport/grpc.h"
#include "ps/transport/transport.h"

namespace millrace::ps {

/// A server without a port of its own, which is given connections. Its end is as that of a
/// listener. Thread-safety: all members.
class GrpcGuests {
 public:
  GrpcGuests() = default;
  GrpcGuests(const GrpcGuests&) = delete;
  GrpcGuests& operator=(const GrpcGuests&) = delete;
  virtual ~GrpcGuests() = default;

  /// Serves a connected socket, which is taken over.
  virtual void take(int fd) = 0;
};

/// Errors: those of make_grpc_transport(); kDistributed where gRPC does not start.
StatusOr<std::unique_ptr<GrpcGuests>> make_grpc_guests(const GrpcOptions& options,
                                                       Handler& handler);

/// What the module "grpc" does (framework/base/module.h).
struct GrpcEngine {
  decltype(&make_grpc_transport) make_transport;
  decltype(&make_grpc_guests) make_guests;
};

}  // namespace millrace::ps

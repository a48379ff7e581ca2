#pragma once

#include <memory>

#include "framework/base/status.h"
#include "ps/transport/grpc.h"
#include "ps/transport/transport.h"

namespace millrace::ps {

/// A gRPC server without a port, which serves connections that others have accepted. Its end is
/// like that of a listener. Thread-safety: all members.
class GrpcGuests {
 public:
  GrpcGuests() = default;
  GrpcGuests(const GrpcGuests&) = delete;
  GrpcGuests& operator=(const GrpcGuests&) = delete;
  virtual ~GrpcGuests() = default;

  /// Serves a connected socket and takes ownership of it.
  virtual void take(int fd) = 0;
};

/// Creates such a server. Errors: those of make_grpc_transport(); kDistributed if gRPC does not
/// start.
StatusOr<std::unique_ptr<GrpcGuests>> make_grpc_guests(const GrpcOptions& options,
                                                       Handler& handler);

/// Entry points of the module "grpc" (framework/base/module.h).
struct GrpcEngine {
  decltype(&make_grpc_transport) make_transport;
  decltype(&make_grpc_guests) make_guests;
};

}  // namespace millrace::ps

#pragma once

#include <memory>

#include "framework/base/status.h"
#include "ps/transport/grpc.h"
#include "ps/transport/transport.h"

namespace millrace::ps {

/// Who else may call at the port of a TCP listener.
enum class TcpGuests { kNone, kGrpc };

/// Calls by plain TCP, with the messages of the gRPC transport: elements go from and into the
/// memory of tensors without a copy in between, and a small call costs one system call each way.
/// Measured against gRPC in bench/ps_wire_bench.cc. One connection carries one call at a time;
/// those that are free are kept.
///
/// Of the options, those about streams, memory quota and the library of gRPC do not count;
/// max_handler_threads is how many connections a server has. There is no encryption: options with
/// TLS are refused. Errors: kInvalidArgument. Thread-safety: the transport and all it makes.
StatusOr<std::unique_ptr<Transport>> make_tcp_transport(const GrpcOptions& options,
                                                        TcpGuests guests = TcpGuests::kNone);

}  // namespace millrace::ps

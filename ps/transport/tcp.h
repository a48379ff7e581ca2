#pragma once

#include <memory>

#include "framework/base/status.h"
#include "ps/transport/grpc.h"
#include "ps/transport/transport.h"

namespace millrace::ps {

/// Other protocols that the port of a TCP listener accepts.
enum class TcpGuests { kNone, kGrpc };

/// Creates a transport for calls by plain TCP, with the messages of the gRPC transport. Elements
/// are read into and written from the memory of tensors without an intermediate copy, and a small
/// call costs one system call in each direction. bench/ps_wire_bench.cc compares it with gRPC. One
/// connection carries one call at a time; idle connections are kept for reuse.
///
/// Options about streams, memory quota and the gRPC library are ignored; max_handler_threads limits
/// the connections of known callers at a server (TcpConnections). There is no encryption: options
/// with TLS are refused. Errors: kInvalidArgument. Thread-safety: the transport and all objects
/// that it creates are thread-safe.
StatusOr<std::unique_ptr<Transport>> make_tcp_transport(const GrpcOptions& options,
                                                        TcpGuests guests = TcpGuests::kNone);

}  // namespace millrace::ps

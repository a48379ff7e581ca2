#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "framework/base/status.h"
#include "ps/transport/buffer_pool.h"
#include "ps/transport/grpc.h"
#include "ps/transport/socket.h"
#include "ps/transport/tcp.h"
#include "ps/transport/transport.h"

/// What the sources of the TCP transport share; for them only.
namespace millrace::ps {

/// Pieces smaller than this are received together.
inline constexpr size_t kReceiveBuffer = size_t{64} << 10U;

/// Everything that a transport shares with what it makes.
struct TcpShared {
  GrpcOptions options;
  BufferPool pool;
  TcpGuests guests = TcpGuests::kNone;
};

std::shared_ptr<Channel> make_tcp_channel(std::shared_ptr<TcpShared> shared,
                                          const Endpoint& endpoint);
StatusOr<std::unique_ptr<Listener>> make_tcp_listener(std::shared_ptr<TcpShared> shared,
                                                      const Endpoint& endpoint, Handler& handler);

}  // namespace millrace::ps

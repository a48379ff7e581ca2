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

/// Shared by the sources of the TCP transport; only for them.
namespace millrace::ps {

/// Pieces of a message that are smaller than this are received through a buffer.
inline constexpr size_t kReceiveBuffer = size_t{64} << 10U;

/// State that a transport shares with the objects that it creates.
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

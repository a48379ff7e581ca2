#include "ps/transport/tcp.h"

#include <utility>

#include "framework/base/errors.h"
#include "ps/transport/endpoint.h"
#include "ps/transport/tcp_parts.h"

namespace millrace::ps {
namespace {

class TcpTransport final : public Transport {
 public:
  explicit TcpTransport(std::shared_ptr<TcpShared> shared) : shared_(std::move(shared)) {}

  StatusOr<std::shared_ptr<Channel>> connect(const std::string& endpoint) override {
    MILLRACE_ASSIGN_OR_RETURN(const Endpoint parsed, parse_endpoint(endpoint));
    if (parsed.port == 0)
      return InvalidArgument("endpoint '{}': cannot connect to port 0", endpoint);
    return make_tcp_channel(shared_, parsed);
  }

  StatusOr<std::unique_ptr<Listener>> listen(const std::string& endpoint,
                                             Handler& handler) override {
    MILLRACE_ASSIGN_OR_RETURN(const Endpoint parsed, parse_endpoint(endpoint));
    MILLRACE_RETURN_IF_ERROR(check_may_listen(parsed, shared_->options));
    return make_tcp_listener(shared_, parsed, handler);
  }

 private:
  std::shared_ptr<TcpShared> shared_;
};

}  // namespace

StatusOr<std::unique_ptr<Transport>> make_tcp_transport(const GrpcOptions& options,
                                                        TcpGuests guests) {
  if (options.tls)
    return InvalidArgument("plain TCP has no encryption").with_hint("use gRPC for mutual TLS");
  if (options.max_handler_threads < 1)
    return InvalidArgument("handler threads: expected at least 1");
  auto shared = std::make_shared<TcpShared>();
  shared->options = options;
  shared->guests = guests;
  return std::unique_ptr<Transport>(std::make_unique<TcpTransport>(std::move(shared)));
}

}  // namespace millrace::ps

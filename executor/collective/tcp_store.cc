#include <chrono>
#include <utility>

#include "executor/collective/sockets.h"
#include "executor/collective/store.h"
#include "executor/collective/tcp_store_server.h"
#include "framework/base/errors.h"

namespace millrace::executor {
namespace {

using Clock = std::chrono::steady_clock;
// Time-out of a request that the server answers immediately.
constexpr int64_t kAnswerMs = 5000;

struct Reply {
  char code = store_wire::kRefused;
  std::string bytes;
};

StatusOr<Reply> read_reply(const Socket& socket, SocketDeadline deadline) {
  std::string header;
  MILLRACE_RETURN_IF_ERROR(read_bytes(socket, header, store_wire::kReplyHeader, deadline));
  const size_t length = store_wire::parse_number(header.data() + 1);
  if (length > Store::kMostValueBytes)
    return Status(StatusCode::kDistributed, "the response is not that of a store");
  Reply reply;
  reply.code = header[0];
  MILLRACE_RETURN_IF_ERROR(read_bytes(socket, reply.bytes, length, deadline));
  return reply;
}

class TcpStore final : public Store {
 public:
  TcpStore(std::string endpoint, std::unique_ptr<TcpStoreServer> server)
      : endpoint_(std::move(endpoint)), server_(std::move(server)) {}

  Status join(const std::string& job, int rank, SocketDeadline deadline) {
    MILLRACE_ASSIGN_OR_RETURN(socket_, connect_to(endpoint_, deadline));
    const std::string hello = std::string(store_wire::kMagic, store_wire::kMagicBytes) +
                              store_wire::number(job.size()) +
                              store_wire::number(static_cast<size_t>(rank)) + job;
    MILLRACE_RETURN_IF_ERROR(write_bytes(socket_, hello, deadline));
    MILLRACE_ASSIGN_OR_RETURN(const Reply reply, read_reply(socket_, deadline));
    if (reply.code == store_wire::kFound) return Ok();
    return {StatusCode::kDistributed,
            fmt::format("{} rejects this rank: {}", endpoint_, reply.bytes)};
  }

  [[nodiscard]] bool is_served_here() const override { return server_ != nullptr; }

  Status set(const std::string& key, const std::string& value) override {
    return ask(store_wire::kSet, key, value, 0).status();
  }

  StatusOr<std::string> get(const std::string& key, int64_t timeout_ms) override {
    MILLRACE_ASSIGN_OR_RETURN(Reply reply, ask(store_wire::kGet, key, "", timeout_ms));
    if (reply.code == store_wire::kFound) return std::move(reply.bytes);
    return Status(StatusCode::kDistributed, fmt::format("waited {} ms for '{}' in the store at {}",
                                                        timeout_ms, key, endpoint_));
  }

  StatusOr<std::optional<std::string>> find(const std::string& key) override {
    MILLRACE_ASSIGN_OR_RETURN(Reply reply, ask(store_wire::kFind, key, "", 0));
    if (reply.code == store_wire::kFound) return std::optional(std::move(reply.bytes));
    return std::optional<std::string>();
  }

 private:
  StatusOr<Reply> ask(store_wire::Op op, const std::string& key, const std::string& value,
                      int64_t timeout_ms) {
    if (key.size() > kMostKeyBytes || value.size() > kMostValueBytes)
      return InvalidArgument("a key of {} bytes with {} bytes is too long for the store",
                             key.size(), value.size());
    StatusOr<Reply> reply = exchange(op, key, value, timeout_ms);
    if (reply.ok() && reply->code != store_wire::kRefused) return reply;
    socket_ = Socket();
    return Status(StatusCode::kDistributed,
                  fmt::format("the store at {} (rank 0) does not respond: {}", endpoint_,
                              reply.ok() ? reply->bytes : reply.status().message()));
  }

  StatusOr<Reply> exchange(store_wire::Op op, const std::string& key, const std::string& value,
                           int64_t timeout_ms) {
    if (!socket_.is_open())
      return Status(StatusCode::kDistributed, "the connection was closed after an earlier failure");
    const auto deadline = Clock::now() + std::chrono::milliseconds(timeout_ms + kAnswerMs);
    const std::string request = std::string(1, op) + store_wire::number(key.size()) +
                                store_wire::number(value.size()) +
                                store_wire::number(static_cast<size_t>(timeout_ms)) + key + value;
    MILLRACE_RETURN_IF_ERROR(write_bytes(socket_, request, deadline));
    return read_reply(socket_, deadline);
  }

  std::string endpoint_;
  std::unique_ptr<TcpStoreServer> server_;
  Socket socket_;
};

}  // namespace

StatusOr<std::unique_ptr<Store>> open_tcp_store(const TcpStoreOptions& options) {
  std::unique_ptr<TcpStoreServer> server;
  if (options.serve) {
    MILLRACE_ASSIGN_OR_RETURN(server, TcpStoreServer::start(options.endpoint, options.job));
  }
  auto store = std::make_unique<TcpStore>(options.endpoint, std::move(server));
  const auto deadline = Clock::now() + std::chrono::milliseconds(options.join_timeout_ms);
  if (Status status = store->join(options.job, options.rank, deadline); !status.ok()) {
    return std::move(status).with_note(
        "rank 0 serves the store by which ranks find each other; has it been started?");
  }
  return std::unique_ptr<Store>(std::move(store));
}

}  // namespace millrace::executor

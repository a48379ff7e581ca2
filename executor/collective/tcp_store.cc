#include <chrono>
#include <random>
#include <utility>

#include <unistd.h>

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

// Eight bytes that no other process of the job has.
std::string number_of_process() {
  static const uint64_t random = (uint64_t{std::random_device{}()} << 32U) | std::random_device{}();
  const uint64_t number = random ^ static_cast<uint64_t>(::getpid());  // processes may be forked
  return store_wire::number(number & 0xffffffffU) + store_wire::number(number >> 32U);
}

class TcpStore final : public Store {
 public:
  TcpStore(std::string endpoint, std::unique_ptr<TcpStoreServer> server)
      : endpoint_(std::move(endpoint)), server_(std::move(server)) {}

  Status join(const TcpStoreOptions& options, SocketDeadline deadline) {
    MILLRACE_ASSIGN_OR_RETURN(socket_, connect_to(endpoint_, deadline));
    std::string nonce(io::JobKey::kBytes, '\0');
    if (options.key != nullptr) {
      MILLRACE_ASSIGN_OR_RETURN(nonce, io::JobKey::nonce());
    }
    const char key = options.key != nullptr ? store_wire::kHasKey : store_wire::kNoKey;
    const std::string hello = std::string(store_wire::kMagic, store_wire::kMagicBytes) +
                              store_wire::number(options.job.size()) +
                              store_wire::number(static_cast<size_t>(options.rank)) +
                              number_of_process() + key + nonce + options.job;
    MILLRACE_RETURN_IF_ERROR(write_bytes(socket_, hello, deadline));
    MILLRACE_ASSIGN_OR_RETURN(Reply reply, read_reply(socket_, deadline));
    if (options.key != nullptr && reply.code != store_wire::kRefused) {
      MILLRACE_RETURN_IF_ERROR(prove(*options.key, nonce, reply, deadline));
      MILLRACE_ASSIGN_OR_RETURN(reply, read_reply(socket_, deadline));
    }
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
  // Answers the challenge of a server that has the key.
  Status prove(const io::JobKey& key, const std::string& nonce, const Reply& challenge,
               SocketDeadline deadline) {
    using Side = io::JobKey::Side;
    const std::string& bytes = challenge.bytes;
    const bool is_whole =
        challenge.code == store_wire::kChallenge && bytes.size() == 2 * io::JobKey::kBytes;
    const std::string theirs = bytes.substr(0, io::JobKey::kBytes);
    if (!is_whole || !key.is_proof(bytes.substr(io::JobKey::kBytes), Side::kServer, nonce, theirs))
      return {StatusCode::kDistributed,
              fmt::format("the store at {} does not have the key of this job", endpoint_)};
    return write_bytes(socket_, key.proof(Side::kCaller, nonce, theirs), deadline);
  }

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
    MILLRACE_ASSIGN_OR_RETURN(server,
                              TcpStoreServer::start(options.endpoint, options.job, options.key));
  }
  auto store = std::make_unique<TcpStore>(options.endpoint, std::move(server));
  const auto deadline = Clock::now() + std::chrono::milliseconds(options.join_timeout_ms);
  if (Status status = store->join(options, deadline); !status.ok()) {
    return std::move(status).with_note(
        "rank 0 serves the store by which ranks find each other; has it been started?");
  }
  return std::unique_ptr<Store>(std::move(store));
}

}  // namespace millrace::executor

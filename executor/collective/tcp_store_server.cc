#include "executor/collective/tcp_store_server.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "executor/collective/store.h"
#include "framework/base/errors.h"

namespace millrace::executor {

using Clock = std::chrono::steady_clock;

namespace store_wire {

std::string number(size_t value) {
  std::string bytes(4, '\0');
  for (size_t i = 0; i < 4; ++i) bytes[i] = static_cast<char>(value >> (8 * i) & 0xffU);
  return bytes;
}

size_t parse_number(const char* bytes) {
  size_t value = 0;
  for (size_t i = 0; i < 4; ++i)
    value |= static_cast<size_t>(static_cast<unsigned char>(bytes[i])) << (8 * i);
  return value;
}

std::string reply(Code code, const std::string& bytes) {
  return std::string(1, code) + number(bytes.size()) + bytes;
}

}  // namespace store_wire

namespace {

constexpr size_t kMostClients = 1024;
constexpr size_t kMostKeys = size_t{1} << 16U;
constexpr size_t kMostJobBytes = 256;
constexpr int kMostPollMs = 200;
constexpr auto kHelloTime = std::chrono::seconds(10);

}  // namespace

struct TcpStoreServer::Request {
  char op = 0;
  std::string key;
  std::string value;
  Clock::time_point deadline;
};

struct TcpStoreServer::Client {
  Socket socket;
  std::string in;
  std::string out;
  bool greeted = false;
  int rank = -1;
  bool closing = false;  ///< close after `out` has been sent
  Clock::time_point since = Clock::now();
  std::optional<Request> waiting;  ///< waiting for a key that is not set yet
};

TcpStoreServer::TcpStoreServer(Socket listener, std::string job)
    : listener_(std::move(listener)), job_(std::move(job)) {}

StatusOr<std::unique_ptr<TcpStoreServer>> TcpStoreServer::start(const std::string& endpoint,
                                                                std::string job) {
  MILLRACE_ASSIGN_OR_RETURN(Socket listener, listen_at(endpoint));
  std::unique_ptr<TcpStoreServer> server(new TcpStoreServer(std::move(listener), std::move(job)));
  int ends[2];
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0)
    return Status(StatusCode::kResource,
                  fmt::format("cannot create a pipe: {}", std::strerror(errno)));
  server->stop_read_ = Socket(ends[0]);
  server->stop_write_ = Socket(ends[1]);
  server->thread_ = std::thread([self = server.get()] { self->serve(); });
  return server;
}

TcpStoreServer::~TcpStoreServer() {
  stop_write_ = Socket();
  if (thread_.joinable()) thread_.join();
}

void TcpStoreServer::serve() {
  for (;;) {
    std::vector<pollfd> entries{{stop_read_.file(), POLLIN, 0}, {listener_.file(), POLLIN, 0}};
    for (const auto& client : clients_) {
      const auto events = static_cast<int16_t>(POLLIN | (client->out.empty() ? 0 : POLLOUT));
      entries.push_back({client->socket.file(), events, 0});
    }
    if (poll(entries.data(), entries.size(), kMostPollMs) < 0 && errno != EINTR) return;
    if (entries[0].revents != 0) return;
    const size_t known = clients_.size();
    if (entries[1].revents != 0) accept_clients();
    for (size_t i = 0; i < known; ++i) {
      Client& client = *clients_[i];
      bool keep = entries[i + 2].revents == 0 || read_from(client);
      keep = keep && (client.greeted || Clock::now() < client.since + kHelloTime);
      if (!keep) client.socket = Socket();
    }
    answer_waiting();
    for (const auto& client : clients_) {
      if (client->socket.is_open() && !write_to(*client)) client->socket = Socket();
    }
    for (const auto& client : clients_) {
      if (!client->socket.is_open() && client->rank >= 0) values_[Store::lost_key(client->rank)];
    }
    std::erase_if(clients_, [](const auto& client) { return !client->socket.is_open(); });
  }
}

void TcpStoreServer::accept_clients() {
  for (;;) {
    Socket socket(accept4(listener_.file(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.is_open()) return;
    if (clients_.size() >= kMostClients) continue;
    const int on = 1;
    setsockopt(socket.file(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    auto client = std::make_unique<Client>();
    client->socket = std::move(socket);
    clients_.push_back(std::move(client));
  }
}

bool TcpStoreServer::read_from(Client& client) {
  char buffer[16384];
  const ssize_t count = recv(client.socket.file(), buffer, sizeof buffer, 0);
  if (count < 0) return errno == EAGAIN || errno == EINTR;
  if (count == 0) return false;
  client.in.append(buffer, static_cast<size_t>(count));
  return take_messages(client);
}

// False if the data violates the protocol.
bool TcpStoreServer::take_messages(Client& client) {
  if (!client.greeted && !take_hello(client)) return false;
  while (client.greeted && !client.closing && client.in.size() >= store_wire::kRequestHeader) {
    const char* const in = client.in.data();
    const size_t key = store_wire::parse_number(in + 1);
    const size_t value = store_wire::parse_number(in + 5);
    const size_t timeout_ms = store_wire::parse_number(in + 9);
    if (key > Store::kMostKeyBytes || value > Store::kMostValueBytes) return false;
    if (client.in.size() < store_wire::kRequestHeader + key + value) return true;
    if (client.waiting) return false;  // one request at a time
    Request request;
    request.op = in[0];
    request.key.assign(in + store_wire::kRequestHeader, key);
    request.value.assign(in + store_wire::kRequestHeader + key, value);
    request.deadline = Clock::now() + std::chrono::milliseconds(timeout_ms);
    client.in.erase(0, store_wire::kRequestHeader + key + value);
    answer(client, request);
  }
  return true;
}

bool TcpStoreServer::take_hello(Client& client) {
  const std::string magic(store_wire::kMagic, store_wire::kMagicBytes);
  const size_t compared = std::min(client.in.size(), magic.size());
  if (client.in.compare(0, compared, magic, 0, compared) != 0) return false;
  const size_t header = magic.size() + 8;
  if (client.in.size() < header) return true;
  const size_t length = store_wire::parse_number(client.in.data() + magic.size());
  if (length > kMostJobBytes) return false;
  if (client.in.size() < header + length) return true;
  const std::string job = client.in.substr(header, length);
  const auto rank =
      static_cast<int>(store_wire::parse_number(client.in.data() + magic.size() + 4) & 0x7fffffffU);
  client.in.erase(0, header + length);
  client.greeted = true;
  client.closing = job != job_;
  if (!client.closing) client.rank = rank;
  client.out += client.closing
                    ? store_wire::reply(store_wire::kRefused,
                                        fmt::format("this is job '{}', not '{}'", job_, job))
                    : store_wire::reply(store_wire::kFound, "");
  return true;
}

void TcpStoreServer::answer(Client& client, const Request& request) {
  const auto found = values_.find(request.key);
  switch (request.op) {
    case store_wire::kSet:
      if (found == values_.end() && values_.size() >= kMostKeys) {
        client.out += store_wire::reply(store_wire::kRefused, "the store is full");
        return;
      }
      values_[request.key] = request.value;
      client.out += store_wire::reply(store_wire::kFound, "");
      return;
    case store_wire::kGet:
      if (found == values_.end()) {
        client.waiting = request;
        return;
      }
      [[fallthrough]];
    case store_wire::kFind:
      client.out += found == values_.end() ? store_wire::reply(store_wire::kAbsent, "")
                                           : store_wire::reply(store_wire::kFound, found->second);
      return;
    default:
      client.closing = true;
      client.out += store_wire::reply(store_wire::kRefused, "unknown request");
  }
}

void TcpStoreServer::answer_waiting() {
  for (const auto& client : clients_) {
    if (!client->waiting) continue;
    const auto found = values_.find(client->waiting->key);
    if (found == values_.end() && Clock::now() < client->waiting->deadline) continue;
    client->out += found == values_.end() ? store_wire::reply(store_wire::kAbsent, "")
                                          : store_wire::reply(store_wire::kFound, found->second);
    client->waiting.reset();
  }
}

bool TcpStoreServer::write_to(Client& client) {
  while (!client.out.empty()) {
    const ssize_t count =
        ::send(client.socket.file(), client.out.data(), client.out.size(), MSG_NOSIGNAL);
    if (count < 0) return errno == EAGAIN || errno == EINTR;
    client.out.erase(0, static_cast<size_t>(count));
  }
  return !client.closing;
}

}  // namespace millrace::executor

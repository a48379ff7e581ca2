#include "executor/collective/tcp_store_server.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
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
constexpr size_t kMostBytes = size_t{256} << 20U;
constexpr size_t kMostJobBytes = 256;
// A client that sends requests without reading the replies is closed.
constexpr size_t kMostUnsentBytes = 4 * Store::kMostValueBytes;
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
  int rank = -1;  ///< once it is greeted
  // of its hello
  int claimed_rank = -1;
  std::string process;
  std::string job;
  bool has_key = false;
  std::string nonce;
  std::string own_nonce;           ///< of the server; not empty: a proof is awaited
  bool closing = false;            ///< close after `out` has been sent
  Clock::time_point since;         ///< by TcpStoreServer::now()
  std::optional<Request> waiting;  ///< waiting for a key that is not set yet
};

TcpStoreServer::TcpStoreServer(Socket listener, std::string job,
                               std::shared_ptr<const io::JobKey> key)
    : listener_(std::move(listener)), job_(std::move(job)), key_(std::move(key)) {}

StatusOr<std::unique_ptr<TcpStoreServer>> TcpStoreServer::start(
    const std::string& endpoint, std::string job, std::shared_ptr<const io::JobKey> key) {
  MILLRACE_ASSIGN_OR_RETURN(Socket listener, listen_at(endpoint));
  std::unique_ptr<TcpStoreServer> server(
      new TcpStoreServer(std::move(listener), std::move(job), std::move(key)));
  int ends[2];
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0)
    return Status(StatusCode::kResource,
                  fmt::format("cannot create a pipe: {}", std::strerror(errno)));
  server->stop_read_ = Socket(ends[0]);
  server->stop_write_ = Socket(ends[1]);
  try {
    server->thread_ = std::thread([self = server.get()] { self->serve(); });
  } catch (const std::exception& error) {
    return Status(StatusCode::kResource, fmt::format("no thread for the store: {}", error.what()));
  }
  return server;
}

TcpStoreServer::~TcpStoreServer() {
  stop_write_ = Socket();
  if (thread_.joinable()) thread_.join();
}

void TcpStoreServer::serve() {
  for (bool goes_on = true; goes_on;) {
    try {
      goes_on = serve_once();
    } catch (const std::exception&) {
      // no memory: what was not done is tried again
    }
  }
}

// False if the server must end.
bool TcpStoreServer::serve_once() {
  std::vector<pollfd> entries{{stop_read_.file(), POLLIN, 0}, {listener_.file(), POLLIN, 0}};
  for (const auto& client : clients_) {
    const auto events = static_cast<int16_t>(POLLIN | (client->out.empty() ? 0 : POLLOUT));
    entries.push_back({client->socket.file(), events, 0});
  }
  if (poll(entries.data(), entries.size(), kMostPollMs) < 0 && errno != EINTR) return false;
  if (entries[0].revents != 0) return false;
  pauses_.tick(Clock::now());
  const size_t known = clients_.size();
  if (entries[1].revents != 0) accept_clients();
  for (size_t i = 0; i < known; ++i) {
    Client& client = *clients_[i];
    bool keep = entries[i + 2].revents == 0 || read_if_memory(client);
    keep = keep && (client.greeted || now() < client.since + kHelloTime);
    if (!keep) client.socket = Socket();
  }
  answer_waiting();
  for (const auto& client : clients_) {
    if (client->socket.is_open() && !write_to(*client)) client->socket = Socket();
  }
  for (const auto& client : clients_) {
    if (client->socket.is_open() || client->rank < 0) continue;
    set(Store::lost_key(client->rank), "");
  }
  std::erase_if(clients_, [](const auto& client) { return !client->socket.is_open(); });
  return true;
}

// Without memory for its bytes, a client is closed, as they would be lost.
bool TcpStoreServer::read_if_memory(Client& client) {
  try {
    return read_from(client);
  } catch (const std::exception&) {
    return false;
  }
}

Clock::time_point TcpStoreServer::now() const {
  const Clock::time_point now = Clock::now();
  return now - pauses_.paused(now);
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
    client->since = now();
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
  if (!client.greeted && !client.closing) {
    if (client.own_nonce.empty() && !take_hello(client)) return false;
    if (!client.own_nonce.empty() && !take_proof(client)) return false;
  }
  while (client.greeted && !client.closing && client.in.size() >= store_wire::kRequestHeader) {
    if (client.out.size() > kMostUnsentBytes) return false;
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
    request.deadline = now() + std::chrono::milliseconds(timeout_ms);
    client.in.erase(0, store_wire::kRequestHeader + key + value);
    answer(client, request);
  }
  return true;
}

bool TcpStoreServer::take_hello(Client& client) {
  const std::string magic(store_wire::kMagic, store_wire::kMagicBytes);
  const size_t compared = std::min(client.in.size(), magic.size());
  if (client.in.compare(0, compared, magic, 0, compared) != 0) return false;
  const size_t header = magic.size() + store_wire::kHelloHeader;
  if (client.in.size() < header) return true;
  const char* const in = client.in.data() + magic.size();
  const size_t length = store_wire::parse_number(in);
  if (length > kMostJobBytes) return false;
  if (client.in.size() < header + length) return true;
  client.claimed_rank = static_cast<int>(store_wire::parse_number(in + 4) & 0x7fffffffU);
  client.process.assign(in + 8, 8);
  client.has_key = in[16] == store_wire::kHasKey;
  client.nonce.assign(in + 17, io::JobKey::kBytes);
  client.job = client.in.substr(header, length);
  client.in.erase(0, header + length);
  challenge(client);
  return true;
}

void TcpStoreServer::challenge(Client& client) {
  if (key_ == nullptr && client.has_key)
    return refuse(client, "this rank has the key of a job, and the store has none (--job-key)");
  if (key_ == nullptr) return admit(client);
  if (!client.has_key)
    return refuse(client,
                  "the store requires the key of the job, and this rank has none (--job-key)");
  StatusOr<std::string> own = io::JobKey::nonce();
  if (!own.ok()) return refuse(client, own.status().message());
  client.own_nonce = *std::move(own);
  client.out += store_wire::reply(
      store_wire::kChallenge,
      client.own_nonce + key_->proof(io::JobKey::Side::kServer, client.nonce, client.own_nonce));
}

bool TcpStoreServer::take_proof(Client& client) {
  if (client.in.size() < io::JobKey::kBytes) return true;
  const std::string proof = client.in.substr(0, io::JobKey::kBytes);
  client.in.erase(0, io::JobKey::kBytes);
  if (key_->is_proof(proof, io::JobKey::Side::kCaller, client.nonce, client.own_nonce)) {
    admit(client);
  } else {
    refuse(client, "this rank has the key of another job");
  }
  return true;
}

void TcpStoreServer::admit(Client& client) {
  if (client.job != job_)
    return refuse(client, fmt::format("this is job '{}', not '{}'", job_, client.job));
  for (const auto& other : clients_) {
    if (other->socket.is_open() && other->rank == client.claimed_rank &&
        other->process != client.process)
      return refuse(client,
                    fmt::format("another process is connected as rank {}", client.claimed_rank));
  }
  client.rank = client.claimed_rank;
  client.greeted = true;
  client.out += store_wire::reply(store_wire::kFound, "");
}

void TcpStoreServer::refuse(Client& client, const std::string& reason) {
  client.closing = true;
  client.out += store_wire::reply(store_wire::kRefused, reason);
}

bool TcpStoreServer::set(const std::string& key, const std::string& value) {
  const auto found = values_.find(key);
  if (found == values_.end() && values_.size() >= kMostKeys) return false;
  const size_t before = found == values_.end() ? 0 : key.size() + found->second.size();
  const size_t after = bytes_ - before + key.size() + value.size();
  if (after > kMostBytes) return false;
  values_[key] = value;
  bytes_ = after;
  return true;
}

void TcpStoreServer::answer(Client& client, const Request& request) {
  const auto found = values_.find(request.key);
  switch (request.op) {
    case store_wire::kSet:
      client.out += set(request.key, request.value)
                        ? store_wire::reply(store_wire::kFound, "")
                        : store_wire::reply(store_wire::kRefused, "the store is full");
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
    if (found == values_.end() && now() < client->waiting->deadline) continue;
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

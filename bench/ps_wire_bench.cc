// Measures the transfer of values between a trainer and a pserver on this machine, compared with
// plain TCP with the same number of bytes in the same run. The server is a separate process.
//
//   ps_wire_bench [--mb 64] [--servers 1] [--runs 7] [--calls 2000] [--check]
//
// With several servers each holds a part of the value, and all are called concurrently. Prints one
// line of JSON per measurement: name, transport, unit, median, best, processor time of both sides
// for one run, runs, and the ratio to plain TCP: of bytes per second (best to best), or of time for
// one round trip (median to median).

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstring>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <CLI/CLI.hpp>
#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/processor_time.h"
#include "framework/tensor/value.h"
#include "ps/transport/grpc.h"
#include "ps/transport/tcp.h"
#include "ps/transport/transport.h"

namespace {

using namespace millrace;  // NOLINT(google-build-using-namespace): one short program
using Clock = std::chrono::steady_clock;
using Times = bench::RunTimes;

struct Options {
  int mb = 64;
  int servers = 1;
  int runs = 7;
  int calls = 2000;
  bool check = false;
};

void require(bool holds, std::string_view what) {
  if (holds) return;
  std::cerr << "error: " << what << std::endl;
  std::_Exit(1);
}

Value zeros(int64_t bytes) {
  Value value;
  require(value.as<Tensor>().resize(DType::kInt8, {bytes}).ok(), "no memory");
  std::memset(value.as<Tensor>().raw(), 0, static_cast<size_t>(bytes));
  return value;
}

// Holds one value: kSend replaces it, kGet returns it, kPrefetch returns 16 floats per id.
class Store final : public ps::Handler {
 public:
  explicit Store(int64_t bytes) : held_(zeros(bytes)), row_(zeros(64)) {}
  Status handle(const ps::Request& request, ps::Deadline, ps::ReplySink& reply) override {
    if (request.method == ps::Method::kSend) held_ = std::move(*request.items[0].movable);
    if (request.method == ps::Method::kGet) return reply.put("held", held_);
    if (request.method == ps::Method::kPrefetch) return reply.put("row", row_);
    return Ok();
  }

 private:
  Value held_;
  Value row_;
};

void send_all(int fd, const char* data, size_t size) {
  while (size > 0) {
    const ssize_t count = send(fd, data, size, MSG_NOSIGNAL);
    if (count <= 0) std::_Exit(0);
    data += count;
    size -= static_cast<size_t>(count);
  }
}

// Both parts in one call, so that a small message is one packet.
void send_parts(int fd, iovec first, iovec second) {
  std::array<iovec, 2> parts{first, second};
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  const ssize_t count = sendmsg(fd, &message, MSG_NOSIGNAL);
  if (count <= 0) std::_Exit(0);
  const auto sent = static_cast<size_t>(count);
  const size_t of_first = std::min(sent, first.iov_len);
  const size_t of_second = sent - of_first;
  send_all(fd, static_cast<const char*>(first.iov_base) + of_first, first.iov_len - of_first);
  send_all(fd, static_cast<const char*>(second.iov_base) + of_second, second.iov_len - of_second);
}

void receive_all(int fd, char* data, size_t size) {
  while (size > 0) {
    const ssize_t count = recv(fd, data, size, 0);
    if (count <= 0) std::_Exit(0);
    data += count;
    size -= static_cast<size_t>(count);
  }
}

// The plain TCP peer: reads two sizes and that many bytes, and responds with the requested number
// of bytes.
struct Sizes {
  size_t there = 0;
  size_t back = 0;
};

int listen_plain(int& port) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  require(bind(fd, reinterpret_cast<sockaddr*>(&address), length) == 0 && listen(fd, 4) == 0,
          "cannot listen");
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length);
  port = ntohs(address.sin_port);
  return fd;
}

int no_delay(int fd) {
  const int yes = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  return fd;
}

[[noreturn]] void serve_plain(int listener, size_t bytes) {
  std::vector<char> memory(bytes + sizeof(Sizes), 1);
  const int fd = no_delay(accept(listener, nullptr, nullptr));
  for (;;) {
    Sizes sizes;
    receive_all(fd, reinterpret_cast<char*>(&sizes), sizeof sizes);
    receive_all(fd, memory.data(), sizes.there);
    send_all(fd, memory.data(), sizes.back);
  }
}

int connect_plain(int port) {
  const int fd = no_delay(socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  require(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0,
          "cannot connect");
  return fd;
}

class Bench {
 public:
  Bench(const Options& options, const std::vector<pid_t>& others)
      : options_(options), bytes_(static_cast<int64_t>(options.mb) << 20U), processor_(others) {}

  void plain(int port) {
    const int fd = connect_plain(port);
    std::vector<char> memory(static_cast<size_t>(bytes_), 1);
    const auto exchange = [&](size_t there, size_t back) {
      Sizes sizes{there, back};
      send_parts(fd, {&sizes, sizeof sizes}, {memory.data(), there});
      receive_all(fd, memory.data(), back);
    };
    const auto all = static_cast<size_t>(bytes_);
    plain_ = {time_runs(options_.runs, [&] { exchange(all, 16); }),
              time_runs(options_.runs, [&] { exchange(16, all); }),
              time_runs(options_.calls, [&] { exchange(64, 64); })};
    print("plain tcp", plain_);
    close(fd);
  }

  void transport(const std::string& name, ps::Transport& transport,
                 const std::vector<std::string>& endpoints) {
    std::vector<Side> sides;
    for (const std::string& endpoint : endpoints)
      sides.push_back({std::move(transport.connect(endpoint)).value(), {}, {}});
    const int64_t part = bytes_ / static_cast<int64_t>(sides.size());
    const Value dense = zeros(part);
    Value id;
    require(id.as<Tensor>().resize(DType::kInt64, {1}).ok(), "no memory");
    id.as<Tensor>().data<int64_t>()[0] = 0;
    const auto push = [&](Side& side) { side.call(ps::Method::kSend, &dense, side.reply); };
    const auto pull = [](Side& side) { side.call(ps::Method::kGet, nullptr, side.held); };
    for (int warm = 0; warm < 2; ++warm) {
      at_all(sides, push);
      at_all(sides, pull);
    }
    for (const Side& side : sides)
      require(side.held.values.size() == 1 && side.held.values[0].get_if<Tensor>()->bytes() == part,
              "expected the bytes that were sent");
    const auto row = [&] { sides[0].call(ps::Method::kPrefetch, &id, sides[0].reply); };
    print(name,
          {time_runs(options_.runs, [&] { at_all(sides, push); }),
           time_runs(options_.runs, [&] { at_all(sides, pull); }), time_runs(options_.calls, row)});
  }

 private:
  // The caller's view of a server.
  struct Side {
    std::shared_ptr<ps::Channel> channel;
    ps::Reply held;
    ps::Reply reply;

    void call(ps::Method method, const Value* value, ps::Reply& into) const {
      ps::Request request;
      request.method = method;
      request.items.push_back({"x", value, nullptr});
      const Status status = channel->call(request, Clock::now() + std::chrono::seconds(60), into);
      require(status.ok(), status.to_string());
    }
  };

  template <typename Call>
  static void at_all(std::vector<Side>& sides, const Call& call) {
    std::vector<std::thread> others;
    for (size_t i = 1; i < sides.size(); ++i) others.emplace_back([&, i] { call(sides[i]); });
    call(sides[0]);
    for (std::thread& other : others) other.join();
  }

  [[nodiscard]] Times time_runs(int runs, const std::function<void()>& body) const {
    return bench::time_runs(runs, processor_, body);
  }

  void print(const std::string& transport, const std::array<Times, 3>& times) const {
    static constexpr std::array<const char*, 3> kNames{"push", "pull", "row"};
    for (size_t i = 0; i < times.size(); ++i) {
      const bool is_rate = i < 2;
      const double scale = is_rate ? 1e-9 * static_cast<double>(bytes_) : 1e6;
      const double best = is_rate ? scale / times[i].best : scale * times[i].best;
      const double median = is_rate ? scale / times[i].median : scale * times[i].median;
      const double ratio =
          is_rate ? plain_[i].best / times[i].best : times[i].median / plain_[i].median;
      std::cout
          << fmt::format(
                 R"({{"name":"ps_wire_{}","transport":"{}","mb":{},"unit":"{}","median":{:.3f},"best":{:.3f},"processor_us":{:.1f},"to_plain":{:.3f},"runs":{}}})",
                 kNames[i], transport, options_.mb, is_rate ? "GB/s" : "us", median, best,
                 1e6 * times[i].processor, ratio, is_rate ? options_.runs : options_.calls)
          << std::endl;
    }
  }

  Options options_;
  int64_t bytes_;
  bench::ProcessorTime processor_;
  std::array<Times, 3> plain_;
};

// The other process: serves until the pipe is closed.
[[noreturn]] void serve(int ready, int64_t bytes) {
  ps::GrpcOptions options;
  const auto grpc = std::move(ps::make_grpc_transport(options)).value();
  Store store(bytes);
  const auto by_grpc = std::move(grpc->listen("127.0.0.1:0", store)).value();
  const auto tcp = std::move(ps::make_tcp_transport(options)).value();
  const auto by_tcp = std::move(tcp->listen("127.0.0.1:0", store)).value();
  const std::string line = by_grpc->endpoint() + "\n" + by_tcp->endpoint() + "\n";
  require(write(ready, line.data(), line.size()) > 0, "cannot write to the pipe");
  pause();
  std::_Exit(0);
}

std::string read_line(int fd) {
  std::string line;
  for (char c = 0; read(fd, &c, 1) == 1 && c != '\n';) line += c;
  return line;
}

int run(Options options) {
  if (options.check) options = {1, 2, 1, 10, true};
  int port = 0;
  const int listener = listen_plain(port);
  std::array<int, 2> pipe_ends{};
  require(pipe(pipe_ends.data()) == 0, "cannot create a pipe");
  const int64_t bytes = static_cast<int64_t>(options.mb) << 20U;
  // Both children must be forked before any thread starts.
  const pid_t plain = fork();
  if (plain == 0) serve_plain(listener, static_cast<size_t>(bytes));
  std::vector<pid_t> children{plain};
  std::vector<std::string> by_grpc;
  std::vector<std::string> by_tcp;
  for (int i = 0; i < options.servers; ++i) {
    children.push_back(fork());
    if (children.back() == 0) serve(pipe_ends[1], bytes / options.servers);
    by_grpc.push_back(read_line(pipe_ends[0]));
    by_tcp.push_back(read_line(pipe_ends[0]));
  }
  {
    Bench measured(options, children);
    measured.plain(port);
    const auto grpc = std::move(ps::make_grpc_transport(ps::GrpcOptions())).value();
    measured.transport("grpc", *grpc, by_grpc);
    const auto tcp = std::move(ps::make_tcp_transport(ps::GrpcOptions())).value();
    measured.transport("tcp", *tcp, by_tcp);
  }
  for (const pid_t child : children) {
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("transfer of values between a trainer and a pserver, compared with plain TCP");
  app.add_option("--mb", options.mb, "MiB of a dense value")->check(CLI::Range(1, 1024));
  app.add_option("--servers", options.servers, "number of servers that share the value")
      ->check(CLI::Range(1, 16));
  app.add_option("--runs", options.runs, "number of transfers of the value")
      ->check(CLI::Range(1, 1000));
  app.add_option("--calls", options.calls, "number of pulls of one row")
      ->check(CLI::Range(1, 1000000));
  app.add_flag("--check", options.check, "one short run");
  CLI11_PARSE(app, argc, argv);
  return run(options);
}

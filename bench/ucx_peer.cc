// The least that the transfer of values between a trainer and a pserver costs by UCX on this
// machine: bytes are exchanged with another process by one thread on each side, without messages of
// ours, without a check of the bytes and without threads that handle calls. Compiled and run by
// bench/ucx.py.
//
//   ucx_peer --transport plain|readv|ucx-tcp|ucx-shm|ucx-cma [--mb 64] [--runs 7] [--calls 2000]
//   [--lanes]
//            [--hand-over] [--lost]
//
//   plain    a bare connection
//   readv    a bare connection; from 64 KiB on the receiver reads the memory of the sender
//   ucx-tcp  active messages over TCP, with the error handling that reports a lost process
//   ucx-shm  the same with UCX_MM_ERROR_HANDLING: messages over shared memory, large ones by TCP
//   ucx-cma  shared memory, and large messages read from the memory of the sender, without error
//            handling: UCX 1.13 chooses CMA only then
//
// With --hand-over the server's thread passes each call to another one, which responds, as it must
// if calls may wait. Prints the lines of ps_wire_bench: push, pull and row, with the processor time
// of both sides. With --lost it kills the other process while a response is awaited, and prints
// after how many seconds UCX reported that.

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <CLI/CLI.hpp>
#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

#include "bench/processor_time.h"

namespace {

using Clock = std::chrono::steady_clock;

// UCX asks silent peers every 20 seconds whether they live.
constexpr std::chrono::seconds kLongestLoss{30};

struct Options {
  std::string transport;
  size_t mb = 64;
  int runs = 7;
  int calls = 2000;
  bool lanes = false;
  bool hand_over = false;
  bool lost = false;
};

void require(bool holds, std::string_view what) {
  if (holds) return;
  std::cerr << "error: " << what << std::endl;
  std::_Exit(1);
}

// What a caller wants: the number of bytes that are sent, and of those in the response. If it is
// not answered, the server keeps silent.
struct Wish {
  size_t there = 0;
  size_t back = 0;
  size_t address = 0;  // of the bytes that are sent, for a receiver that reads them itself
  bool is_answered = true;
};

// One side of a connection between two processes; each has memory for the largest message.
class Link {
 public:
  explicit Link(size_t bytes) : memory_(bytes, 1) {}
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;
  virtual ~Link() = default;

  // The server's side: listens, reports the port, and serves the one caller that connects.
  [[noreturn]] virtual void serve(int report) = 0;
  virtual void connect(uint16_t port, pid_t server) = 0;
  virtual void exchange(const Wish& wish) = 0;

 protected:
  std::vector<char> memory_;
};

sockaddr_in loopback(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return address;
}

// By sockets; `reads` lets the receiver of large bytes read the memory of the sender.
class SocketLink final : public Link {
 public:
  SocketLink(size_t bytes, bool reads) : Link(bytes), reads_(reads) {}

  [[noreturn]] void serve(int report) override {
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address = loopback(0);
    socklen_t length = sizeof address;
    require(bind(listener, reinterpret_cast<sockaddr*>(&address), length) == 0 &&
                listen(listener, 4) == 0,
            "cannot listen");
    getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length);
    const uint16_t port = ntohs(address.sin_port);
    require(write(report, &port, sizeof port) == sizeof port, "cannot report the port");
    take(accept(listener, nullptr, nullptr), getppid());
    for (;;) {
      Wish wish;
      receive_all(&wish, sizeof wish);
      receive(wish.there, wish.address);
      send(wish, wish.back);
    }
  }

  void connect(uint16_t port, pid_t server) override {
    const sockaddr_in address = loopback(port);
    take(socket(AF_INET, SOCK_STREAM, 0), server);
    require(::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0,
            "cannot connect");
  }

  void exchange(const Wish& asked) override {
    Wish wish = asked;
    send(wish, wish.there);
    receive_all(&wish, sizeof wish);
    receive(wish.back, wish.address);
  }

 private:
  static constexpr size_t kLeastRead = size_t{64} << 10U;

  void take(int fd, pid_t peer) {
    fd_ = fd;
    peer_ = peer;
    const int yes = 1;
    setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  }

  // One system call for a small message. A receiver that reads the memory confirms that, so that
  // the sender may change it.
  void send(Wish wish, size_t size) {
    const bool is_read = reads_ && size >= kLeastRead;
    wish.address = reinterpret_cast<size_t>(memory_.data());
    send_all({{{&wish, sizeof wish}, {memory_.data(), is_read ? 0 : size}}});
    char done = 0;
    if (is_read) receive_all(&done, 1);
  }

  void receive(size_t size, size_t address) {
    if (!reads_ || size < kLeastRead) return receive_all(memory_.data(), size);
    for (size_t at = 0; at < size;) {
      const iovec own{memory_.data() + at, size - at};
      const iovec theirs{reinterpret_cast<void*>(address + at), size - at};
      const ssize_t count = process_vm_readv(peer_, &own, 1, &theirs, 1, 0);
      require(count > 0, "this process may not read the memory of the other one");
      at += static_cast<size_t>(count);
    }
    char done = 0;
    send_all({{{&done, 1}, {}}});
  }

  void send_all(std::array<iovec, 2> pieces) const {
    while (pieces[0].iov_len + pieces[1].iov_len > 0) {
      msghdr message{};
      message.msg_iov = pieces.data();
      message.msg_iovlen = pieces.size();
      const ssize_t count = sendmsg(fd_, &message, MSG_NOSIGNAL);
      if (count <= 0) std::_Exit(0);
      auto sent = static_cast<size_t>(count);
      for (iovec& piece : pieces) {
        const size_t part = std::min(sent, piece.iov_len);
        piece = {static_cast<char*>(piece.iov_base) + part, piece.iov_len - part};
        sent -= part;
      }
    }
  }

  void receive_all(void* data, size_t size) const {
    for (size_t at = 0; at < size;) {
      const ssize_t count = recv(fd_, static_cast<char*>(data) + at, size - at, 0);
      if (count <= 0) std::_Exit(0);
      at += static_cast<size_t>(count);
    }
  }

  const bool reads_;
  int fd_ = -1;
  pid_t peer_ = 0;
};

void require_ok(ucs_status_t status, std::string_view what) {
  require(status == UCS_OK, fmt::format("{}: {}", what, ucs_status_string(status)));
}

// By active messages of UCX: one worker, whose thread sleeps while nothing arrives.
class UcxLink final : public Link {
 public:
  UcxLink(size_t bytes, const char* transports, bool reports_losses, bool hands_over)
      : Link(bytes),
        transports_(transports),
        reports_losses_(reports_losses),
        hands_over_(hands_over) {}

  [[noreturn]] void serve(int report) override {
    begin();
    sockaddr_in address = loopback(0);
    ucp_listener_params_t params{};
    params.field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER;
    params.sockaddr = {reinterpret_cast<const sockaddr*>(&address), sizeof address};
    params.conn_handler = {[](ucp_conn_request_h request, void* self) {
                             static_cast<UcxLink*>(self)->request_ = request;
                           },
                           this};
    ucp_listener_h listener = nullptr;
    require_ok(ucp_listener_create(worker_, &params, &listener), "cannot listen");
    ucp_listener_attr_t facts{};
    facts.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR;
    require_ok(ucp_listener_query(listener, &facts), "no port");
    std::memcpy(&address, &facts.sockaddr, sizeof address);
    const uint16_t port = ntohs(address.sin_port);
    require(write(report, &port, sizeof port) == sizeof port, "cannot report the port");
    wait([&] { return request_ != nullptr; });
    ucp_ep_params_t caller{};
    caller.field_mask = UCP_EP_PARAM_FIELD_CONN_REQUEST;
    caller.conn_request = request_;
    open(caller);
    if (hands_over_) std::thread([this] { handle_all(); }).detach();
    for (;;) {
      wait([&] { return has_arrived_; });
      has_arrived_ = false;
      if (!arrived_.is_answered) continue;
      if (hands_over_) {
        eventfd_write(handed_over_, 1);
      } else {
        send(arrived_, arrived_.back);
      }
    }
  }

  void connect(uint16_t port, pid_t /*server*/) override {
    begin();
    const sockaddr_in address = loopback(port);
    ucp_ep_params_t server{};
    server.field_mask = UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR;
    server.flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER;
    server.sockaddr = {reinterpret_cast<const sockaddr*>(&address), sizeof address};
    open(server);
  }

  void exchange(const Wish& wish) override {
    has_arrived_ = false;
    send(wish, wish.there);
    wait([&] { return has_arrived_ && sends_ == 0; });
  }

  void print_lanes() const { ucp_ep_print_info(peer_, stdout); }

  // Seconds from the death of the server until UCX reports it; negative if it does not in time.
  double kill_server(pid_t server, std::chrono::seconds time) {
    Wish wish;
    wish.is_answered = false;
    send(wish, 0);
    wait([&] { return sends_ == 0; });
    ends_with_peer_ = false;
    kill(server, SIGKILL);
    const auto begin = Clock::now();
    while (!is_lost_ && Clock::now() < begin + time) progress(std::chrono::milliseconds(10));
    return is_lost_ ? std::chrono::duration<double>(Clock::now() - begin).count() : -1;
  }

 private:
  static constexpr unsigned kMessage = 1;

  // The thread that handles calls. There is one call at a time.
  [[noreturn]] void handle_all() {
    for (;;) {
      eventfd_t count = 0;
      require(eventfd_read(handed_over_, &count) == 0, "cannot wait for a call");
      send(arrived_, arrived_.back);
      if (sends_ > 0) ucp_worker_signal(worker_);  // the other thread does what is left of sending
    }
  }

  void begin() {
    // without it, shared memory is not chosen for endpoints that report losses
    setenv("UCX_MM_ERROR_HANDLING", "y", 0);
    ucp_config_t* config = nullptr;
    require_ok(ucp_config_read(nullptr, nullptr, &config), "no configuration");
    require_ok(ucp_config_modify(config, "TLS", transports_), "transports");
    require_ok(ucp_config_modify(config, "NET_DEVICES", "lo"), "devices");
    ucp_params_t params{};
    params.field_mask = UCP_PARAM_FIELD_FEATURES;
    params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
    require_ok(ucp_init(&params, config, &context_), "no context");
    ucp_config_release(config);
    ucp_worker_params_t worker{};
    worker.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
    worker.thread_mode = hands_over_ ? UCS_THREAD_MODE_MULTI : UCS_THREAD_MODE_SINGLE;
    require_ok(ucp_worker_create(context_, &worker, &worker_), "no worker");
    require_ok(ucp_worker_get_efd(worker_, &events_), "no descriptor");
    ucp_am_handler_param_t handler{};
    handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                         UCP_AM_HANDLER_PARAM_FIELD_ARG;
    handler.id = kMessage;
    handler.cb = [](void* self, const void* head, size_t head_bytes, void* data, size_t bytes,
                    const ucp_am_recv_param_t* facts) {
      return static_cast<UcxLink*>(self)->take(head, head_bytes, data, bytes, facts->recv_attr);
    };
    handler.arg = this;
    require_ok(ucp_worker_set_am_recv_handler(worker_, &handler), "no handler");
  }

  void open(ucp_ep_params_t params) {
    if (reports_losses_) {
      params.field_mask |= UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
      params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
      params.err_handler = {
          [](void* self, ucp_ep_h, ucs_status_t) { static_cast<UcxLink*>(self)->is_lost_ = true; },
          this};
    }
    require_ok(ucp_ep_create(worker_, &params, &peer_), "no endpoint");
  }

  void send(const Wish& wish, size_t size) {
    ucp_request_param_t how{};
    how.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
    how.cb.send = [](void* request, ucs_status_t, void* self) {
      --static_cast<UcxLink*>(self)->sends_;
      ucp_request_free(request);
    };
    how.user_data = this;
    sent_ = wish;  // UCX reads it until the message is sent
    ++sends_;
    const void* const request =
        ucp_am_send_nbx(peer_, kMessage, &sent_, sizeof sent_, memory_.data(), size, &how);
    require(!UCS_PTR_IS_ERR(request), "cannot send");
    if (request == nullptr) --sends_;
  }

  ucs_status_t take(const void* head, size_t head_bytes, void* data, size_t bytes,
                    uint64_t attributes) {
    require(head_bytes == sizeof arrived_ && bytes <= memory_.size(), "not a message");
    std::memcpy(&arrived_, head, sizeof arrived_);
    if ((attributes & UCP_AM_RECV_ATTR_FLAG_RNDV) == 0) {
      std::memcpy(memory_.data(), data, bytes);
      has_arrived_ = true;
      return UCS_OK;
    }
    ucp_request_param_t how{};
    how.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
    how.cb.recv_am = [](void* request, ucs_status_t status, size_t, void* self) {
      require_ok(status, "receiving failed");
      static_cast<UcxLink*>(self)->has_arrived_ = true;
      ucp_request_free(request);
    };
    how.user_data = this;
    const void* const request = ucp_am_recv_data_nbx(worker_, data, memory_.data(), bytes, &how);
    require(!UCS_PTR_IS_ERR(request), "cannot receive");
    if (request == nullptr) has_arrived_ = true;
    return UCS_INPROGRESS;
  }

  // Does what can be done, or sleeps until something can.
  void progress(std::chrono::milliseconds most) {
    if (ucp_worker_progress(worker_) != 0) return;
    const ucs_status_t armed = ucp_worker_arm(worker_);
    if (armed == UCS_ERR_BUSY) return;
    require_ok(armed, "cannot wait");
    pollfd events{events_, POLLIN, 0};
    poll(&events, 1, static_cast<int>(most.count()));
  }

  void wait(const std::function<bool()>& holds) {
    while (!holds()) {
      if (is_lost_ && ends_with_peer_) std::_Exit(0);
      progress(std::chrono::seconds(1));
    }
  }

  const char* const transports_;
  const bool reports_losses_;
  const bool hands_over_;
  const int handed_over_ = eventfd(0, EFD_CLOEXEC);
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  ucp_ep_h peer_ = nullptr;
  ucp_conn_request_h request_ = nullptr;
  int events_ = -1;
  Wish sent_;
  Wish arrived_;
  bool has_arrived_ = false;
  bool is_lost_ = false;
  bool ends_with_peer_ = true;
  std::atomic<size_t> sends_ = 0;
};

std::unique_ptr<Link> make_link(const Options& options, size_t bytes) {
  const std::string& name = options.transport;
  const bool hands_over = options.hand_over;
  if (name == "ucx-tcp") return std::make_unique<UcxLink>(bytes, "tcp", true, hands_over);
  if (name == "ucx-shm") return std::make_unique<UcxLink>(bytes, "shm,tcp", true, hands_over);
  if (name == "ucx-cma") return std::make_unique<UcxLink>(bytes, "shm,tcp", false, hands_over);
  return std::make_unique<SocketLink>(bytes, name == "readv");
}

void measure(const Options& options, Link& link, pid_t server, std::string_view name,
             const Wish& wish) {
  const bool is_rate = wish.there + wish.back > 1024;
  const int runs = is_rate ? options.runs : options.calls;
  const auto body = [&] { link.exchange(wish); };
  for (int i = 0; i < 2; ++i) body();
  const auto times =
      millrace::bench::time_runs(runs, millrace::bench::ProcessorTime({server}), body);
  const auto result = [&](double time) {
    return is_rate ? 1e-9 * static_cast<double>(options.mb << 20U) / time : 1e6 * time;
  };
  std::cout
      << fmt::format(
             R"({{"name":"ps_wire_{}","transport":"{}","mb":{},"unit":"{}","median":{:.3f},"best":{:.3f},"processor_us":{:.1f},"runs":{}}})",
             name, options.transport + (options.hand_over ? " handed over" : ""), options.mb,
             is_rate ? "GB/s" : "us", result(times.median), result(times.best),
             1e6 * times.processor, runs)
      << std::endl;
}

int run(const Options& options) {
  const size_t bytes = options.mb << 20U;
  const std::unique_ptr<Link> link = make_link(options, bytes);
  std::array<int, 2> report{};
  require(pipe(report.data()) == 0, "cannot create a pipe");
  const pid_t server = fork();
  if (server == 0) link->serve(report[1]);
  close(report[1]);
  uint16_t port = 0;
  require(read(report[0], &port, sizeof port) == sizeof port, "the server has not started");
  link->connect(port, server);
  auto* const ucx = dynamic_cast<UcxLink*>(link.get());
  require(ucx != nullptr || !(options.lost || options.lanes || options.hand_over),
          "--lanes, --hand-over and --lost are about UCX");
  if (options.lost) {
    ucx->exchange({64, 64});
    const double seconds = ucx->kill_server(server, kLongestLoss);
    std::cout << fmt::format(R"({{"name":"ps_wire_lost","transport":"{}","seconds":{}}})",
                             options.transport,
                             seconds < 0 ? "null" : fmt::format("{:.4f}", seconds))
              << std::endl;
  } else {
    measure(options, *link, server, "push", {bytes, 16});
    measure(options, *link, server, "pull", {16, bytes});
    measure(options, *link, server, "row", {64, 64});
  }
  if (options.lanes) ucx->print_lanes();
  std::fflush(stdout);
  kill(server, SIGKILL);
  waitpid(server, nullptr, 0);
  std::_Exit(0);
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app(
      "what an exchange of bytes between two processes costs at least, by UCX and without");
  app.add_option("--transport", options.transport)
      ->required()
      ->check(CLI::IsMember({"plain", "readv", "ucx-tcp", "ucx-shm", "ucx-cma"}));
  app.add_option("--mb", options.mb, "MiB of a dense value")->check(CLI::Range(1, 1024));
  app.add_option("--runs", options.runs, "number of transfers of the value")
      ->check(CLI::Range(1, 1000));
  app.add_option("--calls", options.calls, "number of pulls of one row")
      ->check(CLI::Range(1, 1000000));
  app.add_flag("--lanes", options.lanes, "print what UCX has chosen");
  app.add_flag("--hand-over", options.hand_over, "another thread of the server responds");
  app.add_flag("--lost", options.lost, "how long UCX takes to report a process that was killed");
  CLI11_PARSE(app, argc, argv);
  return run(options);
}

// Whether a process that finds the TCP port of a UCX worker can write into the worker's process.
// The worker has no listener and no endpoint, has given its address and keys to no one, and offers
// only active messages; the stranger knows the number of the port, which every user of the machine
// can look up, and an address in the memory of the worker's process. Compiled and run by
// bench/ucx.py.
//
//   ucx_stranger
//
// Prints a line of JSON. Both processes are children of this program and end with it.

#include <array>
#include <chrono>
#include <csignal>
#include <cstring>
#include <iostream>
#include <string_view>
#include <thread>
#include <vector>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <ucp/api/ucp.h>
#include <uct/api/uct.h>
#include <unistd.h>

namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kBytes = 64;
constexpr std::chrono::seconds kTime{10};
constexpr std::chrono::microseconds kPause{100};

void require(bool holds, std::string_view what) {
  if (holds) return;
  std::cerr << "error: " << what << std::endl;
  std::_Exit(2);
}

void require_ok(ucs_status_t status, std::string_view what) {
  require(status == UCS_OK, fmt::format("{}: {}", what, ucs_status_string(status)));
}

// The port at which this process listens: no code of this program does.
uint16_t listening_port() {
  for (int fd = 0; fd < 64; ++fd) {
    int listens = 0;
    socklen_t length = sizeof listens;
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) != 0 || listens == 0) continue;
    sockaddr_in address{};
    length = sizeof address;
    if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) == 0)
      return ntohs(address.sin_port);
  }
  return 0;
}

// The worker's process. Exit status 1 if its memory changes, which no code of it does; else 0.
[[noreturn]] void serve(int report, const volatile char* memory) {
  ucp_config_t* config = nullptr;
  require_ok(ucp_config_read(nullptr, nullptr, &config), "no configuration");
  require_ok(ucp_config_modify(config, "TLS", "tcp"), "transports");
  require_ok(ucp_config_modify(config, "NET_DEVICES", "lo"), "devices");
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES;
  params.features = UCP_FEATURE_AM;
  ucp_context_h context = nullptr;
  require_ok(ucp_init(&params, config, &context), "no context");
  ucp_worker_params_t options{};
  ucp_worker_h worker = nullptr;
  require_ok(ucp_worker_create(context, &options, &worker), "no worker");
  const uint16_t port = listening_port();
  require(write(report, &port, sizeof port) == sizeof port, "cannot report the port");
  for (const auto begin = Clock::now(); Clock::now() < begin + kTime;) {
    while (ucp_worker_progress(worker) != 0) {
    }
    if (*memory != 0) std::_Exit(1);
    std::this_thread::sleep_for(kPause);
  }
  std::_Exit(0);
}

// The TCP component of UCX's lower interface.
uct_component_h tcp_component() {
  uct_component_h* all = nullptr;
  unsigned count = 0;
  require_ok(uct_query_components(&all, &count), "no components");
  for (unsigned i = 0; i < count; ++i) {
    uct_component_attr_t facts{};
    facts.field_mask = UCT_COMPONENT_ATTR_FIELD_NAME;
    if (uct_component_query(all[i], &facts) == UCS_OK && std::string_view(facts.name) == "tcp")
      return all[i];
  }
  require(false, "UCX has no TCP here");
  return nullptr;
}

struct Stranger {
  uct_worker_h worker = nullptr;
  uct_iface_h interface = nullptr;
};

Stranger open_interface() {
  Stranger stranger;
  uct_component_h tcp = tcp_component();
  uct_md_config_t* domain_config = nullptr;
  require_ok(uct_md_config_read(tcp, nullptr, nullptr, &domain_config), "no configuration");
  uct_md_h domain = nullptr;
  require_ok(uct_md_open(tcp, "tcp", domain_config, &domain), "no domain");
  ucs_async_context_t* async = nullptr;
  require_ok(ucs_async_context_create(UCS_ASYNC_MODE_THREAD_SPINLOCK, &async), "no thread");
  require_ok(uct_worker_create(async, UCS_THREAD_MODE_SINGLE, &stranger.worker), "no worker");
  uct_iface_config_t* config = nullptr;
  require_ok(uct_md_iface_config_read(domain, "tcp", nullptr, nullptr, &config), "no config");
  uct_iface_params_t params{};
  params.field_mask = UCT_IFACE_PARAM_FIELD_OPEN_MODE | UCT_IFACE_PARAM_FIELD_DEVICE;
  params.open_mode = UCT_IFACE_OPEN_MODE_DEVICE;
  params.mode.device.tl_name = "tcp";
  params.mode.device.dev_name = "lo";
  require_ok(uct_iface_open(domain, stranger.worker, &params, config, &stranger.interface),
             "no interface");
  uct_iface_progress_enable(stranger.interface, UCT_PROGRESS_SEND | UCT_PROGRESS_RECV);
  return stranger;
}

// Connects to the port. The address of an interface is its port, that of a device its host, which
// is the same for both.
uct_ep_h connect(const Stranger& stranger, uint16_t port) {
  uct_iface_attr_t facts{};
  require_ok(uct_iface_query(stranger.interface, &facts), "no facts");
  std::vector<char> host(facts.device_addr_len);
  std::vector<char> place(facts.iface_addr_len);
  require_ok(uct_iface_get_device_address(stranger.interface,
                                          reinterpret_cast<uct_device_addr_t*>(host.data())),
             "no host");
  require(place.size() == sizeof port, "this release of UCX has another form of addresses");
  const uint16_t network_order = htons(port);
  std::memcpy(place.data(), &network_order, sizeof network_order);
  uct_ep_params_t params{};
  params.field_mask =
      UCT_EP_PARAM_FIELD_IFACE | UCT_EP_PARAM_FIELD_DEV_ADDR | UCT_EP_PARAM_FIELD_IFACE_ADDR;
  params.iface = stranger.interface;
  params.dev_addr = reinterpret_cast<const uct_device_addr_t*>(host.data());
  params.iface_addr = reinterpret_cast<const uct_iface_addr_t*>(place.data());
  uct_ep_h peer = nullptr;
  require_ok(uct_ep_create(&params, &peer), "no endpoint");
  return peer;
}

// Writes to an address of the other process until that has ended.
[[noreturn]] void write_there(uint16_t port, uint64_t address) {
  const Stranger stranger = open_interface();
  uct_ep_h peer = connect(stranger, port);
  std::array<char, kBytes> bytes{};
  bytes.fill(1);
  const uct_iov_t piece{bytes.data(), bytes.size(), nullptr, 0, 1};
  uct_completion_t completion{[](uct_completion_t*) {}, 1, UCS_OK};
  ucs_status_t status = UCS_ERR_NO_RESOURCE;
  for (;;) {
    if (status == UCS_ERR_NO_RESOURCE)
      status = uct_ep_put_zcopy(peer, &piece, 1, address, 0, &completion);
    uct_worker_progress(stranger.worker);
    std::this_thread::sleep_for(kPause);
  }
}

int run() {
  std::array<int, 2> report{};
  require(pipe(report.data()) == 0, "cannot create a pipe");
  // private memory of each process, at the same address in all of them
  void* const memory =
      mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  require(memory != MAP_FAILED, "no memory");
  const pid_t server = fork();
  if (server == 0) serve(report[1], static_cast<const char*>(memory));
  close(report[1]);
  uint16_t port = 0;
  require(read(report[0], &port, sizeof port) == sizeof port && port != 0, "no worker listens");
  const pid_t stranger = fork();
  if (stranger == 0) write_there(port, reinterpret_cast<uint64_t>(memory));
  int status = 0;
  waitpid(server, &status, 0);
  kill(stranger, SIGKILL);
  waitpid(stranger, nullptr, 0);
  require(WIFEXITED(status) && WEXITSTATUS(status) < 2, "the worker's process failed");
  std::cout << fmt::format(R"({{"name":"ucx_stranger","transport":"ucx-tcp","written":{}}})",
                           WEXITSTATUS(status) == 1)
            << std::endl;
  return 0;
}

}  // namespace

int main() {
  return run();
}

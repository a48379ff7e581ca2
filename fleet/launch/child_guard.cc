#include "fleet/launch/child_guard.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

namespace millrace::fleet {
namespace {

constexpr int64_t kLookMs = 50;
constexpr size_t kMostGroups = 8192;

// What the launcher and its children tell the guard.
struct Notice {
  pid_t child;
  bool has_ended;
};

// The guard is forked from a process that may have threads, so it takes no lock and no memory.
struct Groups {
  std::array<pid_t, kMostGroups> leaders;
  size_t count = 0;

  void take(const Notice& notice) {
    pid_t* const end = leaders.data() + count;
    pid_t* const found = std::find(leaders.data(), end, notice.child);
    if (notice.has_ended && found != end) *found = leaders[--count];
    if (!notice.has_ended && found == end && count < kMostGroups) leaders[count++] = notice.child;
  }
  void signal(int number) const {
    for (size_t i = 0; i < count; ++i) kill(-leaders[i], number);
  }
  [[nodiscard]] bool any_left() const {
    return std::any_of(leaders.data(), leaders.data() + count,
                       [](pid_t leader) { return kill(-leader, 0) == 0; });
  }
};

[[noreturn]] void watch_over(int socket, int64_t grace_ms) {
  static Groups groups;
  // neither signals to the launcher's group nor its terminal reach the guard, and it holds no
  // output open whose end another process waits for
  setsid();
  prctl(PR_SET_NAME, "launch-guard");
  dup2(socket, STDIN_FILENO);
  const int nowhere = open("/dev/null", O_RDWR);
  dup2(nowhere, STDOUT_FILENO);
  dup2(nowhere, STDERR_FILENO);
  close_range(STDERR_FILENO + 1, ~0U, 0);
  while (true) {
    Notice notice{};
    const ssize_t got = recv(STDIN_FILENO, &notice, sizeof notice, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got != sizeof notice) break;
    groups.take(notice);
  }
  groups.signal(SIGTERM);
  groups.signal(SIGCONT);  // a stopped process would not handle SIGTERM
  for (int64_t waited = 0; waited < grace_ms && groups.any_left(); waited += kLookMs) {
    const timespec moment{0, kLookMs * 1'000'000};
    nanosleep(&moment, nullptr);
  }
  groups.signal(SIGKILL);
  _exit(0);
}

}  // namespace

Status ChildGuard::start() {
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0)
    return {StatusCode::kResource,
            fmt::format("no socket to guard the children: {}", std::strerror(errno))};
  guard_ = fork();
  if (guard_ == 0) {
    close(ends[0]);
    watch_over(ends[1], grace_.count());
  }
  close(ends[1]);
  socket_ = ends[0];
  if (guard_ > 0) return Ok();
  return {StatusCode::kResource,
          fmt::format("no process to guard the children: {}", std::strerror(errno))};
}

void ChildGuard::announce() const {
  const Notice notice{getpid(), false};
  send(socket_, &notice, sizeof notice, MSG_NOSIGNAL);
}

void ChildGuard::forget(pid_t child) const {
  const Notice notice{child, true};
  send(socket_, &notice, sizeof notice, MSG_NOSIGNAL);
}

ChildGuard::~ChildGuard() {
  if (socket_ >= 0) close(socket_);
  if (guard_ > 0) waitpid(guard_, nullptr, 0);
}

}  // namespace millrace::fleet

#include "fleet/launch/supervisor.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fleet/launch/child_guard.h"
#include "fleet/launch/job_environment.h"
#include "framework/base/errors.h"
#include "framework/base/polled_deadline.h"

namespace millrace::fleet {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kCannotStart = 127;
constexpr long kBetweenLooksNs = 100'000'000;

// Blocks the signals that the supervisor waits for; children get the previous mask.
class SignalBlock {
 public:
  SignalBlock() {
    sigemptyset(&waited_);
    for (const int number : {SIGCHLD, SIGINT, SIGTERM, SIGHUP}) sigaddset(&waited_, number);
    pthread_sigmask(SIG_BLOCK, &waited_, &before_);
  }
  SignalBlock(const SignalBlock&) = delete;
  SignalBlock& operator=(const SignalBlock&) = delete;
  ~SignalBlock() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

  [[nodiscard]] const sigset_t& before() const { return before_; }
  /// Returns a signal that ends the launcher, or 0 after a child has changed or a short time has
  /// passed.
  [[nodiscard]] int wait() const {
    const timespec moment{0, kBetweenLooksNs};
    const int number = sigtimedwait(&waited_, nullptr, &moment);
    return number == SIGINT || number == SIGTERM || number == SIGHUP ? number : 0;
  }

 private:
  sigset_t waited_{};
  sigset_t before_{};
};

struct Child {
  const ChildPlan* plan = nullptr;
  std::string log;
  pid_t pid = -1;
  bool running = false;
  Clock::time_point start;
};

// Runs in the child between fork and exec: must not take locks that other threads of the parent may
// hold.
[[noreturn]] void exec_child(const std::vector<char*>& arguments,
                             const std::vector<char*>& environment, int log, const sigset_t& mask,
                             pid_t launcher, const ChildGuard& guard) {
  setpgid(0, 0);
  guard.announce();
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != launcher) _exit(kCannotStart);
  dup2(log, STDOUT_FILENO);
  dup2(log, STDERR_FILENO);
  pthread_sigmask(SIG_SETMASK, &mask, nullptr);
  execvpe(arguments[0], arguments.data(), environment.data());
  constexpr char kText[] = "launch: the command cannot be started\n";
  if (write(STDERR_FILENO, kText, sizeof kText - 1) < 0) _exit(kCannotStart);
  _exit(kCannotStart);
}

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> result;
  for (std::string& word : words) result.push_back(word.data());
  result.push_back(nullptr);
  return result;
}

// The command with the port of the process for {metrics}; without that word, --metrics is appended.
std::vector<std::string> command_of(std::vector<std::string> command, const ChildPlan& plan) {
  if (plan.metrics_port == 0) return command;
  constexpr std::string_view kPlace = "{metrics}";
  const std::string port = std::to_string(plan.metrics_port);
  bool named = false;
  for (std::string& word : command) {
    for (size_t at = 0; (at = word.find(kPlace, at)) != std::string::npos; named = true)
      word.replace(at, kPlace.size(), port);
  }
  if (!named) command.insert(command.end(), {"--metrics", port});
  return command;
}

// The launcher's variables, overridden and extended by those of the child.
std::vector<std::string> environment_of(const ChildPlan& plan) {
  std::vector<std::string> entries;
  for (std::string& text : process_variables()) {
    if (!plan.environment.contains(text.substr(0, text.find('='))))
      entries.push_back(std::move(text));
  }
  for (const auto& [name, value] : plan.environment) entries.push_back(name + "=" + value);
  return entries;
}

std::string last_lines(const std::string& path, int count) {
  std::ifstream file(path);
  std::deque<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    lines.push_back(line);
    if (lines.size() > static_cast<size_t>(count)) lines.pop_front();
  }
  return fmt::format("{}", fmt::join(lines, "\n"));
}

class Supervisor {
 public:
  Supervisor(const std::vector<ChildPlan>& plans, const SupervisorOptions& options)
      : options_(options), guard_(std::chrono::milliseconds(options.grace_ms)) {
    for (const ChildPlan& plan : plans) {
      Child child;
      child.plan = &plan;
      child.log = (std::filesystem::path(options.log_dir) / (plan.name() + ".log")).string();
      children_.push_back(std::move(child));
    }
  }
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;
  ~Supervisor() {
    signal_all(SIGKILL);
    for (Child& child : children_) {
      if (!child.running) continue;
      waitpid(child.pid, nullptr, 0);
      guard_.forget(child.pid);
    }
  }

  Status start_all() {
    std::error_code error;
    std::filesystem::create_directories(options_.log_dir, error);
    if (error) return IoError("cannot create the folder {}: {}", options_.log_dir, error.message());
    MILLRACE_RETURN_IF_ERROR(guard_.start());
    for (Child& child : children_) MILLRACE_RETURN_IF_ERROR(start(child));
    return Ok();
  }

  JobOutcome watch() {
    while (any_running()) {
      if (const int number = signals_.wait()) end_by_signal(number);
      reap();
      if (!ending_ && only_servers_run()) {
        options_.say("all trainers are done");
        ending_ = true;  // servers end on their own, or after the grace time
        deadline_ = PolledDeadline(std::chrono::milliseconds(options_.grace_ms));
        asked_ = false;
      }
      if (ending_ && deadline_.has_passed()) escalate();
    }
    return outcome_;
  }

 private:
  Status start(Child& child) {
    const int flags = O_WRONLY | O_CREAT | O_CLOEXEC | (options_.append_logs ? O_APPEND : O_TRUNC);
    const int log = open(child.log.c_str(), flags, 0644);
    if (log < 0) return IoError("cannot write the log {}: {}", child.log, std::strerror(errno));
    std::vector<std::string> command = command_of(options_.command, *child.plan);
    std::vector<std::string> variables = environment_of(*child.plan);
    const std::vector<char*> arguments = pointers(command);
    const std::vector<char*> environment = pointers(variables);
    const pid_t launcher = getpid();
    child.start = Clock::now();
    child.pid = fork();
    if (child.pid == 0)
      exec_child(arguments, environment, log, signals_.before(), launcher, guard_);
    close(log);
    if (child.pid < 0)
      return {StatusCode::kResource,
              fmt::format("cannot start {}: {}", child.plan->name(), std::strerror(errno))};
    setpgid(child.pid, child.pid);  // the child does the same; whichever runs first
    child.running = true;
    std::string line = fmt::format("{} (pid {}): {}", child.plan->name(), child.pid, child.log);
    if (child.plan->metrics_port > 0)
      line += fmt::format(", http://127.0.0.1:{}/metrics", child.plan->metrics_port);
    options_.say(line);
    return Ok();
  }

  [[nodiscard]] bool any_running() const {
    return std::any_of(children_.begin(), children_.end(),
                       [](const Child& child) { return child.running; });
  }
  [[nodiscard]] bool only_servers_run() const {
    return std::none_of(children_.begin(), children_.end(), [](const Child& child) {
      return child.running && child.plan->role != "server";
    });
  }

  void reap() {
    for (Child& child : children_) {
      int status = 0;
      if (!child.running || waitpid(child.pid, &status, WNOHANG) != child.pid) continue;
      child.running = false;
      const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      if (code != 0 && !ending_) first_failure(child, status, code);
      // also end the processes that it started
      kill(-child.pid, SIGTERM);
      guard_.forget(child.pid);
    }
  }

  void first_failure(const Child& child, int status, int code) {
    const std::chrono::duration<double> took = Clock::now() - child.start;
    const std::string how = WIFSIGNALED(status)
                                ? fmt::format("was ended by signal {}", WTERMSIG(status))
                                : fmt::format("exited with {}", code);
    outcome_.code = code;
    outcome_.report = fmt::format("role {} rank {} (pid {}) {} after {:.1f} s; {}:\n{}",
                                  child.plan->role, child.plan->rank, child.pid, how, took.count(),
                                  child.log, last_lines(child.log, options_.last_lines));
    end_all();
  }

  void end_by_signal(int number) {
    if (!outcome_.by_signal) options_.say(fmt::format("signal {}: ending all children", number));
    if (outcome_.code == 0) {
      outcome_.code = 128 + number;
      outcome_.by_signal = true;
    }
    end_all();
  }

  void end_all() {
    signal_all(SIGTERM);
    signal_all(SIGCONT);  // a stopped process would not handle SIGTERM
    if (ending_ && asked_) return;
    ending_ = true;
    asked_ = true;
    deadline_ = PolledDeadline(std::chrono::milliseconds(options_.grace_ms));
  }

  // The grace time is over: first request the end, then force it.
  void escalate() {
    if (!asked_) return end_all();
    signal_all(SIGKILL);
    deadline_ = PolledDeadline(std::chrono::milliseconds(options_.grace_ms));
  }

  void signal_all(int number) {
    for (const Child& child : children_) {
      if (child.running) kill(-child.pid, number);
    }
  }

  const SupervisorOptions& options_;
  SignalBlock signals_;
  ChildGuard guard_;  // ends the children's groups if this process is killed
  std::vector<Child> children_;
  JobOutcome outcome_;
  bool ending_ = false;
  bool asked_ = false;  ///< children were requested to end
  /// Children have no time to end while they and this process are paused.
  PolledDeadline deadline_{std::chrono::milliseconds(0)};
};

}  // namespace

StatusOr<JobOutcome> supervise(const std::vector<ChildPlan>& children,
                               const SupervisorOptions& options) {
  if (options.command.empty())
    return Status(StatusCode::kUsage, "expected a command to start, found none");
  Supervisor supervisor(children, options);
  MILLRACE_RETURN_IF_ERROR(supervisor.start_all());
  return supervisor.watch();
}

}  // namespace millrace::fleet

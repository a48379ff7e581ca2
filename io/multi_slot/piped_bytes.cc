#include "io/multi_slot/piped_bytes.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <ctime>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "framework/base/errors.h"

namespace millrace::io {
namespace piped_bytes {

constexpr size_t kInputPiece = size_t{64} << 10U;
constexpr size_t kKeptErrorBytes = 1000;
constexpr int kPollMs = 100;  // between calls of `stopped`
constexpr int kExitPollMs = 5;
constexpr int kErrorReads = 16;  // at once, of a command that writes errors without end

std::string error_text(int error) {
  return std::error_code(error, std::generic_category()).message();
}

// A descriptor that is closed at the end.
class Descriptor {
 public:
  Descriptor() = default;
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { reset(); }
  [[nodiscard]] int get() const { return fd_; }
  [[nodiscard]] bool is_open() const { return fd_ >= 0; }
  void reset(int fd = -1) {
    if (fd_ >= 0) close(fd_);
    fd_ = fd;
  }

 private:
  int fd_ = -1;
};

// A pipe whose ends other processes do not inherit: with a copy of the write end in another child
// the reader would never see the end.
Status open_pipe(Descriptor& read_end, Descriptor& write_end) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return IoError("no pipe: {}", error_text(errno));
  read_end.reset(ends[0]);
  write_end.reset(ends[1]);
  for (Descriptor* const end : {&read_end, &write_end}) {
    if (end->get() > STDERR_FILENO) continue;  // a process without standard descriptors
    const int moved = fcntl(end->get(), F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    if (moved < 0) return IoError("no pipe: {}", error_text(errno));
    end->reset(moved);
  }
  return Ok();
}

Status make_nonblocking(const Descriptor& end) {
  const int flags = fcntl(end.get(), F_GETFL);
  if (flags >= 0 && fcntl(end.get(), F_SETFL, flags | O_NONBLOCK) == 0) return Ok();
  return IoError("cannot set up a pipe: {}", error_text(errno));
}

// Writes without the signal SIGPIPE, which the process may not expect: it is blocked in this
// thread, and taken from it if the write has raised it.
ssize_t write_quietly(int fd, const char* data, size_t size) {
  sigset_t pipe_signal;
  sigset_t before;
  sigset_t pending;
  sigemptyset(&pipe_signal);
  sigaddset(&pipe_signal, SIGPIPE);
  sigpending(&pending);
  const bool was_pending = sigismember(&pending, SIGPIPE) == 1;
  pthread_sigmask(SIG_BLOCK, &pipe_signal, &before);
  const ssize_t done = ::write(fd, data, size);
  const int error = errno;
  if (done < 0 && error == EPIPE && !was_pending) {
    constexpr timespec kNow{};
    while (sigtimedwait(&pipe_signal, nullptr, &kNow) < 0 && errno == EINTR) {
    }
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  errno = error;
  return done;
}

// Attributes of a child: a process group of its own, and the default action of all signals that
// this process may ignore or block.
class SpawnSettings {
 public:
  SpawnSettings(int input, int output, int errors) {
    posix_spawn_file_actions_init(&actions_);
    posix_spawnattr_init(&attributes_);
    failed_ = posix_spawn_file_actions_adddup2(&actions_, input, STDIN_FILENO) != 0 ||
              posix_spawn_file_actions_adddup2(&actions_, output, STDOUT_FILENO) != 0 ||
              posix_spawn_file_actions_adddup2(&actions_, errors, STDERR_FILENO) != 0;
    sigset_t none;
    sigset_t defaults;
    sigemptyset(&none);
    sigemptyset(&defaults);
    for (const int number : {SIGPIPE, SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT})
      sigaddset(&defaults, number);
    posix_spawnattr_setsigmask(&attributes_, &none);
    posix_spawnattr_setsigdefault(&attributes_, &defaults);
    posix_spawnattr_setpgroup(&attributes_, 0);
    posix_spawnattr_setflags(
        &attributes_, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  }
  SpawnSettings(const SpawnSettings&) = delete;
  SpawnSettings& operator=(const SpawnSettings&) = delete;
  ~SpawnSettings() {
    posix_spawn_file_actions_destroy(&actions_);
    posix_spawnattr_destroy(&attributes_);
  }

  // \returns an errno value, 0 for success
  int spawn(const std::string& command, pid_t& child) const {
    if (failed_) return ENOMEM;
    std::array<std::string, 5> words = {"bash", "-o", "pipefail", "-c", command};
    std::array<char*, words.size() + 1> arguments{};  // ends with null
    std::transform(words.begin(), words.end(), arguments.begin(),
                   [](std::string& word) { return word.data(); });
    return posix_spawn(&child, "/bin/bash", &actions_, &attributes_, arguments.data(), environ);
  }

 private:
  posix_spawn_file_actions_t actions_{};
  posix_spawnattr_t attributes_{};
  bool failed_ = false;
};

// The last bytes of what a command writes to standard error.
class ErrorTail {
 public:
  void add(std::string_view text) {
    text_ += text;
    if (text_.size() > 2 * kKeptErrorBytes) text_.erase(0, text_.size() - kKeptErrorBytes);
  }
  // As part of a message, which is one line.
  [[nodiscard]] std::string shown() const {
    std::string_view rest = text_;
    if (rest.size() > kKeptErrorBytes) rest.remove_prefix(rest.size() - kKeptErrorBytes);
    while (!rest.empty() && (rest.back() == '\n' || rest.back() == ' ')) rest.remove_suffix(1);
    std::string line;
    for (const char c : rest) {
      if (c == '\n') line += "; ";
      if (c != '\n') line += static_cast<unsigned char>(c) < ' ' || c == '\x7f' ? '?' : c;
    }
    return line;
  }

 private:
  std::string text_;
};

class PipedBytes : public InputBytes {
 public:
  PipedBytes(std::unique_ptr<InputBytes> from, std::function<bool()> stopped)
      : from_(std::move(from)), stopped_(std::move(stopped)) {}
  PipedBytes(const PipedBytes&) = delete;
  PipedBytes& operator=(const PipedBytes&) = delete;
  ~PipedBytes() override {
    if (child_ <= 0) return;
    kill(-child_, SIGKILL);
    while (waitpid(child_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }

  Status start(const std::string& command);
  StatusOr<size_t> read(char* to, size_t size) override;

 private:
  Status await(int timeout_ms, bool& has_output);
  Status feed();
  void drain_errors();
  Status finish();
  [[nodiscard]] Status ended_as(int status) const;

  std::unique_ptr<InputBytes> from_;
  std::function<bool()> stopped_;
  pid_t child_ = 0;  ///< 0: none, or it has been waited for
  Descriptor input_;
  Descriptor output_;
  Descriptor errors_;
  std::vector<char> piece_ = std::vector<char>(kInputPiece);  ///< of `from`, to be written
  size_t begin_ = 0;
  size_t end_ = 0;
  ErrorTail tail_;
  Status outcome_;  ///< of the command, after its end
};

Status PipedBytes::start(const std::string& command) {
  Descriptor its_input;
  Descriptor its_output;
  Descriptor its_errors;
  MILLRACE_RETURN_IF_ERROR(open_pipe(its_input, input_));
  MILLRACE_RETURN_IF_ERROR(open_pipe(output_, its_output));
  MILLRACE_RETURN_IF_ERROR(open_pipe(errors_, its_errors));
  for (const Descriptor* const end : {&input_, &output_, &errors_})
    MILLRACE_RETURN_IF_ERROR(make_nonblocking(*end));
  const SpawnSettings settings(its_input.get(), its_output.get(), its_errors.get());
  if (const int error = settings.spawn(command, child_); error != 0) {
    child_ = 0;
    return IoError("cannot start /bin/bash for the pipe_command: {}", error_text(error));
  }
  return Ok();
}

// Waits until the command can be given input or has written something, and gives it input.
Status PipedBytes::await(int timeout_ms, bool& has_output) {
  // poll ignores negative descriptors
  std::array<pollfd, 3> ends = {pollfd{output_.get(), POLLIN, 0}, pollfd{errors_.get(), POLLIN, 0},
                                pollfd{input_.get(), POLLOUT, 0}};
  const int ready = poll(ends.data(), ends.size(), timeout_ms);
  if (ready < 0 && errno != EINTR) return IoError("cannot wait: {}", error_text(errno));
  has_output = ready > 0 && ends[0].revents != 0;
  if (ready <= 0) return Ok();
  if (ends[1].revents != 0) drain_errors();
  return ends[2].revents != 0 ? feed() : Ok();
}

// Writes what the pipe takes.
Status PipedBytes::feed() {
  if (begin_ == end_) {
    MILLRACE_ASSIGN_OR_RETURN(end_, from_->read(piece_.data(), piece_.size()));
    begin_ = 0;
    if (end_ == 0) {
      input_.reset();
      return Ok();
    }
  }
  const ssize_t done = write_quietly(input_.get(), piece_.data() + begin_, end_ - begin_);
  if (done >= 0) {
    begin_ += static_cast<size_t>(done);
  } else if (errno == EPIPE) {
    input_.reset();  // the command reads no more
  } else if (errno != EAGAIN && errno != EINTR) {
    return IoError("cannot write to the pipe_command: {}", error_text(errno));
  }
  return Ok();
}

void PipedBytes::drain_errors() {
  std::array<char, 4096> piece{};
  for (int reads = 0; reads < kErrorReads && errors_.is_open(); ++reads) {
    const ssize_t done = ::read(errors_.get(), piece.data(), piece.size());
    if (done > 0) tail_.add({piece.data(), static_cast<size_t>(done)});
    if (done > 0 || (done < 0 && errno == EINTR)) continue;
    if (done == 0 || errno != EAGAIN) errors_.reset();
    return;
  }
}

StatusOr<size_t> PipedBytes::read(char* to, size_t size) {
  while (output_.is_open()) {
    if (stopped_ && stopped_()) return IoError("the pipe_command was stopped");
    bool has_output = false;
    MILLRACE_RETURN_IF_ERROR(await(kPollMs, has_output));
    if (!has_output) continue;
    const ssize_t done = ::read(output_.get(), to, size);
    if (done > 0) return static_cast<size_t>(done);
    if (done == 0) output_.reset();
    if (done < 0 && errno != EAGAIN && errno != EINTR)
      return IoError("cannot read from the pipe_command: {}", error_text(errno));
  }
  if (child_ > 0) outcome_ = finish();
  MILLRACE_RETURN_IF_ERROR(outcome_);
  return size_t{0};
}

// Waits for the end of the command. Processes that it leaves behind may keep standard error open,
// so that its end is no sign.
Status PipedBytes::finish() {
  input_.reset();
  while (child_ > 0) {
    if (stopped_ && stopped_()) return IoError("the pipe_command was stopped");
    int status = 0;
    const pid_t ended = waitpid(child_, &status, WNOHANG);
    if (ended < 0 && errno == EINTR) continue;
    if (ended < 0) {
      const int error = errno;
      child_ = 0;
      return IoError("the status of the pipe_command is not known: {}", error_text(error));
    }
    bool has_output = false;
    if (ended == 0) {
      MILLRACE_RETURN_IF_ERROR(await(kExitPollMs, has_output));
      continue;
    }
    child_ = 0;
    drain_errors();
    return ended_as(status);
  }
  return Ok();
}

Status PipedBytes::ended_as(int status) const {
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return Ok();
  const std::string how = WIFSIGNALED(status)
                              ? fmt::format("was ended by signal {}", WTERMSIG(status))
                              : fmt::format("ended with status {}", WEXITSTATUS(status));
  const std::string said = tail_.shown();
  return IoError("the pipe_command {}{}{}", how, said.empty() ? "" : ": ", said);
}

}  // namespace piped_bytes

StatusOr<std::unique_ptr<InputBytes>> pipe_through(const std::string& command,
                                                   std::unique_ptr<InputBytes> from,
                                                   std::function<bool()> stopped) {
  auto bytes = std::make_unique<piped_bytes::PipedBytes>(std::move(from), std::move(stopped));
  MILLRACE_RETURN_IF_ERROR(bytes->start(command));
  return std::unique_ptr<InputBytes>(std::move(bytes));
}

}  // namespace millrace::io

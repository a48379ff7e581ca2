#pragma once

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace millrace::spawn {

/// A program that a test starts; it is killed when the test ends. Its output is written to a file.
class Process {
 public:
  /// \param environment  NAME=VALUE, added to that of the test
  explicit Process(const std::vector<std::string>& command,
                   const std::vector<std::string>& environment = {}) {
    char name[] = "/tmp/millrace_process_XXXXXX";
    const int file = mkstemp(name);
    output_ = name;
    pid_ = fork();
    if (pid_ == 0) {
      dup2(file, STDOUT_FILENO);
      dup2(file, STDERR_FILENO);
      for (const std::string& entry : environment) {
        const size_t sign = entry.find('=');
        setenv(entry.substr(0, sign).c_str(), entry.substr(sign + 1).c_str(), 1);
      }
      std::vector<char*> arguments;
      for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
      arguments.push_back(nullptr);
      execvp(arguments[0], arguments.data());
      _exit(127);
    }
    close(file);
  }
  Process(Process&& other) noexcept
      : pid_(std::exchange(other.pid_, -1)),
        code_(other.code_),
        output_(std::exchange(other.output_, {})) {}
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    if (!output_.empty()) std::filesystem::remove(output_);
  }

  [[nodiscard]] pid_t pid() const { return pid_; }
  void signal(int number) const { kill(pid_, number); }

  /// Exit code, 128 + signal, or -1 if it is still running after this time.
  int wait(int timeout_ms) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
    while (pid_ > 0) {
      int status = 0;
      if (waitpid(pid_, &status, WNOHANG) == pid_) {
        pid_ = -1;
        code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        break;
      }
      if (std::chrono::steady_clock::now() >= deadline) return -1;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return code_;
  }

  /// Its output so far.
  [[nodiscard]] std::string output() const {
    std::ifstream file(output_);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }
  /// Waits until it has written a text; false if it has ended without that, or after this time.
  [[nodiscard]] bool has_written(const std::string& text, int timeout_ms) const {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
    while (output().find(text) == std::string::npos) {
      siginfo_t info{};
      const bool ended = pid_ <= 0 || (waitid(P_PID, static_cast<id_t>(pid_), &info,
                                              WEXITED | WNOHANG | WNOWAIT) == 0 &&
                                       info.si_pid != 0);
      if (ended || std::chrono::steady_clock::now() >= deadline)
        return output().find(text) != std::string::npos;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return true;
  }

 private:
  pid_t pid_ = -1;
  int code_ = -1;
  std::string output_;
};

/// "127.0.0.1:port" with ports that were free a moment ago, separated by commas.
inline std::string free_endpoints(int count) {
  std::string list;
  std::vector<int> sockets;
  for (int i = 0; i < count; ++i) {
    const int file = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    bind(file, reinterpret_cast<sockaddr*>(&address), size);
    getsockname(file, reinterpret_cast<sockaddr*>(&address), &size);
    list += (i == 0 ? "127.0.0.1:" : ",127.0.0.1:") + std::to_string(ntohs(address.sin_port));
    sockets.push_back(file);
  }
  for (const int file : sockets) close(file);
  return list;
}

/// Path of a program of the build: "run-program".
inline std::string tool(const std::string& name) {
  const char* const folder = std::getenv("MILLRACE_BIN_DIR");
  return std::string(folder == nullptr ? "." : folder) + "/" + name;
}

}  // namespace millrace::spawn

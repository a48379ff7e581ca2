#pragma once

#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>

#include <gtest/gtest.h>
#include <sys/wait.h>

namespace millrace::tools {

/// How a tool ended.
struct ToolEnd {
  int code = -1;    ///< -1: by a signal
  std::string out;  ///< stdout and stderr
};

/// Runs a line of a shell that begins with the name of a tool, and waits for its end.
inline ToolEnd run_tool(const std::string& line) {
  const char* const folder = std::getenv("MILLRACE_BIN_DIR");
  EXPECT_NE(folder, nullptr);
  const std::string command = std::string(folder == nullptr ? "." : folder) + "/" + line + " 2>&1";
  std::FILE* const pipe = ::popen(command.c_str(), "r");
  ToolEnd end;
  std::array<char, 4096> buffer{};
  for (size_t got = 0; (got = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;)
    end.out.append(buffer.data(), got);
  const int status = ::pclose(pipe);
  end.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return end;
}

}  // namespace millrace::tools

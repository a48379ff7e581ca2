#pragma once

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace millrace::tools {

/// How a tool ended.
struct ProgramToolsTestResult {
  int code;
  std::string out;  ///< stdout and stderr
};

/// A folder in which a test writes files and starts tools.
class ProgramTools : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() /
              ("millrace_program_tools_" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  [[nodiscard]] std::string path(const std::string& name) const { return folder_ / name; }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(path(name)) << text;
    return path(name);
  }

  static ProgramToolsTestResult run(const std::string& arguments) {
    const char* const folder = std::getenv("MILLRACE_BIN_DIR");
    EXPECT_NE(folder, nullptr);
    const std::string command = std::string(folder == nullptr ? "." : folder) + "/" + arguments;
    std::FILE* const pipe = ::popen((command + " 2>&1").c_str(), "r");
    ProgramToolsTestResult result{-1, ""};
    std::array<char, 4096> buffer{};
    for (size_t got = 0; (got = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;)
      result.out.append(buffer.data(), got);
    const int status = ::pclose(pipe);
    result.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    return result;
  }

  std::filesystem::path folder_;
};

}  // namespace millrace::tools

#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include "framework/base/file.h"

namespace millrace::testing {

/// A new folder for one test, removed with all its contents.
class TempFolder {
 public:
  TempFolder() {
    const auto* const test = ::testing::UnitTest::GetInstance()->current_test_info();
    path_ = ::testing::TempDir() + test->test_suite_name() + "." + test->name() + "." +
            std::to_string(::getpid());
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  ~TempFolder() { std::filesystem::remove_all(path_); }

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

/// Sorted names in a folder.
inline std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    names.push_back(entry.path().filename());
  std::ranges::sort(names);
  return names;
}

/// Content of a file, which must exist.
inline std::string bytes_of(const std::string& path) {
  const auto bytes = read_file(path, int64_t{1} << 30U);
  EXPECT_TRUE(bytes.ok()) << bytes.status().to_string();
  return bytes.ok() ? *bytes : std::string();
}

/// Writes a small file for a test.
inline void put_file(const std::string& path, const std::string& bytes) {
  const Status status = write_file_atomically(path, bytes, Replace::kYes);
  ASSERT_TRUE(status.ok()) << status.to_string();
}

}  // namespace millrace::testing

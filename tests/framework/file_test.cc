// Reading refuses anything that is not a regular file; writing never leaves a partial file.

#include "framework/base/file.h"

#include <filesystem>
#include <fstream>
#include <thread>

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

namespace millrace {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class FileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("millrace_file_test_" + std::to_string(::getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  [[nodiscard]] std::string path(const std::string& name) const { return folder_ / name; }
  static std::string content(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  }
  static std::string read_error(const std::string& path, StatusCode code) {
    const StatusOr<std::string> bytes = read_file(path, 100);
    EXPECT_FALSE(bytes.ok());
    EXPECT_EQ(bytes.status().code(), code);
    return bytes.status().to_string();
  }

  fs::path folder_;
};

TEST_F(FileTest, ReadsUpToTheLimit) {
  std::ofstream(path("f")) << std::string(100, 'x');
  EXPECT_EQ(read_file(path("f"), 100).value(), std::string(100, 'x'));
  std::ofstream(path("f")) << std::string(101, 'x');
  EXPECT_THAT(read_error(path("f"), StatusCode::kResource), HasSubstr("above the limit of 100"));
  std::ofstream(path("e")) << "";
  EXPECT_EQ(read_file(path("e"), 100).value(), "");
}

TEST_F(FileTest, RefusesWhatIsNoRegularFile) {
  EXPECT_THAT(read_error(folder_, StatusCode::kInvalidData), HasSubstr("found a directory"));
  ASSERT_EQ(::mkfifo(path("fifo").c_str(), 0600), 0);
  EXPECT_THAT(read_error(path("fifo"), StatusCode::kInvalidData), HasSubstr("found a FIFO"));
  EXPECT_THAT(read_error("/dev/zero", StatusCode::kInvalidData), HasSubstr("found a device"));
  EXPECT_THAT(read_error(path("no"), StatusCode::kNotFound), HasSubstr(path("no")));
}

TEST_F(FileTest, WritesUnderATemporaryName) {
  ASSERT_TRUE(write_file_atomically(path("f"), "one").ok());
  EXPECT_EQ(content(path("f")), "one");
  const Status refused = write_file_atomically(path("f"), "two");
  EXPECT_EQ(refused.code(), StatusCode::kUsage);
  EXPECT_EQ(content(path("f")), "one");
  ASSERT_TRUE(write_file_atomically(path("f"), "two", Replace::kYes).ok());
  EXPECT_EQ(content(path("f")), "two");
  ASSERT_TRUE(write_file_atomically(path("f"), "three", Replace::kYes, Flush::kNo).ok());
  EXPECT_EQ(content(path("f")), "three");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 1);
}

TEST_F(FileTest, ThreadsMayWriteTheSameFile) {
  const std::string texts[] = {std::string(100000, 'a'), std::string(100000, 'b')};
  // left by a killed process with the same process id
  std::ofstream(path("f") + ".tmp." + std::to_string(::getpid()) + ".0") << "rest";
  const auto write = [&](const std::string& text) {
    for (int i = 0; i < 50; ++i)
      EXPECT_TRUE(write_file_atomically(path("f"), text, Replace::kYes, Flush::kNo).ok());
  };
  {
    const std::jthread other(write, texts[0]);
    write(texts[1]);
  }
  EXPECT_THAT(content(path("f")), ::testing::AnyOf(texts[0], texts[1]));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 2);
}

TEST_F(FileTest, FollowsLinksAndWritesDevices) {
  std::ofstream(path("target")) << "old";
  fs::create_symlink("target", path("link"));
  ASSERT_TRUE(write_file_atomically(path("link"), "new", Replace::kYes).ok());
  EXPECT_TRUE(fs::is_symlink(path("link")));
  EXPECT_EQ(content(path("target")), "new");
  EXPECT_TRUE(write_file_atomically("/dev/null", "x", Replace::kYes).ok());
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
}

TEST_F(FileTest, FailuresLeaveNothingBehind) {
  const Status full = write_file_atomically("/dev/full", "x");
  EXPECT_EQ(full.code(), StatusCode::kIo);
  EXPECT_EQ(write_file_atomically(path("no/f"), "x").code(), StatusCode::kNotFound);
  EXPECT_EQ(write_file_atomically(folder_, "x", Replace::kYes).code(), StatusCode::kInvalidData);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 0);
}

}  // namespace
}  // namespace millrace

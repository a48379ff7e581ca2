#include "io/checkpoint/direct_file.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "io/checkpoint/file_calls.h"
#include "tests/io/temp_folder.h"

namespace millrace::io {
namespace {

using testing::bytes_of;
using testing::TempFolder;

std::string some_bytes(size_t size) {
  std::string bytes(size, '\0');
  uint32_t state = 12345;
  for (char& byte : bytes)
    byte = static_cast<char>((state = state * 1664525U + 1013904223U) >> 24U);
  return bytes;
}

// Writes the bytes in chunks of odd sizes.
Status write_in_pieces(WritableFile& file, std::string_view bytes) {
  size_t size = 1;
  while (!bytes.empty()) {
    const std::string_view first = bytes.substr(0, size);
    bytes.remove_prefix(first.size());
    const std::string_view second = bytes.substr(0, 2 * size);
    bytes.remove_prefix(second.size());
    const std::vector<std::string_view> pieces = {first, second};
    MILLRACE_RETURN_IF_ERROR(file.write(pieces));
    size = std::min<size_t>(size * 3, size_t{3} << 20U);
  }
  return Ok();
}

TEST(DirectFile, IsUsedWhereTheFileSystemAllowsIt) {
  const TempFolder folder;
  const std::string path = folder / "file";
  const int other = ::open((folder / "other").c_str(), O_WRONLY | O_CREAT | O_DIRECT, 0666);
  if (other < 0) GTEST_SKIP() << "the file system has no direct writes";
  ::close(other);
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT, 0666);
  {
    const std::unique_ptr<WritableFile> file = direct_file(fd, path);
    ASSERT_NE(file, nullptr);
    EXPECT_NE(::fcntl(fd, F_GETFL) & O_DIRECT, 0);
    ASSERT_TRUE(write_in_pieces(*file, some_bytes(5000)).ok());
    ASSERT_TRUE(file->close().ok());
    EXPECT_LT(::fcntl(fd, F_GETFD), 0);
    EXPECT_TRUE(file->close().ok()) << "again: nothing is left to close";
  }
  EXPECT_GE(::fcntl(STDOUT_FILENO, F_GETFD), 0) << "no other file was closed";
  EXPECT_TRUE(bytes_of(path) == some_bytes(5000));
}

// The first size bypasses the cache if the file system supports it; then sizes around sectors and
// blocks; the last size never does.
TEST(DirectFile, HoldsWhatWasWritten) {
  const TempFolder folder;
  const auto calls = system_file_calls();
  constexpr size_t kBlock = size_t{2} << 20U;
  for (const size_t size : {4 * kBlock, 4 * kBlock + 1, 4 * kBlock + 4095, 4 * kBlock + 4096,
                            5 * kBlock - 1, 6 * kBlock + 12345, kBlock}) {
    const std::string bytes = some_bytes(size);
    const std::string path = folder.path() + "/" + std::to_string(size);
    auto file = calls->create(path, {.bytes = size, .sync = true});
    ASSERT_TRUE(file.ok()) << file.status().to_string();
    ASSERT_TRUE(write_in_pieces(**file, bytes).ok());
    ASSERT_TRUE((*file)->sync().ok());
    EXPECT_EQ(bytes_of(path).size(), size);
    ASSERT_TRUE((*file)->close().ok());
    EXPECT_TRUE(bytes_of(path) == bytes) << size;
  }
}

// A hint that was too large or too small, writes after sync(), and no call of sync().
TEST(DirectFile, TakesBytesInAnyOrderOfCalls) {
  const TempFolder folder;
  const auto calls = system_file_calls();
  const std::string bytes = some_bytes((size_t{9} << 20U) + 77);
  const std::string path = folder.path() + "/file";
  auto file = calls->create(path, {.bytes = uint64_t{8} << 20U, .sync = true});
  ASSERT_TRUE(file.ok());
  const std::string_view whole = bytes;
  const std::vector<std::string_view> parts = {whole.substr(0, 5000), whole.substr(5000, 3),
                                               whole.substr(5003)};
  for (const std::string_view part : parts) {
    ASSERT_TRUE((*file)->write({&part, 1}).ok());
    if (part.size() < 4096) {
      ASSERT_TRUE((*file)->sync().ok());
      EXPECT_EQ(bytes_of(path).size(), 5003U);
    }
  }
  ASSERT_TRUE((*file)->close().ok());
  EXPECT_TRUE(bytes_of(path) == bytes);
}

}  // namespace
}  // namespace millrace::io

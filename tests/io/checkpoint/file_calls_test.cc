// The system calls of checkpoints: what they say about folders, and descriptors.
#include "io/checkpoint/file_calls.h"

#include <cerrno>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include "tests/io/checkpoint/states.h"
#include "tests/io/temp_folder.h"

namespace millrace::io {
namespace {

using ::testing::HasSubstr;
using testing::outcome;
using testing::TempFolder;

bool is_open(int fd) {
  return fcntl(fd, F_GETFD) != -1;
}

TEST(FileCalls, MakeFolderSaysWhetherItExisted) {
  const TempFolder folder;
  const auto calls = system_file_calls();
  const std::string path = folder / "new";
  errno = EEXIST;  // of an earlier call
  const auto made = calls->make_folder(path);
  ASSERT_EQ(outcome(made), "ok");
  EXPECT_TRUE(*made);
  EXPECT_FALSE(calls->make_folder(path).value());
  testing::put_file(folder / "file", "x");
  EXPECT_THAT(outcome(calls->make_folder(folder / "file")),
              HasSubstr("expected a folder, found a file"));
  EXPECT_EQ(calls->make_folder(folder / "no/parent").status().code(), StatusCode::kNotFound);
}

// In a process without standard input a file may have descriptor 0.
TEST(FileCalls, DescriptorZeroIsClosedLikeOthers) {
  const TempFolder folder;
  const int kept = dup(0);
  ASSERT_GE(kept, 0);
  close(0);
  const auto file = system_file_calls()->create(folder / "f", {});
  ASSERT_EQ(outcome(file), "ok");
  const bool was_open = is_open(0);
  EXPECT_EQ(outcome((*file)->close()), "ok");
  const bool still_open = is_open(0);
  dup2(kept, 0);
  close(kept);
  EXPECT_TRUE(was_open);
  EXPECT_FALSE(still_open);
}

}  // namespace
}  // namespace millrace::io

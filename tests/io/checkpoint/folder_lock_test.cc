// One process at a time writes to a folder: the lock file, and the error for a second process.
#include "io/checkpoint/folder_lock.h"

#include <atomic>
#include <thread>

#include <gmock/gmock.h>

#include "tests/io/checkpoint/states.h"
#include "tests/io/temp_folder.h"

namespace millrace::io {
namespace {

using ::testing::HasSubstr;
using testing::outcome;
using testing::TempFolder;

TEST(FolderLockTest, TheFileIsBesideTheFolderWhichNeedNotExist) {
  const TempFolder folder;
  const auto lock = FolderLock::take(folder / "new/above/c//", "trainer 3");
  ASSERT_EQ(outcome(lock), "ok");
  EXPECT_TRUE(lock->is_held());
  EXPECT_THAT(testing::bytes_of(folder / "new/above/c.lock"), HasSubstr(", trainer 3"));
  EXPECT_THAT(outcome(FolderLock::take(folder / "new/above/c", "trainer 4")),
              HasSubstr(", trainer 3: two writers would mix their checkpoints"));
}

// A file that another process replaces after it was opened is not locked, and what it says does not
// count: no process may hold it.
TEST(FolderLockTest, ReplacedFilesNameNoProcess) {
  const TempFolder folder;
  std::atomic<bool> done = false;
  const std::jthread replacing([&] {
    while (!done) testing::put_file(folder / "c.lock", "a process that has ended");
  });
  int refused = 0;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  while (refused < 3 && std::chrono::steady_clock::now() < end) {
    const auto lock = FolderLock::take(folder / "c", "trainer 3");
    if (lock.ok()) continue;
    ++refused;
    EXPECT_THAT(outcome(lock), HasSubstr("the folder is in use by another process:"));
  }
  done = true;
}

}  // namespace
}  // namespace millrace::io

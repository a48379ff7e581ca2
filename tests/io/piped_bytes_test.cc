// Files that are sent through a command before their lines are read.

#include "io/multi_slot/piped_bytes.h"

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <zlib.h>

#include "io/multi_slot/reader.h"
#include "tests/io/temp_folder.h"

namespace millrace::io {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class PipedFiles : public ::testing::Test {
 protected:
  PipedFiles() { source_.slots = {{.name = "ids"}}; }
  ~PipedFiles() override {
    // no process is left, not even one that has ended
    EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
    EXPECT_EQ(errno, ECHILD);
  }

  std::string write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return folder_ / name;
  }
  Status read(std::vector<int64_t>& ids) const {
    MultiSlotReader reader(source_);
    SlotRows rows;
    while (true) {
      MILLRACE_RETURN_IF_ERROR(reader.next(rows));
      if (rows.rows == 0) return Ok();
      ids.insert(ids.end(), rows.columns[0].ids.begin(), rows.columns[0].ids.end());
    }
  }
  Status failure_of(const std::string& command) {
    source_.pipe_command = command;
    std::vector<int64_t> ids;
    return read(ids);
  }

  testing::TempFolder folder_;
  MultiSlotSource source_;
};

TEST_F(PipedFiles, EveryFileHasACommand) {
  const std::string zipped = folder_ / "c.gz";
  const gzFile file = gzopen(zipped.c_str(), "wb");
  gzputs(file, "7\n8\n");
  gzclose(file);
  source_.files = {write("a", "1\n2\n"), write("b", "3"), write("empty", ""), zipped};
  source_.pipe_command = "sed 's/^/1 /' | cat";
  for (const int readers : {1, 3}) {
    source_.readers = readers;
    std::vector<int64_t> ids;
    ASSERT_TRUE(read(ids).ok());
    EXPECT_THAT(ids, ::testing::UnorderedElementsAre(1, 2, 3, 7, 8));
  }
}

TEST_F(PipedFiles, ManyBytesPassBothWays) {
  std::string text;
  for (int i = 0; i < 200'000; ++i) text += "1 " + std::to_string(i) + "\n";
  source_.files = {write("a", text)};
  source_.batch_size = 1000;
  source_.pipe_command = "cat; echo 1 -1";
  std::vector<int64_t> ids;
  ASSERT_TRUE(read(ids).ok());
  ASSERT_EQ(ids.size(), 200'001U);
  for (int i = 0; i < 200'000; ++i) ASSERT_EQ(ids[static_cast<size_t>(i)], i);
}

TEST_F(PipedFiles, ACommandMayLeaveInputUnread) {
  source_.files = {write("a", "1 1\n" + std::string(1 << 20, '\n'))};
  source_.pipe_command = "head -n 1";
  std::vector<int64_t> ids;
  const Status status = read(ids);  // SIGPIPE would end this process
  ASSERT_TRUE(status.ok()) << status.to_string();
  EXPECT_THAT(ids, ElementsAre(1));
}

TEST_F(PipedFiles, AFailingCommandIsAnErrorOfItsFile) {
  source_.files = {write("a", "1 1\n1 2\n")};
  source_.batch_size = 1;
  source_.pipe_command = "head -n 1; echo 'no such thing' >&2; echo twice >&2; exit 3";
  std::vector<int64_t> ids;
  const Status status = read(ids);
  EXPECT_EQ(status.code(), StatusCode::kIo);
  EXPECT_EQ(status.location().file, source_.files[0]);
  EXPECT_EQ(status.message(), "the pipe_command ended with status 3: no such thing; twice");
  EXPECT_THAT(ids, ElementsAre(1));  // the batches before the error
  EXPECT_THAT(failure_of("kill -9 $$").message(), HasSubstr("was ended by signal 9"));
  EXPECT_THAT(failure_of("no-such-command").message(),
              HasSubstr("ended with status 127: bash: line 1: no-such-command"));
  // the first command of a pipeline counts, too
  EXPECT_THAT(failure_of("(cat; exit 4) | cat").message(), HasSubstr("status 4"));
}

TEST_F(PipedFiles, TheLastLineOfAFailingCommandIsNotTaken) {
  source_.files = {write("a", "")};
  source_.batch_size = 1;
  source_.pipe_command = "printf '1 1\\n1 12'; exit 1";
  std::vector<int64_t> ids;
  EXPECT_FALSE(read(ids).ok());
  EXPECT_THAT(ids, ElementsAre(1));
}

TEST_F(PipedFiles, ErrorsWithoutEndAreBounded) {
  source_.files = {write("a", "1 1\n")};
  const Status status = failure_of("head -c 3000000 /dev/zero | tr '\\0' 'e' >&2; cat; exit 2");
  EXPECT_THAT(status.message(), HasSubstr("status 2: eeee"));
  EXPECT_LT(status.message().size(), 1100U);
}

TEST_F(PipedFiles, DamagedFilesAreErrors) {
  source_.files = {write("a.gz", "\x1f\x8b not gzip")};
  EXPECT_THAT(failure_of("cat").to_string(), HasSubstr("damaged gzip"));
  source_.files = {folder_ / "none"};
  EXPECT_EQ(failure_of("cat").code(), StatusCode::kNotFound);
}

TEST_F(PipedFiles, AProcessThatIsLeftBehindIsNotWaitedFor) {
  source_.files = {write("a", "1 1\n")};
  const auto start = std::chrono::steady_clock::now();
  // it keeps standard error open
  const Status status = failure_of("sleep 20 >/dev/null & cat");
  EXPECT_TRUE(status.ok()) << status.to_string();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

TEST_F(PipedFiles, AReaderThatEndsEarlyKillsItsCommands) {
  const std::string file = folder_ / "signs";
  const auto signs = [&] { return std::filesystem::file_size(file); };
  write("signs", "");
  source_.files = {write("a", "1 1\n")};
  source_.pipe_command = "cat; (while sleep 0.01; do echo x >> " + file + "; done) | cat";
  {
    const MultiSlotReader reader(source_);
    while (signs() == 0) std::this_thread::yield();
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const auto before = signs();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_EQ(signs(), before);
}

TEST_F(PipedFiles, ValuesAreCountedInTheOutput) {
  source_.format = {.delimited = true, .columns = 1};
  source_.slots[0].cells = {.min_count = 2, .rare_id = 0};
  source_.files = {write("a", "1\n2\n3\n")};
  source_.pipe_command = "sed 's/3/2/'";
  auto counts = count_values(source_);
  ASSERT_TRUE(counts.ok()) << counts.status().to_string();
  source_.counts = *counts;
  std::vector<int64_t> ids;
  ASSERT_TRUE(read(ids).ok());
  EXPECT_THAT(ids, ElementsAre(0, 2, 2));
  source_.pipe_command = "exit 5";
  EXPECT_THAT(count_values(source_).status().message(), HasSubstr("status 5"));
}

}  // namespace
}  // namespace millrace::io

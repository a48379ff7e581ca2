#include <algorithm>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io/checkpoint/folder.h"
#include "io/checkpoint/folder_lock.h"
#include "ps/server/calls_record.h"
#include "tests/ps/server_fixture.h"

// Start of a server with a folder of snapshots: it continues from an intact one, starts from
// scratch if there never was one, and refuses to start if all are damaged.

namespace millrace::ps {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Floats = std::vector<float>;

const std::map<std::string, Floats> kSnapshotsStart = {{"w", {8, 16}}, {"rate", {0.5}}};

class ServerSnapshots : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = ::testing::TempDir() + "/ps_snapshots_of_" +
            ::testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(root_);
    options_.snapshot_root = root_;
    options_.snapshot_every = 1;
    options_.snapshot_durable = true;
    options_.log = [this](const std::string& line) { log_ += line + "\n"; };
  }
  void TearDown() override { fs::remove_all(root_); }

  // A job with the given number of steps; each changes w by -1 and -2, and saves a snapshot.
  Status train(int steps, Floats& seen) {
    const auto way = std::make_shared<InprocTransport>();
    TestServer server(way, sync_server(1), kSnapshotsStart, options_);
    TestTrainer trainer(way, 0, 20'000, options_.job);
    for (int k = 0; k < steps; ++k) MILLRACE_RETURN_IF_ERROR(trainer.step("w@GRAD", {2, 4}, seen));
    return server.end(true);
  }
  // The status of a server that is started with the folder; the server is stopped if it serves.
  Status start() { return start(sync_server(1)); }
  Status start(const std::string& program) {
    TestServer server(std::make_shared<InprocTransport>(), program, kSnapshotsStart, options_);
    return server.end(true);
  }
  [[nodiscard]] std::vector<std::string> folders() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(root_ + "/server-0"))
      names.push_back(entry.path().string());
    std::sort(names.begin(), names.end());
    return names;
  }
  // The steps applied in the snapshots of the folder, oldest first.
  [[nodiscard]] std::vector<int64_t> steps() const {
    std::vector<int64_t> found;
    const auto entries = io::list_checkpoints(root_ + "/server-0");
    EXPECT_TRUE(entries.ok()) << entries.status().to_string();
    for (const io::CheckpointEntry& entry : *entries) {
      const auto checkpoint = io::Checkpoint::open(entry.folder);
      EXPECT_TRUE(checkpoint.ok()) << checkpoint.status().to_string();
      const auto text = checkpoint->load_record(kCallsRecord);
      EXPECT_TRUE(text.ok()) << text.status().to_string();
      const auto calls = parse_calls(*text);
      EXPECT_TRUE(calls.ok()) << calls.status().to_string();
      found.push_back(calls->applied);
    }
    return found;
  }
  // Changes a byte in the middle of every file of values.
  static void damage(const std::string& folder) {
    for (const auto& entry : fs::directory_iterator(folder)) {
      if (entry.path().extension() != ".safetensors") continue;
      std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
      const auto middle = static_cast<std::streamoff>(entry.file_size() / 2);
      file.seekg(middle);
      const int byte = file.get();
      file.seekp(middle);
      file.put(static_cast<char>(byte ^ 0x40));
    }
  }

  std::string root_;
  ServerOptions options_;
  std::string log_;
};

// Other servers may have to go back to a step that is two snapshots old; what a server saves
// because it is stopped must not displace it.
TEST_F(ServerSnapshots, ThoseAtTheEndOfAProcessDisplaceNoOther) {
  options_.snapshot_every = 2;
  Floats seen;
  ASSERT_TRUE(train(11, seen).ok());
  EXPECT_THAT(steps(), ElementsAre(6, 8, 10, 11));
}

// After a restart between two snapshots, the next one is at a step at which other servers have one.
TEST_F(ServerSnapshots, AreOfTheSameStepsAfterARestart) {
  options_.snapshot_every = 4;
  const auto way = std::make_shared<InprocTransport>();
  auto server = std::make_unique<TestServer>(way, sync_server(1), kSnapshotsStart, options_);
  TestTrainer trainer(way, 0, 20'000, options_.job);
  Floats seen;
  for (int k = 0; k < 9; ++k) {
    ASSERT_TRUE(trainer.step("w@GRAD", {2, 4}, seen).ok());
    if (k != 4) continue;
    ASSERT_TRUE(server->end(true).ok());
    server = std::make_unique<TestServer>(way, sync_server(1), kSnapshotsStart, options_);
  }
  EXPECT_THAT(steps(), ElementsAre(0, 4, 5, 8));
}

TEST_F(ServerSnapshots, ADamagedOneIsPassedOverForTheOneBefore) {
  Floats seen;
  ASSERT_TRUE(train(3, seen).ok());
  ASSERT_GE(folders().size(), 2U);
  damage(folders().back());
  EXPECT_TRUE(start().ok());
  EXPECT_THAT(log_, HasSubstr("skipped a newer snapshot"));
}

TEST_F(ServerSnapshots, AServerRefusesToStartWhereAllAreDamaged) {
  Floats seen;
  ASSERT_TRUE(train(3, seen).ok());
  const auto before = folders();
  for (const std::string& folder : before) damage(folder);
  const Status status = start();
  EXPECT_EQ(status.code(), StatusCode::kInvalidData);
  EXPECT_THAT(
      status.to_string(),
      AllOf(HasSubstr(root_ + "/server-0"),
            HasSubstr(fmt::format("none of the {} checkpoints can be loaded", before.size())),
            HasSubstr(before.back()), HasSubstr("move the folder away")));
  // and does not change them, so that they can be repaired
  EXPECT_EQ(folders(), before);
}

TEST_F(ServerSnapshots, OneThatWasNeverFinishedIsNone) {
  Floats seen;
  ASSERT_TRUE(train(1, seen).ok());
  for (const std::string& folder : folders()) fs::remove(folder + "/manifest.json");
  ASSERT_TRUE(train(1, seen).ok());
  EXPECT_THAT(seen, ElementsAre(7, 14));
  EXPECT_THAT(log_, HasSubstr("no complete snapshot in " + root_ + "/server-0"));
}

TEST_F(ServerSnapshots, AnEmptyFolderIsABeginning) {
  fs::create_directories(root_ + "/server-0");
  Floats seen;
  ASSERT_TRUE(train(1, seen).ok());
  EXPECT_THAT(seen, ElementsAre(7, 14));
  ASSERT_TRUE(train(0, seen).ok());
  EXPECT_THAT(log_, HasSubstr("loaded snapshot"));
}

// A folder of another job is no state of this one, although names and trainers may agree.
TEST_F(ServerSnapshots, OneOfAnotherJobIsRefused) {
  options_.job = "clicks";
  Floats seen;
  ASSERT_TRUE(train(2, seen).ok());
  const auto refused = [&](const Status& status, const char* what) {
    EXPECT_EQ(status.code(), StatusCode::kInvalidData) << status.to_string();
    EXPECT_THAT(status.to_string(), AllOf(HasSubstr("the snapshot belongs to another job: "),
                                          HasSubstr(what), HasSubstr(root_ + "/server-0")));
  };
  const auto changed = [](const char* from, const char* to) {
    std::string program = sync_server(1);
    program.replace(program.find(from), std::strlen(from), to);
    return program;
  };
  refused(start(async_server(1)), "expected 'mode async', found 'mode sync'");
  refused(start(changed("persist rate: f32(1)", "persist rate: f32(1)\n  persist moment: f32(2)")),
          "expected 'var moment f32 [2]', found nothing");
  refused(start(changed("persist w: f32(2)", "persist w: f32(3)")),
          "expected 'var w f32 [3]', found 'var w f32 [2]'");
  refused(start(changed("persist w@GRAD: f32(2)", "var w@GRAD: f32(2)")),
          "expected nothing, found 'var w@GRAD f32 [2]'");
  // names and dims agree, but not what is computed, who sends, or which rows these are
  refused(start(changed("scale: 1, op_role: 0", "scale: 0.5, op_role: 0")),
          "expected 'op 1 of block 1: scale");
  refused(start(changed("Fanin: 1", "Fanin: 2")), "expected 'trainers 2', found 'trainers 1'");
  options_.plan = {"slice w f32 [2] from element 2 of v f32 [4]"};
  EXPECT_TRUE(start().ok()) << "a snapshot without a plan tells nothing about it";
  options_.plan.clear();
  options_.job = "views";
  refused(start(), "expected 'job views', found 'job clicks'");
  options_.job.clear();
  EXPECT_TRUE(start().ok());
  options_.job = "clicks";
  EXPECT_TRUE(start().ok());
}

// Slices of two plans may have the same names and dims.
TEST_F(ServerSnapshots, OneOfOtherSlicesIsRefused) {
  options_.plan = {"server 0 of 2", "slice w f32 [2] from element 0 of v f32 [4]"};
  Floats seen;
  ASSERT_TRUE(train(2, seen).ok());
  options_.plan[1] = "slice w f32 [2] from element 0 of v f32 [6]";
  EXPECT_THAT(start().to_string(),
              AllOf(HasSubstr("expected 'plan: slice w f32 [2] from element 0 of v f32 [6]'"),
                    HasSubstr("found 'plan: slice w f32 [2] from element 0 of v f32 [4]'")));
  options_.plan[1] = "slice w f32 [2] from element 0 of v f32 [4]";
  EXPECT_TRUE(start().ok());
}

// Two servers that write one folder would remove and mix each other's snapshots.
TEST_F(ServerSnapshots, AFolderThatAnotherServerHasIsRefused) {
  {
    const auto held = io::FolderLock::take(root_ + "/server-0", "server 0 at a:1");
    ASSERT_TRUE(held.ok()) << held.status().to_string();
    const Status status = start();
    EXPECT_EQ(status.code(), StatusCode::kResource) << status.to_string();
    EXPECT_THAT(status.to_string(),
                AllOf(HasSubstr(root_ + "/server-0"), HasSubstr("server 0 at a:1"),
                      HasSubstr(fmt::format("in use by process {} on ", ::getpid()))));
    EXPECT_FALSE(fs::exists(root_ + "/server-0"));
  }
  EXPECT_TRUE(start().ok());
}

// The lock ends with its process, however that ends.
TEST_F(ServerSnapshots, AFolderOfAKilledProcessIsFree) {
  fs::create_directories(root_);
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const auto held = io::FolderLock::take(root_ + "/server-0", "server 0 at a:1");
    const char byte = held.ok() ? 'y' : 'n';
    static_cast<void>(::write(ready[1], &byte, 1) == 1);
    for (;;) ::pause();
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  EXPECT_EQ(byte, 'y');
  EXPECT_FALSE(io::FolderLock::take(root_ + "/server-0", "test").ok());
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ::close(ready[0]);
  ::close(ready[1]);
  EXPECT_TRUE(io::FolderLock::take(root_ + "/server-0", "test").ok());
  EXPECT_TRUE(start().ok());
}

// Another process that gets the lock after the file was removed does not share it unnoticed.
TEST_F(ServerSnapshots, ALockWhoseFileWasRemovedIsNotHeld) {
  auto first = io::FolderLock::take(root_ + "/server-0", "first");
  ASSERT_TRUE(first.ok());
  EXPECT_TRUE(first->is_held());
  fs::remove(root_ + "/server-0.lock");
  EXPECT_FALSE(first->is_held());
  const auto second = io::FolderLock::take(root_ + "/server-0", "second");
  EXPECT_TRUE(second.ok());
}

TEST_F(ServerSnapshots, OneThatDoesNotTellItsJobIsRefused) {
  const Value w = floats({1, 2});
  const std::string calls = calls_text({.applied = 1, .trainers = {CallsRecord::Trainer()}});
  io::LocalState state;
  state.add("w", w);
  state.add_record(kCallsRecord, calls);
  ASSERT_TRUE(io::save_checkpoint(state, root_ + "/server-0", 1, {}, 3).ok());
  const Status status = start();
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(status.to_string(), AllOf(HasSubstr("identity"), HasSubstr("which job")));
}

}  // namespace
}  // namespace millrace::ps

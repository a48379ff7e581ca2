// Folders that appear complete or not at all, and what killed processes leave of them.

#include "jobs/checkpoint/staged_folder.h"

#include <csignal>
#include <filesystem>
#include <fstream>
#include <set>

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

namespace millrace::jobs {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class StagedFolders : public ::testing::Test {
 protected:
  void SetUp() override {
    parent_ = fs::temp_directory_path() / ("millrace_staged_" + std::to_string(::getpid()));
    fs::create_directories(parent_);
  }
  void TearDown() override { fs::remove_all(parent_); }

  [[nodiscard]] std::string path(const std::string& name) const { return parent_ / name; }
  void fill(const std::string& name) const {
    fs::create_directories(path(name));
    std::ofstream(path(name) + "/file") << "rest";
  }
  [[nodiscard]] std::set<std::string> names() const {
    std::set<std::string> found;
    for (const fs::directory_entry& entry : fs::directory_iterator(parent_))
      found.insert(entry.path().filename().string());
    return found;
  }

  fs::path parent_;
};

// A process that fills a folder and never commits it. \returns its id once the folder is there
pid_t start_writer(const std::string& target) {
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  char byte = 0;
  if (child == 0) {
    const StatusOr<StagedFolder> staged = StagedFolder::create(target);
    if (!staged.ok() || ::write(ends[1], &byte, 1) != 1) ::_exit(1);
    for (;;) ::pause();
  }
  ::close(ends[1]);
  EXPECT_EQ(::read(ends[0], &byte, 1), 1);
  ::close(ends[0]);
  return child;
}

TEST_F(StagedFolders, WhatKilledProcessesLeftIsRemoved) {
  const std::string own = "out.tmp." + std::to_string(::getpid());
  for (const std::string& name : {std::string("out.tmp.1"), std::string("out.tmp.4711"), own})
    fill(name);
  // names of others
  for (const char* const name : {"other.tmp.1", "out.tmp.1.0", "out.tmp.", "out.tmp.x"}) fill(name);
  StatusOr<StagedFolder> staged = StagedFolder::create(path("out"));
  ASSERT_TRUE(staged.ok()) << staged.status().to_string();
  EXPECT_THAT(names(), ElementsAre("other.tmp.1", "out.tmp.", "out.tmp.1.0", own, "out.tmp.x"));
  EXPECT_TRUE(fs::is_empty(staged->path()));
  ASSERT_TRUE(staged->commit(false).ok());
  EXPECT_TRUE(fs::is_empty(path("out")));
  EXPECT_FALSE(fs::exists(path(own)));
}

TEST_F(StagedFolders, TheFolderOfARunningProcessIsKept) {
  const pid_t writer = start_writer(path("out"));
  const std::string theirs = "out.tmp." + std::to_string(writer);
  const std::string own = "out.tmp." + std::to_string(::getpid());
  {
    const StatusOr<StagedFolder> staged = StagedFolder::create(path("out"));
    ASSERT_TRUE(staged.ok()) << staged.status().to_string();
    EXPECT_EQ(names(), (std::set<std::string>{own, theirs}));
  }
  EXPECT_THAT(names(), ElementsAre(theirs));
  ::kill(writer, SIGKILL);
  ASSERT_EQ(::waitpid(writer, nullptr, 0), writer);
  const StatusOr<StagedFolder> staged = StagedFolder::create(path("out"));
  ASSERT_TRUE(staged.ok()) << staged.status().to_string();
  EXPECT_THAT(names(), ElementsAre(own));
}

TEST_F(StagedFolders, ASecondWriterOfThisProcessIsRefused) {
  const StatusOr<StagedFolder> first = StagedFolder::create(path("out"));
  ASSERT_TRUE(first.ok()) << first.status().to_string();
  std::ofstream(first->path() + "/file") << "values";
  const StatusOr<StagedFolder> second = StagedFolder::create(path("out"));
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(second.status().to_string(), HasSubstr("has locked the folder"));
  EXPECT_TRUE(fs::exists(first->path() + "/file"));
}

}  // namespace
}  // namespace millrace::jobs

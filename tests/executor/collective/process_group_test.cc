// Groups of processes: every engine passes the same checks, and reports ranks that are killed or
// stopped within its deadline.

#include <chrono>
#include <filesystem>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "executor/collective/engines.h"
#include "tests/support/mpirun.h"
#include "tests/support/process.h"

namespace millrace::executor {
namespace {

using millrace::spawn::free_endpoints;
using millrace::spawn::Process;
using ::testing::HasSubstr;

constexpr int kTimeoutMs = 1500;
constexpr int kPatienceMs = 60'000;

std::string program_process_group() {
  return millrace::spawn::tool("../tests/collective_rank");
}

std::vector<Process> start(const std::string& check, int size, const std::string& engine,
                           int timeout_ms, const std::string& folder = {}) {
  const std::string endpoints = free_endpoints(size);
  std::vector<Process> ranks;
  for (int rank = 0; rank < size; ++rank) {
    std::vector<std::string> command{program_process_group(),   check,  std::to_string(rank),
                                     std::to_string(size),      engine, endpoints,
                                     std::to_string(timeout_ms)};
    if (!folder.empty()) command.push_back(folder);
    ranks.emplace_back(command);
  }
  return ranks;
}

class ProcessGroup : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (GetParam() == "gloo" && !has_gloo()) GTEST_SKIP() << "this build has no Gloo";
  }
};

TEST_P(ProcessGroup, AnswersEveryCall) {
  for (const int size : {2, 3}) {
    std::vector<Process> ranks = start("suite", size, GetParam(), 30'000);
    for (Process& rank : ranks) {
      EXPECT_EQ(rank.wait(kPatienceMs), 0) << rank.output();
      EXPECT_THAT(rank.output(), HasSubstr("engine " + GetParam()));
    }
  }
}

TEST_P(ProcessGroup, CarriesCheckpoints) {
  for (const int size : {2, 3}) {
    std::vector<Process> ranks = start("gather", size, GetParam(), 30'000);
    for (Process& rank : ranks) EXPECT_EQ(rank.wait(kPatienceMs), 0) << rank.output();
  }
}

TEST_P(ProcessGroup, FindsTheOthersByAFolder) {
  const auto folder =
      std::filesystem::temp_directory_path() / ("millrace_ranks_" + std::to_string(::getpid()));
  std::vector<Process> ranks = start("suite", 2, GetParam(), 30'000, folder);
  for (Process& rank : ranks) EXPECT_EQ(rank.wait(kPatienceMs), 0) << rank.output();
  std::filesystem::remove_all(folder);
}

// Each rank in turn is killed or stopped; the others report it and end in time.
void expect_named(const std::string& engine, const std::string& check, int signal) {
  for (int victim = 0; victim < 3; ++victim) {
    std::vector<Process> ranks = start(check, 3, engine, kTimeoutMs);
    for (Process& rank : ranks)
      ASSERT_TRUE(rank.has_written("step 5", kPatienceMs)) << rank.output();
    ranks[static_cast<size_t>(victim)].signal(signal);
    const auto start_time = std::chrono::steady_clock::now();
    for (int rank = 0; rank < 3; ++rank) {
      Process& process = ranks[static_cast<size_t>(rank)];
      if (rank == victim) continue;
      // the deadline, the roll call, and time for a busy machine
      EXPECT_EQ(process.wait(20'000), 5) << process.output();
      EXPECT_THAT(process.output(), HasSubstr("rank " + std::to_string(victim)));
      EXPECT_THAT(process.output(), HasSubstr("again: error: the group of ranks is broken"));
    }
    const auto took = std::chrono::steady_clock::now() - start_time;
    EXPECT_LT(took, std::chrono::milliseconds(10 * kTimeoutMs)) << "victim " << victim;
  }
}

TEST_P(ProcessGroup, NamesARankThatIsKilled) {
  expect_named(GetParam(), "steps", SIGKILL);
}
TEST_P(ProcessGroup, NamesARankThatIsKilledInLargeCalls) {
  expect_named(GetParam(), "large-steps", SIGKILL);
}
TEST_P(ProcessGroup, NamesARankThatIsStopped) {
  expect_named(GetParam(), "steps", SIGSTOP);
}

// No rank blames another one for time in which it was stopped itself.
TEST_P(ProcessGroup, ContinuesWhenAllRanksWereStopped) {
  constexpr int kLongTimeoutMs = 4000;  // also for a busy machine
  std::vector<Process> ranks = start("steps", 3, GetParam(), kLongTimeoutMs);
  for (Process& rank : ranks)
    ASSERT_TRUE(rank.has_written("step 5\n", kPatienceMs)) << rank.output();
  // the others are stopped while they wait for rank 0, and continue to wait for it afterwards
  constexpr std::chrono::milliseconds kBetween(300);
  for (Process& rank : ranks) {
    rank.signal(SIGSTOP);
    std::this_thread::sleep_for(kBetween);
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(kLongTimeoutMs + 1000));
  for (size_t i = ranks.size(); i-- > 0;) {
    ranks[i].signal(SIGCONT);
    std::this_thread::sleep_for(kBetween);
  }
  for (Process& rank : ranks)
    EXPECT_TRUE(rank.has_written("step 500\n", kPatienceMs)) << rank.output();
}

TEST_P(ProcessGroup, LeavesNothingBehind) {
  std::vector<Process> ranks = start("steps", 2, GetParam(), kTimeoutMs);
  for (Process& rank : ranks) ASSERT_TRUE(rank.has_written("step 1", kPatienceMs)) << rank.output();
  // rank 0 creates the file, and its name contains the process id
  const std::string name = "millrace-" + std::to_string(ranks[0].pid()) + "-";
  ranks.clear();
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm"))
    EXPECT_NE(entry.path().filename().string().rfind(name, 0), 0U) << entry.path();
}

INSTANTIATE_TEST_SUITE_P(Engines, ProcessGroup, ::testing::Values("shm", "gloo"),
                         [](const auto& engine) { return engine.param; });

class Mpirun : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_mpi()) GTEST_SKIP() << "this build has no MPI";
    if (std::system("command -v mpirun >/dev/null 2>&1") != 0) GTEST_SKIP() << "there is no mpirun";
  }
  static Process start(const std::string& check, const std::string& size, int timeout_ms,
                       const std::string& engine = "mpi") {
    std::vector<std::string> words = spawn::mpirun_words(size);
    for (const std::string& word : {program_process_group(), check, std::string("0"), size, engine,
                                    std::string(), std::to_string(timeout_ms)})
      words.push_back(word);
    return Process(words, spawn::mpirun_environment());
  }
};

// Sends a signal to rank 1 while a job runs. \returns the output of the job after mpirun has ended
std::string output_after(Process job, int signal) {
  const std::string says = "rank 1 is pid ";
  EXPECT_TRUE(job.has_written(says, kPatienceMs)) << job.output();
  EXPECT_TRUE(job.has_written("step 5", kPatienceMs)) << job.output();
  std::string text = job.output();
  const size_t found = text.find(says);
  if (found == std::string::npos) return text;
  const int pid = std::atoi(text.c_str() + found + says.size());
  EXPECT_GT(pid, 1);
  if (pid > 1) kill(pid, signal);
  const int code = job.wait(30'000);
  text = job.output();
  EXPECT_NE(code, -1) << "mpirun still runs\n" << text;
  EXPECT_NE(code, 0) << text;
  return text;
}

// mpirun notices that a rank has ended, and ends the others.
TEST_F(Mpirun, EndsTheJobWhenARankIsKilled) {
  EXPECT_THAT(output_after(start("steps", "3", kTimeoutMs), SIGKILL), HasSubstr("process rank 1"));
}

// All ranks are on this machine, so the values are exchanged through shared memory.
TEST_F(Mpirun, ChoosesSharedMemoryOnOneMachine) {
  for (const char* const size : {"2", "3"}) {
    Process job = start("suite", size, 30'000, "auto");
    EXPECT_EQ(job.wait(kPatienceMs), 0) << job.output();
    EXPECT_THAT(job.output(), HasSubstr("engine shm"));
    EXPECT_THAT(job.output(), HasSubstr("all fine"));
  }
  EXPECT_THAT(output_after(start("steps", "3", kTimeoutMs, "auto"), SIGSTOP),
              ::testing::AllOf(HasSubstr("rank 1"),
                               HasSubstr("again: error: the group of ranks is broken")));
}

// Only the other ranks can detect a rank that is stopped.
TEST_F(Mpirun, NamesARankThatIsStopped) {
  for (const char* const check : {"steps", "large-steps"}) {
    EXPECT_THAT(output_after(start(check, "3", kTimeoutMs), SIGSTOP),
                ::testing::AllOf(HasSubstr("lost rank 1"), HasSubstr("no answer within"),
                                 HasSubstr("again: error: the group of ranks is broken")));
  }
}

TEST_F(Mpirun, AnswersEveryCall) {
  for (const char* const size : {"2", "3"}) {
    Process job = start("suite", size, 30'000);
    EXPECT_EQ(job.wait(kPatienceMs), 0) << job.output();
    EXPECT_THAT(job.output(), HasSubstr("engine mpi"));
    EXPECT_THAT(job.output(), HasSubstr("all fine"));
  }
}

TEST_F(Mpirun, CarriesCheckpoints) {
  for (const char* const size : {"2", "3"}) {
    Process job = start("gather", size, 30'000);
    EXPECT_EQ(job.wait(kPatienceMs), 0) << job.output();
    EXPECT_THAT(job.output(), HasSubstr("engine mpi"));
  }
}

TEST(Group, SaysThatARankNeverCame) {
  std::vector<Process> ranks;
  const std::string endpoints = free_endpoints(2);
  Process alone({program_process_group(), "absent", "1", "2", "shm", endpoints, "1000"});
  Process zero(
      {program_process_group(), "absent", "0", "3", "gloo", endpoints + ",127.0.0.1:1", "1000"});
  EXPECT_EQ(zero.wait(kPatienceMs), 5);
  EXPECT_EQ(alone.wait(kPatienceMs), 5);
}

}  // namespace
}  // namespace millrace::executor

// Children are supervised and ended together: first failure, last lines of output, no process left.

#include "fleet/launch/supervisor.h"

#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include "tests/support/process.h"

namespace millrace::fleet {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class SupervisorTest : public ::testing::Test {
 protected:
  SupervisorTest()
      : folder_(std::filesystem::temp_directory_path() /
                ("millrace_launch_" + std::to_string(getpid()))) {
    std::filesystem::create_directories(folder_);
  }
  ~SupervisorTest() override { std::filesystem::remove_all(folder_); }

  JobOutcome run(const std::string& script, int children, int servers = 0, int64_t grace_ms = 500) {
    LaunchOptions launch;
    launch.nproc_per_node = children;
    launch.server_num = servers;
    auto plans = plan_launch(launch);
    EXPECT_TRUE(plans.ok());
    SupervisorOptions options;
    options.command = {"sh", "-c", script};
    options.log_dir = (folder_ / "log").string();
    options.grace_ms = grace_ms;
    auto outcome = supervise(*plans, options);
    EXPECT_TRUE(outcome.ok()) << outcome.status().to_string();
    return outcome.ok() ? *outcome : JobOutcome();
  }

  [[nodiscard]] std::string log(const std::string& name) const {
    std::ifstream file(folder_ / "log" / (name + ".log"));
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }

  std::filesystem::path folder_;
};

TEST_F(SupervisorTest, WritesALogForEachChild) {
  const JobOutcome outcome = run("echo rank $PADDLE_TRAINER_ID; echo error >&2", 2);
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.report, "");
  EXPECT_EQ(log("trainer.0"), "rank 0\nerror\n");
  EXPECT_EQ(log("trainer.1"), "rank 1\nerror\n");
}

TEST_F(SupervisorTest, NamesThePortsForNumbers) {
  LaunchOptions launch;
  launch.nproc_per_node = 2;
  launch.metrics_port = 9400;
  const auto plans = plan_launch(launch);
  ASSERT_TRUE(plans.ok());
  std::string said;
  SupervisorOptions options;
  options.log_dir = (folder_ / "log").string();
  options.say = [&](const std::string& line) { said += line + "\n"; };
  options.command = {"sh", "-c", "echo \"$@\"", "name"};
  ASSERT_EQ(supervise(*plans, options)->code, 0);
  EXPECT_EQ(log("trainer.1"), "--metrics 9401\n");
  EXPECT_THAT(said, HasSubstr("trainer.0.log, http://127.0.0.1:9400/metrics"));
  options.command = {"echo", "at:{metrics}"};
  ASSERT_EQ(supervise(*plans, options)->code, 0);
  EXPECT_EQ(log("trainer.1"), "at:9401\n");
}

TEST_F(SupervisorTest, ReportsTheFirstFailureAndEndsTheOthers) {
  const auto start = std::chrono::steady_clock::now();
  const JobOutcome outcome =
      run("if [ $PADDLE_TRAINER_ID = 1 ]; then seq 1 30; exit 4; fi; sleep 60; exit 9", 3);
  EXPECT_EQ(outcome.code, 4);
  EXPECT_THAT(outcome.report, HasSubstr("role trainer rank 1 (pid "));
  EXPECT_THAT(outcome.report, HasSubstr(") exited with 4 after "));
  EXPECT_THAT(outcome.report, HasSubstr("trainer.1.log:\n11\n12\n"));
  EXPECT_THAT(outcome.report, Not(HasSubstr("\n10\n")));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

TEST_F(SupervisorTest, ForcesChildrenThatDoNotListen) {
  const JobOutcome outcome =
      run("trap '' TERM; if [ $PADDLE_TRAINER_ID = 0 ]; then sleep 0.3; kill -9 $$; fi; "
          "while true; do sleep 1; done",
          2, 0, 300);
  EXPECT_EQ(outcome.code, 128 + SIGKILL);
  EXPECT_THAT(outcome.report, HasSubstr("was ended by signal 9"));
}

TEST_F(SupervisorTest, EndsGrandchildren) {
  const std::string mark = (folder_ / "pid").string();
  const JobOutcome outcome = run("sleep 300 & echo $! > " + mark + "; exit 3", 1);
  EXPECT_EQ(outcome.code, 3);
  std::ifstream file(mark);
  pid_t pid = 0;
  file >> pid;
  ASSERT_GT(pid, 0);
  // not a child of this process, so the test can only check that it disappears
  bool gone = false;
  for (int look = 0; look < 200 && !gone; ++look) {
    std::ifstream state("/proc/" + std::to_string(pid) + "/stat");
    std::string text;
    std::getline(state, text);
    gone = text.empty() || text.find(") Z ") != std::string::npos;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_TRUE(gone);
}

TEST_F(SupervisorTest, GivesServersTimeAfterTheLastTrainer) {
  const std::string script =
      "if [ $TRAINING_ROLE = PSERVER ]; then trap 'echo asked; exit 0' TERM; "
      "while true; do sleep 0.05; done; fi; exit 0";
  const JobOutcome outcome = run(script, 1, 1, 300);
  EXPECT_EQ(outcome.code, 0);
  EXPECT_THAT(log("server.0"), HasSubstr("asked\n"));
}

TEST_F(SupervisorTest, SaysThatACommandCannotBeStarted) {
  LaunchOptions launch;
  launch.nproc_per_node = 1;
  SupervisorOptions options;
  options.command = {"no-such-command-here"};
  options.log_dir = (folder_ / "log").string();
  const auto outcome = supervise(*plan_launch(launch), options);
  ASSERT_TRUE(outcome.ok());
  EXPECT_EQ(outcome->code, 127);
  EXPECT_THAT(outcome->report, HasSubstr("the command cannot be started"));
  options.command.clear();
  EXPECT_FALSE(supervise(*plan_launch(launch), options).ok());
  options.command = {"true"};
  options.log_dir = "/proc/none/log";
  EXPECT_FALSE(supervise(*plan_launch(launch), options).ok());
}

// The tool: signals are forwarded, and the exit code contains the signal.
TEST_F(SupervisorTest, ToolHandsSignalsOn) {
  const std::string logs = (folder_ / "log").string();
  spawn::Process job({spawn::tool("launch"), "--nproc_per_node", "2", "--log_dir", logs, "--grace",
                      "2", "--", "sh", "-c",
                      "trap 'echo ended; exit 0' TERM; echo up; while true; do sleep 0.05; done"});
  for (int look = 0; look < 400 && log("trainer.1") != "up\n"; ++look)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  for (int look = 0; look < 400 && log("trainer.0") != "up\n"; ++look)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  job.signal(SIGTERM);
  EXPECT_EQ(job.wait(20'000), 143) << job.output();
  EXPECT_THAT(log("trainer.0"), HasSubstr("ended\n"));
  EXPECT_THAT(log("trainer.1"), HasSubstr("ended\n"));
}

TEST_F(SupervisorTest, ToolPrintsWhatItWouldSay) {
  spawn::Process job(
      {spawn::tool("launch"), "--nproc_per_node", "2", "--start_port", "7000", "--print-env"},
      {"PADDLE_TRAINER_ID=1", "PADDLE_TRAINERS_NUM=4"});
  EXPECT_EQ(job.wait(20'000), 0) << job.output();
  EXPECT_THAT(job.output(),
              HasSubstr("this process: rank 1 of 4, role none, determined by PADDLE"));
  EXPECT_THAT(job.output(), HasSubstr("[trainer.1]"));
  EXPECT_THAT(job.output(), HasSubstr("PADDLE_TRAINER_ENDPOINTS=127.0.0.1:7000,127.0.0.1:7001"));
}

}  // namespace
}  // namespace millrace::fleet

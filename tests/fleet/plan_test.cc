// The environment and arguments of the children of a job.

#include "fleet/launch/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/launch/job_environment.h"
#include "fleet/roles/role_maker.h"

namespace millrace::fleet {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<ChildPlan> plan(const LaunchOptions& options) {
  auto children = plan_launch(options);
  EXPECT_TRUE(children.ok()) << children.status().to_string();
  return children.ok() ? *children : std::vector<ChildPlan>();
}

EnvironmentReader reader_of(const std::map<std::string, std::string>& variables) {
  return [variables](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}

JobEnvironment understood(const ChildPlan& child) {
  auto job = read_job_environment(reader_of(child.environment));
  EXPECT_TRUE(job.ok()) << job.status().to_string();
  return job.ok() ? *job : JobEnvironment();
}

TEST(Plan, TellsRanksWhoTheyAre) {
  LaunchOptions options;
  options.nproc_per_node = 3;
  const auto children = plan(options);
  ASSERT_EQ(children.size(), 3U);
  for (int rank = 0; rank < 3; ++rank) {
    const ChildPlan& child = children[static_cast<size_t>(rank)];
    EXPECT_EQ(child.name(), "trainer." + std::to_string(rank));
    EXPECT_EQ(child.environment.at("PADDLE_LOCAL_SIZE"), "3");
    EXPECT_EQ(child.environment.at("FLAGS_selected_gpus"), std::to_string(rank));
    const JobEnvironment job = understood(child);
    EXPECT_EQ(job.rank, rank);
    EXPECT_EQ(job.size, 3);
    EXPECT_EQ(job.trainer_endpoints[static_cast<size_t>(rank)], job.own_endpoint);
  }
}

TEST(Plan, GivesEachProcessAPortForItsNumbers) {
  LaunchOptions options;
  options.server_num = 2;
  options.trainer_num = 2;
  for (const ChildPlan& child : plan(options)) EXPECT_EQ(child.metrics_port, 0);
  options.metrics_port = 9091;
  int port = 9091;
  for (const ChildPlan& child : plan(options)) EXPECT_EQ(child.metrics_port, port++);
  options.metrics_port = 65533;
  EXPECT_THAT(plan_launch(options).status().message(), HasSubstr("4 ports starting at 65533"));
}

TEST(Plan, TellsServersAndTrainers) {
  LaunchOptions options;
  options.servers = {"127.0.0.1:6174", "127.0.0.1:6175"};
  options.trainer_num = 2;
  options.start_port = 7000;
  const auto children = plan(options);
  ASSERT_EQ(children.size(), 4U);
  EXPECT_EQ(understood(children[1]).role, "PSERVER");
  EXPECT_EQ(understood(children[1]).rank, 1);
  EXPECT_EQ(children[1].environment.count("PADDLE_TRAINER_ID"), 0U);
  EXPECT_EQ(understood(children[3]).role, "TRAINER");
  EXPECT_EQ(understood(children[3]).rank, 1);
  EXPECT_EQ(children[3].environment.at("PADDLE_TRAINER_ENDPOINTS"),
            "127.0.0.1:7002,127.0.0.1:7003");
}

TEST(Plan, TellsHeterWorkersAndTheirTrainers) {
  LaunchOptions options;
  options.server_num = 1;
  options.trainer_num = 2;
  options.heter_worker_num = 2;
  options.start_port = 7000;
  const auto children = plan(options);
  ASSERT_EQ(children.size(), 5U);
  EXPECT_EQ(children[0].environment.count("STAGE_ID"), 0U);
  EXPECT_EQ(children[2].name(), "heter.1");
  EXPECT_EQ(understood(children[2]).role, "HETER_TRAINER");
  EXPECT_EQ(understood(children[2]).rank, 1);
  const StatusOr<RoleMaker> worker = role_from_environment(reader_of(children[2].environment));
  ASSERT_TRUE(worker.ok()) << worker.status().to_string();
  EXPECT_TRUE(worker->is_heter_worker());
  EXPECT_EQ(worker->id, 1);
  EXPECT_EQ(worker->own_endpoint, "127.0.0.1:7004");
  EXPECT_THAT(worker->heter.previous, ElementsAre("127.0.0.1:7001", "127.0.0.1:7002"));
  const StatusOr<RoleMaker> trainer = role_from_environment(reader_of(children[4].environment));
  ASSERT_TRUE(trainer.ok()) << trainer.status().to_string();
  EXPECT_EQ(trainer->id, 1);
  EXPECT_THAT(trainer->heter.next, ElementsAre("127.0.0.1:7003", "127.0.0.1:7004"));
  EXPECT_THAT(trainer->heter.stage_workers, ElementsAre(2, 2));
  options.server_num = 0;
  EXPECT_THAT(plan_launch(options).status().message(),
              HasSubstr("--heter_worker_num needs --server_num"));
  std::map<std::string, std::string> lost = children[2].environment;
  lost["PADDLE_PORT"] = "1";
  EXPECT_THAT(read_job_environment(reader_of(lost)).status().message(),
              HasSubstr("this heter worker is '127.0.0.1:1', which is not in"));
}

TEST(Plan, RefusesWhatDoesNotFit) {
  LaunchOptions options;
  EXPECT_THAT(plan_launch(options).status().message(),
              HasSubstr("the number of processes is not set"));
  options.trainers = {"a:1", "a:1"};
  EXPECT_THAT(plan_launch(options).status().message(), HasSubstr("occurs twice"));
  options.trainers = {"a:1"};
  options.trainer_num = 2;
  EXPECT_THAT(plan_launch(options).status().message(), HasSubstr("expected 2 endpoints, found 1"));
  options.trainers = {"a", "b:1"};
  EXPECT_THAT(plan_launch(options).status().message(), HasSubstr("expected host:port, found 'a'"));
  options = {};
  options.nproc_per_node = 2000;
  EXPECT_THAT(plan_launch(options).status().message(), HasSubstr("at most 1024"));
}

}  // namespace
}  // namespace millrace::fleet

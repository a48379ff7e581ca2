// The role of a process in a job: every way to set it, and the errors.

#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/roles/mpi_role.h"
#include "fleet/roles/role_maker.h"
#include "fleet/roles/wait_servers.h"
#include "io/checkpoint/gather.h"
#include "ps/transport/endpoint.h"
#include "ps/transport/socket.h"

namespace millrace::fleet {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Variables = std::map<std::string, std::string>;

EnvironmentReader reader(const Variables& values) {
  return [values](const std::string& name) -> std::optional<std::string> {
    const auto found = values.find(name);
    return found == values.end() ? std::nullopt : std::optional(found->second);
  };
}

Variables worker_variables() {
  return {{"PADDLE_PSERVERS_IP_PORT_LIST", "a:1,b:2,c:3"},
          {"PADDLE_TRAINERS_NUM", "4"},
          {"TRAINING_ROLE", "TRAINER"},
          {"PADDLE_TRAINER_ID", "2"},
          {"POD_IP", "b"},
          {"PADDLE_PORT", "2"},
          {"PADDLE_TRAINER_ENDPOINTS", "x:1,x:2,y:1,y:2"}};
}

TEST(Environment, Worker) {
  const auto role = role_from_environment(reader(worker_variables()));
  ASSERT_TRUE(role.ok()) << role.status().to_string();
  EXPECT_TRUE(role->is_worker());
  EXPECT_FALSE(role->is_first_worker());
  EXPECT_EQ(role->id, 2);
  EXPECT_EQ(role->worker_num, 4);
  EXPECT_EQ(role->server_num(), 3);
  EXPECT_EQ(role->node_num(), 2);
  EXPECT_EQ(role->own_endpoint, "b:2");
}

TEST(Environment, ServersOfEveryNumber) {
  const std::vector<std::string> lists = {"b:2", "a:1,b:2", "a:1,c:3,b:2"};
  for (size_t i = 0; i < lists.size(); ++i) {
    Variables values = worker_variables();
    values["TRAINING_ROLE"] = "PSERVER";
    values["PADDLE_PSERVERS_IP_PORT_LIST"] = lists[i];
    const auto role = role_from_environment(reader(values));
    ASSERT_TRUE(role.ok()) << role.status().to_string();
    EXPECT_TRUE(role->is_server());
    EXPECT_EQ(role->id, static_cast<int>(i));
    EXPECT_EQ(role->server_num(), static_cast<int>(i) + 1);
  }
}

TEST(Environment, NoServersIsOneWorker) {
  const auto role = role_from_environment(reader({{"TRAINING_ROLE", "PSERVER"}}));
  ASSERT_TRUE(role.ok());
  EXPECT_FALSE(role->is_distributed);
  EXPECT_TRUE(role->is_first_worker());
  EXPECT_EQ(role->worker_num, 1);
}

TEST(Environment, EveryMissingVariableIsNamed) {
  for (const char* const name :
       {"PADDLE_TRAINERS_NUM", "TRAINING_ROLE", "PADDLE_TRAINER_ID", "POD_IP", "PADDLE_PORT"}) {
    Variables values = worker_variables();
    values.erase(name);
    EXPECT_EQ(role_from_environment(reader(values)).status().message(),
              std::string("environment: ") + name + " is not set");
  }
}

TEST(Environment, EveryWrongVariableIsNamed) {
  struct Row {
    const char* name;
    const char* value;
    const char* message;
  };
  for (const Row& row :
       {Row{"PADDLE_TRAINERS_NUM", "two", "expected a number from 1 in PADDLE_TRAINERS_NUM"},
        Row{"PADDLE_TRAINERS_NUM", "0", "expected a number from 1 in PADDLE_TRAINERS_NUM"},
        Row{"PADDLE_TRAINER_ID", "-1", "expected a number from 0 in PADDLE_TRAINER_ID"},
        Row{"PADDLE_TRAINER_ID", "4", "PADDLE_TRAINER_ID is 4, but PADDLE_TRAINERS_NUM is 4"},
        Row{"TRAINING_ROLE", "WORKER", "expected TRAINING_ROLE TRAINER, PSERVER, HETER_TRAINER"},
        Row{"PADDLE_WITH_GLOO", "3", "expected 0 to 2 in PADDLE_WITH_GLOO, found 3"}}) {
    Variables values = worker_variables();
    values[row.name] = row.value;
    EXPECT_THAT(role_from_environment(reader(values)).status().message(), HasSubstr(row.message));
  }
  Variables values = worker_variables();
  values["TRAINING_ROLE"] = "PSERVER";
  values["PADDLE_PORT"] = "9";
  EXPECT_THAT(role_from_environment(reader(values)).status().message(),
              HasSubstr("say 'b:9', which is not in PADDLE_PSERVERS_IP_PORT_LIST 'a:1,b:2,c:3'"));
}

TEST(Environment, HeterWorkersComeBehindTheWorkers) {
  Variables values = worker_variables();
  values["TRAINING_ROLE"] = "HETER_TRAINER";
  values["PADDLE_ALL_HETER_TRAINER_IP_PORT_LIST"] = "h:1,b:2";
  values["PADDLE_PREVIOUS_HETER_TRAINER_IP_PORT_LIST"] = "x:1";
  EXPECT_THAT(role_from_environment(reader(values)).status().message(),
              HasSubstr("STAGE_ID is not set"));
  values["STAGE_ID"] = "1";
  values["STAGE_NUM"] = "2";
  values["PADDLE_STAGE_TRAINERS_NUM"] = "[4, 2]";
  values["HETER_DEVICE_TYPE"] = "tpu";
  EXPECT_THAT(role_from_environment(reader(values)).status().message(),
              HasSubstr("expected HETER_DEVICE_TYPE cpu, gpu or xpu, found 'tpu'"));
  values["HETER_DEVICE_TYPE"] = "gpu";
  const auto role = role_from_environment(reader(values));
  ASSERT_TRUE(role.ok()) << role.status().to_string();
  EXPECT_EQ(role->id, 1);
  EXPECT_EQ(role->role_id(), 5);
  EXPECT_EQ(role->heter.device, "gpu:0");
  EXPECT_THAT(role->heter.stage_workers, ElementsAre(4, 2));
  values["FLAGS_selected_gpus"] = "3";
  EXPECT_EQ(role_from_environment(reader(values))->heter.device, "gpu:3");
  values["HETER_DEVICE_TYPE"] = "xpu";
  values["FLAGS_selected_xpus"] = "2";
  EXPECT_EQ(role_from_environment(reader(values))->heter.device, "xpu:2");
  values["PADDLE_NEXT_HETER_TRAINER_IP_PORT_LIST"] = "n:1";
  EXPECT_THAT(role_from_environment(reader(values))->heter.next, ElementsAre("n:1"));
  values["PADDLE_COORDINATOR_ENDPOINTS"] = "c:1";
  EXPECT_THAT(role_from_environment(reader(values))->coordinator_endpoints, ElementsAre("c:1"));
  values.erase("PADDLE_PREVIOUS_HETER_TRAINER_IP_PORT_LIST");
  EXPECT_THAT(role_from_environment(reader(values)).status().message(),
              HasSubstr("PADDLE_PREVIOUS_HETER_TRAINER_IP_PORT_LIST"));
}

TEST(Environment, OlderNames) {
  Variables values = {{"PADDLE_PSERVERS_IP_PORT_LIST", "a:1,b:2"},
                      {"PADDLE_TRAINER_ENDPOINTS", "x:1,y:1,z:1"},
                      {"TRAINING_ROLE", "PSERVER"},
                      {"PADDLE_PSERVER_ID", "1"}};
  auto role = general_role_from_environment(reader(values));
  ASSERT_TRUE(role.ok()) << role.status().to_string();
  EXPECT_EQ(role->id, 1);
  EXPECT_EQ(role->worker_num, 3);
  EXPECT_EQ(role->meeting.who, MeetingOptions::Who::kAll);
  values["PADDLE_PSERVER_ID"] = "2";
  EXPECT_THAT(general_role_from_environment(reader(values)).status().message(),
              HasSubstr("PADDLE_PSERVER_ID is 2"));
  values["TRAINING_ROLE"] = "TRAINER";
  values["PADDLE_TRAINER_ID"] = "0";
  values["PADDLE_IS_BARRIER_ALL_ROLE"] = "0";
  role = general_role_from_environment(reader(values));
  ASSERT_TRUE(role.ok());
  EXPECT_TRUE(role->is_first_worker());
  EXPECT_EQ(role->meeting.who, MeetingOptions::Who::kNone);
  values.erase("PADDLE_TRAINER_ENDPOINTS");
  EXPECT_THAT(general_role_from_environment(reader(values)).status().message(),
              HasSubstr("PADDLE_TRAINER_ENDPOINTS is not set"));
}

TEST(UserDefined, ChecksEveryArgument) {
  const UserDefinedRole good{.current_id = 1,
                             .role = Role::kServer,
                             .worker_num = 2,
                             .server_endpoints = {"a:1", "b:1"},
                             .worker_endpoints = {}};
  const auto role = user_defined_role(good);
  ASSERT_TRUE(role.ok()) << role.status().to_string();
  EXPECT_EQ(role->own_endpoint, "b:1");
  const auto message = [&](void (*change)(UserDefinedRole&)) {
    UserDefinedRole arguments = good;
    change(arguments);
    return user_defined_role(arguments).status().message();
  };
  EXPECT_EQ(message([](auto& a) { a.role = Role::kHeterWorker; }),
            "role: expected worker or server, found heter worker");
  EXPECT_EQ(message([](auto& a) { a.server_endpoints = {}; }),
            "server_endpoints: expected at least one, found none");
  EXPECT_EQ(message([](auto& a) {
              a.server_endpoints = {"a:1", "a:1"};
            }),
            "server_endpoints: 'a:1' occurs twice");
  EXPECT_EQ(message([](auto& a) {
              a.server_endpoints = {"a:1", ""};
            }),
            "server_endpoints: an endpoint is empty");
  EXPECT_EQ(message([](auto& a) { a.current_id = 2; }),
            "current_id: expected 0 to 1 for a server, found 2");
  EXPECT_EQ(message([](auto& a) { a.current_id = -1; }),
            "current_id: expected 0 to 1 for a server, found -1");
  EXPECT_EQ(message([](auto& a) { a.worker_num = 0; }), "worker_num: expected at least 1, found 0");
  EXPECT_EQ(message([](auto& a) { a.worker_endpoints = {"x:1"}; }),
            "worker_num is 2, but worker_endpoints has 1");
  EXPECT_EQ(message([](auto& a) {
              a.role = Role::kWorker;
              a.current_id = 2;
            }),
            "current_id: expected 0 to 1 for a worker, found 2");
}

TEST(UserDefined, Collective) {
  const auto role = user_defined_collective_role(1, {"a:1", "b:1"});
  ASSERT_TRUE(role.ok());
  EXPECT_EQ(role->worker_num, 2);
  EXPECT_TRUE(role->is_collective);
  EXPECT_FALSE(user_defined_collective_role(2, {"a:1", "b:1"}).ok());
  EXPECT_FALSE(user_defined_collective_role(0, {}).ok());
  EXPECT_FALSE(user_defined_collective_role(0, {"a:1", "a:1"}).ok());
}

TEST(Symmetric, EvenRanksServe) {
  const std::vector<std::string> endpoints = {"m:6", "m:7", "n:6", "n:7"};
  for (int rank = 0; rank < 4; ++rank) {
    const auto role = symmetric_role(rank, endpoints);
    ASSERT_TRUE(role.ok()) << role.status().to_string();
    EXPECT_EQ(role->is_server(), rank % 2 == 0);
    EXPECT_EQ(role->id, rank / 2);
    EXPECT_EQ(role->worker_num, 2);
    EXPECT_THAT(role->server_endpoints, ElementsAre("m:6", "n:6"));
    EXPECT_THAT(role->worker_endpoints, ElementsAre("m:7", "n:7"));
  }
  EXPECT_THAT(symmetric_role(0, {"m:6", "m:7", "n:6"}).status().message(),
              HasSubstr("even number"));
  EXPECT_THAT(symmetric_role(4, endpoints).status().message(), HasSubstr("expected 0 to 3"));
  EXPECT_THAT(symmetric_role(0, {"m:6", "m:7", "m:6", "m:8"}).status().message(),
              HasSubstr("'m:6' occurs twice"));
}

TEST(Symmetric, RanksTellEachOther) {
  io::ThreadGroup group(2);
  std::vector<RoleMaker> roles(2);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      const auto member = group.member(rank);
      auto role = gather_symmetric_role(*member, "h:" + std::to_string(10 + rank));
      if (role.ok()) roles[static_cast<size_t>(rank)] = *std::move(role);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(roles[0].is_server());
  EXPECT_TRUE(roles[1].is_first_worker());
  EXPECT_THAT(roles[1].server_endpoints, ElementsAre("h:10"));
}

TEST(Symmetric, RanksOfMpiNeedMpirun) {
  const auto alone = [](const std::string&) { return std::optional<std::string>(); };
  const auto role = mpi_symmetric_role(alone);
  EXPECT_EQ(role.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(role.status().to_string(), HasSubstr("mpirun"));
}

TEST(WaitServers, FindsLateOnesAndGivesUpOnOthers) {
  auto first = ps::Socket::listen({.host = "127.0.0.1", .port = 0});
  ASSERT_TRUE(first.ok()) << first.status().to_string();
  const std::string there = "127.0.0.1:" + std::to_string(first->port());
  WaitOptions options;
  options.timeout = std::chrono::milliseconds(300);
  options.pause = std::chrono::milliseconds(20);
  EXPECT_TRUE(wait_server_ready({there}, options).ok());
  int port = 0;
  {
    auto gone = ps::Socket::listen({.host = "127.0.0.1", .port = 0});
    ASSERT_TRUE(gone.ok());
    port = gone->port();
  }
  const std::string absent = "127.0.0.1:" + std::to_string(port);
  const Status never = wait_server_ready({there, absent}, options);
  EXPECT_EQ(never.code(), StatusCode::kDistributed);
  EXPECT_EQ(never.message(), "servers do not answer within 300 ms: " + absent);
  EXPECT_EQ(wait_server_ready({"nonsense"}, options).code(), StatusCode::kInvalidArgument);

  options.timeout = std::chrono::seconds(60);
  std::vector<std::string> told;
  ps::Socket late;
  options.on_pending = [&](const std::vector<std::string>& pending) {
    told = pending;
    auto socket = ps::Socket::listen({.host = "127.0.0.1", .port = port});
    if (socket.ok()) late = std::move(*socket);
  };
  EXPECT_TRUE(wait_server_ready({there, absent}, options).ok());
  EXPECT_THAT(told, ElementsAre(absent));
}

}  // namespace
}  // namespace millrace::fleet

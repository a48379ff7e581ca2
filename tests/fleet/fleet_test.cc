// The facade: a job from start to end over the loopback device, and calls in the wrong order.

#include "fleet/fleet.h"

#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ps/transport/inproc.h"
#include "tests/fleet/ctr_job.h"

namespace millrace::fleet {
namespace {

using ctr_job::check;
using ctr_job::feeds_of;
using ctr_job::free_endpoints;
using ctr_job::prepare;
using ctr_job::program_of;
using ctr_job::role_of;
using ctr_job::strategy_of;
using ctr_job::tcp;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// \returns the losses of a worker
std::vector<float> work(int index, const std::vector<std::string>& servers, bool sync, int steps) {
  std::vector<float> losses;
  Fleet fleet;
  prepare(fleet, role_of(Role::kWorker, index, servers), sync);
  WaitOptions wait;
  wait.pause = std::chrono::milliseconds(20);
  wait.timeout = std::chrono::seconds(60);
  check(fleet.init_worker(tcp(), &wait));
  const std::string loss = program_of("origin_main.pb")->root().back().output_names()[0].str();
  for (int step = 0; step < steps && fleet.worker() != nullptr; ++step) {
    std::vector<Value> results(1);
    const Status done = fleet.step(feeds_of(index, step), {loss}, results);
    check(done);
    if (!done.ok()) break;
    losses.push_back(results[0].get_if<Tensor>()->data<float>()[0]);
  }
  check(fleet.shrink());
  check(fleet.stop_worker());
  return losses;
}

TEST(Fleet, TwoByTwoOnLoopbackEndsByItself) {
  for (const bool sync : {true, false}) {
    const std::vector<std::string> servers = free_endpoints(2);
    std::vector<std::thread> threads;
    std::vector<std::vector<float>> losses(2);
    for (int i = 0; i < 2; ++i) {
      threads.emplace_back([&, i] {
        Fleet fleet;
        prepare(fleet, role_of(Role::kServer, i, servers), sync);
        check(fleet.init_server());
        check(fleet.run_server(*tcp()));
      });
      threads.emplace_back([&, i] { losses[static_cast<size_t>(i)] = work(i, servers, sync, 30); });
    }
    for (std::thread& thread : threads) thread.join();
    for (const auto& each : losses) {
      ASSERT_EQ(each.size(), 30U);
      EXPECT_LT(each.back(), each.front());
    }
    // no server listens any more
    for (const std::string& server : servers)
      EXPECT_FALSE(wait_server_ready({server}, {.timeout = std::chrono::milliseconds(50),
                                                .connect_timeout = std::chrono::milliseconds(50),
                                                .pause = std::chrono::milliseconds(50),
                                                .on_pending = {}})
                       .ok());
  }
}

TEST(Fleet, TheLaunchBarrierCanBeTurnedOff) {
  const std::vector<std::string> servers = free_endpoints(1);  // no server listens there
  const auto rounds = [&](bool launch_barrier, const char* flag) {
    Fleet fleet;
    const std::map<std::string, std::string> variables{{"PADDLE_PSERVERS_IP_PORT_LIST", servers[0]},
                                                       {"PADDLE_TRAINERS_NUM", "1"},
                                                       {"TRAINING_ROLE", "TRAINER"},
                                                       {"PADDLE_TRAINER_ID", "0"},
                                                       {"POD_IP", "127.0.0.1"},
                                                       {"PADDLE_PORT", "1"},
                                                       {"PADDLE_WITH_GLOO", "1"},
                                                       {"FLAGS_LAUNCH_BARRIER", flag}};
    check(fleet.init_from_environment([=](const std::string& name) -> std::optional<std::string> {
      const auto found = variables.find(name);
      return found == variables.end() ? std::nullopt : std::optional(found->second);
    }));
    EXPECT_THAT(fleet.remarks(), ElementsAre(HasSubstr("PADDLE_WITH_GLOO has no effect")));
    DistributedStrategy strategy = strategy_of(true);
    check(strategy.set_a_sync_configs({{"launch_barrier", launch_barrier}}));
    prepare(fleet, role_of(Role::kWorker, 0, servers), strategy);
    int pending = 0;
    WaitOptions wait;
    wait.timeout = wait.pause = wait.connect_timeout = std::chrono::milliseconds(50);
    wait.on_pending = [&](const std::vector<std::string>&) { ++pending; };
    ps::ClientOptions client;
    client.deadline = std::chrono::milliseconds(100);
    EXPECT_FALSE(fleet.init_worker(tcp(), &wait, client).ok());
    return pending;
  };
  EXPECT_GT(rounds(true, "1"), 0);
  EXPECT_EQ(rounds(true, "0"), 0);
  EXPECT_EQ(rounds(false, "1"), 0);
}

TEST(Fleet, CallsInTheWrongOrderAreErrors) {
  Fleet fleet;
  const auto registry = ops::standard_registry();
  const auto program = Program::create();
  ps::InprocTransport transport;
  const auto shared = std::make_shared<ps::InprocTransport>();
  std::vector<Value> none;
  EXPECT_EQ(fleet.is_worker().status().message(),
            "is_worker: the role is not known yet, call init() first");
  EXPECT_FALSE(fleet.is_server().ok());
  EXPECT_FALSE(fleet.is_first_worker().ok());
  EXPECT_FALSE(fleet.worker_index().ok());
  EXPECT_FALSE(fleet.worker_num().ok());
  EXPECT_FALSE(fleet.server_index().ok());
  EXPECT_FALSE(fleet.server_num().ok());
  EXPECT_FALSE(fleet.worker_endpoints().ok());
  EXPECT_FALSE(fleet.server_endpoints().ok());
  EXPECT_FALSE(fleet.split_files({}).ok());
  EXPECT_THAT(fleet.distributed_optimizer({}, strategy_of(true)).message(),
              HasSubstr("call init() first"));
  EXPECT_THAT(fleet.minimize(*registry, *program, *program, "loss").message(),
              HasSubstr("call init() first"));
  check(fleet.init(role_of(Role::kWorker, 1, {"a:1", "b:1"})));
  EXPECT_THAT(fleet.minimize(*registry, *program, *program, "loss").message(),
              HasSubstr("call distributed_optimizer() first"));
  EXPECT_THAT(fleet.distributed_optimizer({}, DistributedStrategy()).message(),
              HasSubstr("is no mode"));
  for (const Status& status :
       {fleet.init_server(), fleet.run_server(transport), fleet.init_worker(shared),
        fleet.step({}, {}, none), fleet.stop_worker(), fleet.shrink()})
    EXPECT_THAT(status.message(), HasSubstr("call minimize() first"));
  EXPECT_EQ(fleet.programs(), nullptr);
}

TEST(Fleet, CallsOfTheOtherRoleAreErrors) {
  Fleet worker;
  prepare(worker, role_of(Role::kWorker, 0, {"a:1", "b:1"}), true);
  ps::InprocTransport transport;
  std::vector<Value> none;
  EXPECT_EQ(worker.init_server().message(),
            "init_server: expected a server, this process is a worker");
  EXPECT_THAT(worker.run_server(transport).message(), HasSubstr("expected a server"));
  EXPECT_THAT(worker.step({}, {}, none).message(), HasSubstr("call init_worker() first"));
  EXPECT_THAT(worker.stop_worker().message(), HasSubstr("call init_worker() first"));
  EXPECT_THAT(worker.shrink().message(), HasSubstr("call init_worker() first"));
  EXPECT_FALSE(worker.server_index().ok());

  Fleet server;
  prepare(server, role_of(Role::kServer, 1, {"a:1", "b:1"}), true);
  EXPECT_THAT(server.run_server(transport).message(), HasSubstr("call init_server() first"));
  EXPECT_EQ(server.init_worker(std::make_shared<ps::InprocTransport>()).message(),
            "init_worker: expected a worker, this process is a server");
  EXPECT_FALSE(server.worker_index().ok());
  EXPECT_EQ(*server.server_index(), 1);
}

TEST(Fleet, RolesThatItDoesNotHave) {
  Fleet fleet;
  RoleMaker coordinator = role_of(Role::kWorker, 0, {"a:1"});
  coordinator.role = Role::kCoordinator;
  EXPECT_EQ(fleet.init(coordinator).code(), StatusCode::kUnimplemented);
  EXPECT_EQ(fleet.init(*user_defined_collective_role(0, {"a:1"})).code(),
            StatusCode::kUnimplemented);
  const Status missing =
      fleet.init_from_environment([](const std::string& name) -> std::optional<std::string> {
        return name == "PADDLE_PSERVERS_IP_PORT_LIST" ? std::optional<std::string>("a:1")
                                                      : std::nullopt;
      });
  EXPECT_EQ(missing.message(), "environment: PADDLE_TRAINERS_NUM is not set");
}

TEST(Fleet, FilesAreSharedInOrder) {
  const auto share = [](int index, const std::vector<std::string>& files) {
    Fleet fleet;
    check(fleet.init(role_of(Role::kWorker, index, {"a:1"})));
    return *fleet.split_files(files);
  };
  EXPECT_THAT(share(0, {"a", "b", "c"}), ElementsAre("a", "b"));
  EXPECT_THAT(share(1, {"a", "b", "c"}), ElementsAre("c"));
  EXPECT_THAT(share(0, {"a"}), ElementsAre("a"));
  EXPECT_THAT(share(1, {"a"}), IsEmpty());
  EXPECT_THAT(share(0, {}), IsEmpty());
}

}  // namespace
}  // namespace millrace::fleet

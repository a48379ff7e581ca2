// The facade: a job from init to its end over the loopback device, and calls in the wrong order.

#include "fleet/fleet.h"

#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "framework/read_program.h"
#include "ps/transport/grpc.h"
#include "ps/transport/inproc.h"
#include "ps/transport/socket.h"
#include "ps/transport/tcp.h"

namespace millrace::fleet {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

void check_fleet(const Status& status) {
  ASSERT_TRUE(status.ok()) << status.to_string();
}

const char* const kFolder = "tests/data/fleet/ctr_sync_sgd/";

std::unique_ptr<Program> program_of_fleet(const std::string& name) {
  auto program = read_program(kFolder + name, {});
  EXPECT_TRUE(program.ok()) << program.status().to_string();
  return *std::move(program);
}

// Ports that nobody has; another process could take one before it is used.
std::vector<std::string> free_endpoints(int count) {
  std::vector<ps::Socket> held;
  std::vector<std::string> endpoints;
  for (int i = 0; i < count; ++i) {
    auto socket = ps::Socket::listen({.host = "127.0.0.1", .port = 0});
    EXPECT_TRUE(socket.ok());
    endpoints.push_back("127.0.0.1:" + std::to_string(socket->port()));
    held.push_back(std::move(*socket));
  }
  return endpoints;
}

RoleMaker role_of(Role role, int id, const std::vector<std::string>& servers) {
  auto made = user_defined_role({.current_id = id,
                                 .role = role,
                                 .worker_num = 2,
                                 .server_endpoints = servers,
                                 .worker_endpoints = {}});
  EXPECT_TRUE(made.ok()) << made.status().to_string();
  return *std::move(made);
}

DistributedStrategy strategy_of(bool sync) {
  DistributedStrategy strategy;
  strategy.set_a_sync(!sync);
  return strategy;
}

std::shared_ptr<ps::Transport> tcp() {
  auto transport = ps::make_tcp_transport({});
  EXPECT_TRUE(transport.ok()) << transport.status().to_string();
  return *std::move(transport);
}

// A process of the job up to its programs.
void prepare(Fleet& fleet, RoleMaker role, bool sync) {
  check_fleet(fleet.init(std::move(role)));
  MinimizeOptions optimizer;
  optimizer.learning_rate = 0.1;
  check_fleet(fleet.distributed_optimizer(optimizer, strategy_of(sync)));
  const auto registry = ops::standard_registry();
  const auto main = program_of_fleet("origin_main.pb");
  const std::string loss = main->root().back().output_names()[0].str();
  check_fleet(fleet.minimize(*registry, *main, *program_of_fleet("origin_startup.pb"), loss));
}

executor::NamedValues feeds_of_fleet(int worker, int step) {
  executor::NamedValues feeds;
  constexpr int64_t kRows = 8;
  for (const char* const name : {"emb_slot0", "emb_slot1", "label"}) {
    auto& ids = feeds[name].as<Tensor>();
    check_fleet(ids.resize(DType::kInt64, {kRows, 1}));
    for (int64_t i = 0; i < kRows; ++i)
      ids.data<int64_t>()[i] = name[0] == 'l' ? i % 2 : (i * 37 + step * 5 + worker * 3) % 1000;
  }
  auto& dense = feeds["dense"].as<Tensor>();
  check_fleet(dense.resize(DType::kFloat32, {kRows, 4}));
  for (int64_t i = 0; i < kRows * 4; ++i) dense.data<float>()[i] = (i / 4) % 2 == 0 ? 1.0F : -1.0F;
  return feeds;
}

// \returns the losses of a worker
std::vector<float> work(int index, const std::vector<std::string>& servers, bool sync, int steps) {
  std::vector<float> losses;
  Fleet fleet;
  prepare(fleet, role_of(Role::kWorker, index, servers), sync);
  WaitOptions wait;
  wait.pause = std::chrono::milliseconds(20);
  wait.timeout = std::chrono::seconds(60);
  check_fleet(fleet.init_worker(tcp(), &wait));
  const std::string loss =
      program_of_fleet("origin_main.pb")->root().back().output_names()[0].str();
  for (int step = 0; step < steps && fleet.worker() != nullptr; ++step) {
    std::vector<Value> results(1);
    const Status done = fleet.step(feeds_of_fleet(index, step), {loss}, results);
    check_fleet(done);
    if (!done.ok()) break;
    losses.push_back(results[0].get_if<Tensor>()->data<float>()[0]);
  }
  check_fleet(fleet.shrink());
  check_fleet(fleet.stop_worker());
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
        check_fleet(fleet.init_server());
        check_fleet(fleet.run_server(*tcp()));
      });
      threads.emplace_back([&, i] { losses[static_cast<size_t>(i)] = work(i, servers, sync, 30); });
    }
    for (std::thread& thread : threads) thread.join();
    for (const auto& each : losses) {
      ASSERT_EQ(each.size(), 30U);
      EXPECT_LT(each.back(), each.front());
    }
    // nobody listens any more
    for (const std::string& server : servers)
      EXPECT_FALSE(wait_server_ready({server}, {.timeout = std::chrono::milliseconds(50),
                                                .connect_timeout = std::chrono::milliseconds(50),
                                                .pause = std::chrono::milliseconds(50),
                                                .on_pending = {}})
                       .ok());
  }
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
  check_fleet(fleet.init(role_of(Role::kWorker, 1, {"a:1", "b:1"})));
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
  RoleMaker heter = role_of(Role::kWorker, 0, {"a:1"});
  heter.heter.all = {"h:1"};
  EXPECT_EQ(fleet.init(heter).code(), StatusCode::kUnimplemented);
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
    check_fleet(fleet.init(role_of(Role::kWorker, index, {"a:1"})));
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

#include <array>
#include <random>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ps/communicator/communicator.h"
#include "tests/ps/fake_sender.h"

// Geo: servers hold the initial value plus every difference exactly once, for any order of events.

namespace millrace::ps {
namespace {

using testing::context;
using testing::contexts;
using testing::dense;
using ::testing::ElementsAre;
using testing::FakeSender;
using testing::FakeServers;
using testing::floats;
using ::testing::HasSubstr;
using testing::ids;
using ::testing::IsEmpty;

std::unique_ptr<Communicator> make_geo(FakeServers& servers, int trainer, int trainers,
                                       int push_count, const CommContexts& params) {
  CommunicatorOptions options;
  options.trainers = trainers;
  options.trainer_id = trainer;
  options.max_merge_var_num = push_count;
  options.rpc_deadline_ms = 20'000;
  auto made =
      Communicator::create(CommMode::kGeo, options, std::make_shared<FakeSender>(servers, trainer));
  EXPECT_TRUE(made.ok()) << made.status().to_string();
  CommContexts send;
  for (const auto& [name, receive] : params) send.emplace(name, delta_context(receive));
  const Status set = (*made)->init_with_ctx(std::move(send), params);
  EXPECT_TRUE(set.ok()) << set.to_string();
  return std::move(*made);
}

void move(Scope& scope, const std::string& var, const std::vector<float>& by) {
  auto& tensor = *scope.find(var)->get_if<Tensor>();
  for (size_t i = 0; i < by.size(); ++i) tensor.data<float>()[i] += by[i];
}

TEST(GeoTest, AMoveGoesOutByHalvesAmongTwo) {
  FakeServers servers;
  servers.vars["w"] = {1};
  auto comm = make_geo(servers, 0, 2, 1, contexts({context("w")}));
  Scope scope;
  scope.local("w") = dense({1});
  ASSERT_TRUE(comm->start(&scope).ok());
  move(scope, "w", {64});
  for (int step = 0; step < 4; ++step) ASSERT_TRUE(comm->finish_step(scope).ok());
  ASSERT_TRUE(comm->stop().ok());
  EXPECT_THAT(servers.log["w"],
              ElementsAre(ElementsAre(32), ElementsAre(16), ElementsAre(8), ElementsAre(4)));
  EXPECT_THAT(servers.vars["w"], ElementsAre(61));
}

TEST(GeoTest, PushesAfterEveryKthStepOnly) {
  FakeServers servers;
  servers.vars["w"] = {0};
  auto comm = make_geo(servers, 0, 1, 3, contexts({context("w")}));
  Scope scope;
  scope.local("w") = dense({0});
  ASSERT_TRUE(comm->start(&scope).ok());
  for (int step = 0; step < 7; ++step) {
    move(scope, "w", {1});
    ASSERT_TRUE(comm->finish_step(scope).ok());
  }
  ASSERT_TRUE(comm->stop().ok());
  EXPECT_THAT(servers.log["w"], ElementsAre(ElementsAre(3), ElementsAre(3)));
  EXPECT_EQ(comm->counts().pushes, 2);
}

TEST(GeoTest, ServersHoldTheSumOfAllDeltasInAnyOrder) {
  for (unsigned seed = 0; seed < 5; ++seed) {
    FakeServers servers;
    servers.vars["w"] = {0};
    constexpr int kTrainers = 2;
    std::vector<std::thread> threads;
    std::array<double, kTrainers> expected{};
    for (int t = 0; t < kTrainers; ++t) {
      threads.emplace_back([&, t] {
        std::mt19937 random(seed * 10 + static_cast<unsigned>(t));
        auto comm = make_geo(servers, t, kTrainers, 2, contexts({context("w")}));
        Scope scope;
        scope.local("w") = dense({0});
        ASSERT_TRUE(comm->start(&scope).ok());
        double rest = 0;  // live - old, which pulls do not change
        for (int step = 1; step <= 12; ++step) {
          const auto by = static_cast<float>(1 + random() % 4) * 64;
          move(scope, "w", {by});
          rest += by;
          if (step % 2 == 0) {
            expected[static_cast<size_t>(t)] += rest / 2;
            rest /= 2;
          }
          ASSERT_TRUE(comm->finish_step(scope).ok());
          if (random() % 3 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
        }
        ASSERT_TRUE(comm->stop().ok());
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_THAT(servers.vars["w"], ElementsAre(static_cast<float>(expected[0] + expected[1])));
  }
}

TEST(GeoTest, ALateAnswerDoesNotTakeBackWhatWasPushedSince) {
  FakeServers servers;
  servers.vars["w"] = {0};
  servers.is_blocked = true;
  auto comm = make_geo(servers, 0, 1, 1, contexts({context("w")}));
  Scope scope;
  scope.local("w") = dense({0});
  ASSERT_TRUE(comm->start(&scope).ok());
  for (int step = 0; step < 2; ++step) {  // one is being sent, one waits
    move(scope, "w", {1});
    ASSERT_TRUE(comm->finish_step(scope).ok());
  }
  {
    const std::lock_guard lock(servers.mutex);
    servers.vars["w"] = {10};  // an update of another trainer
  }
  servers.block(false);
  ASSERT_TRUE(servers.wait([&] { return servers.receives >= 1; }));
  ASSERT_TRUE(comm->adopt(scope).ok());
  ASSERT_TRUE(servers.wait([&] { return servers.receives >= 2; }));
  move(scope, "w", {1});
  ASSERT_TRUE(comm->finish_step(scope).ok());
  ASSERT_TRUE(comm->stop().ok());
  EXPECT_THAT(servers.vars["w"], ElementsAre(13));
  EXPECT_THAT(floats(*scope.find("w")), ElementsAre(13)) << "live has everybody's moves";
}

TEST(GeoTest, SendsOnlyRowsThatWereTrained) {
  FakeServers servers;
  servers.width = 2;
  servers.trainers = 2;
  servers.vars["t"] = std::vector<float>(12);
  CommContext table = context("t", true);
  table.split_varnames = {"t.block0", "t.block1"};
  table.split_endpoints = {"127.0.0.1:1", "127.0.0.1:2"};
  table.sections = {3, 3};
  auto comm = make_geo(servers, 0, 2, 2, contexts({table}));
  Scope scope;
  scope.local("t") = dense(std::vector<float>(12), {6, 2});
  ASSERT_TRUE(comm->start(&scope).ok());
  ASSERT_TRUE(comm->send("t", ids({4, 1, 4})).ok());
  move(scope, "t", {8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8});
  ASSERT_TRUE(comm->finish_step(scope).ok());
  Value gradient;
  gradient.as<SelectedRows>().rows = {5};
  ASSERT_TRUE(comm->send("t", ids({-1})).ok());
  ASSERT_TRUE(comm->send("t", gradient).ok());
  ASSERT_TRUE(comm->finish_step(scope).ok());
  ASSERT_TRUE(servers.wait([&] { return servers.receives >= 0 && !servers.log["t"].empty(); }));
  EXPECT_THAT(servers.row_log["t"], ElementsAre(ElementsAre(1, 4, 5)));
  EXPECT_THAT(servers.log["t"][0], ElementsAre(4, 4, 4, 4, 4, 4));
  // Nothing was looked up since then: nothing is sent, but rows of other trainers are received.
  {
    const std::lock_guard lock(servers.mutex);
    servers.vars["t"][0] = 100;
    servers.changed_rows["t"][0].insert(0);
  }
  for (int step = 0; step < 2; ++step) ASSERT_TRUE(comm->finish_step(scope).ok());
  ASSERT_TRUE(comm->stop().ok());
  EXPECT_EQ(servers.log["t"].size(), 1U);
}

TEST(GeoTest, TakesOverRowsThatOthersChanged) {
  FakeServers servers;
  servers.trainers = 2;
  servers.vars["t"] = {0, 0, 0, 0};
  servers.changed_rows["t"][0] = {2};
  servers.vars["t"][2] = 5;
  auto comm = make_geo(servers, 0, 2, 1, contexts({context("t", true)}));
  Scope scope;
  scope.local("t") = dense({0, 0, 0, 0}, {4, 1});
  ASSERT_TRUE(comm->start(&scope).ok());
  move(scope, "t", {0, 4, 0, 4});
  ASSERT_TRUE(comm->send("t", ids({1})).ok());
  ASSERT_TRUE(comm->finish_step(scope).ok());
  for (int i = 0; i < 5000 && floats(*scope.find("t"))[2] == 0; ++i) {
    ASSERT_TRUE(comm->finish_step(scope).ok());
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_THAT(floats(*scope.find("t")), ElementsAre(0, 4, 5, 4));
  ASSERT_TRUE(comm->stop().ok());
  EXPECT_EQ(servers.vars["t"][1], 2);
}

TEST(GeoTest, WrongIdsAndParametersAreErrors) {
  FakeServers servers;
  servers.vars["t"] = {0, 0};
  auto comm = make_geo(servers, 0, 1, 1, contexts({context("t", true), context("w")}));
  Scope scope;
  EXPECT_EQ(comm->start().code(), StatusCode::kInvalidArgument) << "no scope";
  EXPECT_EQ(comm->start(&scope).message(), "'t' has no value");
  scope.local("t") = dense({0, 0}, {2, 1});
  scope.local("w") = ids({1});
  EXPECT_EQ(comm->start(&scope).code(), StatusCode::kUnimplemented);
  scope.local("w") = dense({1});
  ASSERT_TRUE(comm->start(&scope).ok());
  EXPECT_EQ(comm->send("t", ids({2})).message(), "id 2 is out of range for 't', which has 2 rows");
  EXPECT_THAT(comm->send("t", dense({1})).message(), HasSubstr("expected i64"));
  EXPECT_EQ(comm->send("w", dense({1})).code(), StatusCode::kInvalidArgument);
  ASSERT_TRUE(comm->stop().ok());
}

TEST(GeoTest, NeedsTheSameParametersBothWays) {
  FakeServers servers;
  auto comm = Communicator::create(CommMode::kGeo, {}, std::make_shared<FakeSender>(servers));
  ASSERT_TRUE(comm.ok());
  EXPECT_EQ((*comm)->init_with_ctx(contexts({context("w")}), {}).message(),
            "geo sends 'w', but does not receive it");
}

}  // namespace
}  // namespace millrace::ps

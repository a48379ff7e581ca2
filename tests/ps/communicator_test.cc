#include "ps/communicator/communicator.h"

#include <atomic>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/ps/fake_sender.h"

// Gradients that a trainer sends arrive merged, with bounded queues, and completely; received
// parameters reach the scope.

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
using ::testing::IsEmpty;
using testing::selected;
using ::testing::SizeIs;

std::unique_ptr<Communicator> make_communicator(FakeServers& servers, CommMode mode,
                                                CommunicatorOptions options, CommContexts send,
                                                CommContexts receive) {
  auto made = Communicator::create(mode, options, std::make_shared<FakeSender>(servers));
  EXPECT_TRUE(made.ok()) << made.status().to_string();
  const Status set = (*made)->init_with_ctx(std::move(send), std::move(receive));
  EXPECT_TRUE(set.ok()) << set.to_string();
  return std::move(*made);
}

CommunicatorOptions merging(int merge, int queue, int wait_times) {
  CommunicatorOptions options;
  options.max_merge_var_num = merge;
  options.send_queue_size = queue;
  options.send_wait_times = wait_times;
  options.rpc_deadline_ms = 20'000;
  return options;
}

TEST(CommunicatorTest, AsyncSendsEveryGradientOnce) {
  FakeServers servers;
  auto comm = make_communicator(servers, CommMode::kAsync, merging(1, 4, 5),
                                contexts({context("a"), context("b")}), {});
  ASSERT_TRUE(comm->start().ok());
  for (int step = 1; step <= 10; ++step) {
    ASSERT_TRUE(comm->send("a", dense({1.0F * step, 2})).ok());
    const Value b = dense({0.5F});
    ASSERT_TRUE(comm->send("b", b).ok());
    EXPECT_THAT(floats(b), ElementsAre(0.5F)) << "a copy is sent";
  }
  ASSERT_TRUE(comm->stop().ok());
  EXPECT_FALSE(comm->is_running());
  EXPECT_THAT(servers.vars["a"], ElementsAre(55, 20));
  EXPECT_THAT(servers.vars["b"], ElementsAre(5));
  EXPECT_THAT(servers.log["a"], SizeIs(10));
  EXPECT_EQ(comm->counts().sends, 20);
}

TEST(CommunicatorTest, MergesExactlyAsManyAsItMayWhenItWaitsLong) {
  for (const bool aggregate : {true, false}) {
    FakeServers servers;
    CommContext w = context("w");
    w.aggregate = aggregate;
    auto comm =
        make_communicator(servers, CommMode::kAsync, merging(4, 4, 3000), contexts({w}), {});
    ASSERT_TRUE(comm->start().ok());
    for (int step = 1; step <= 8; ++step) ASSERT_TRUE(comm->send("w", dense({1.0F * step})).ok());
    ASSERT_TRUE(servers.wait([&] { return servers.log["w"].size() == 2; }));
    const float part = aggregate ? 1.0F : 0.25F;
    EXPECT_THAT(servers.log["w"], ElementsAre(ElementsAre(10 * part), ElementsAre(26 * part)));
    ASSERT_TRUE(comm->stop().ok());
    EXPECT_THAT(servers.log["w"], SizeIs(2));
  }
}

TEST(CommunicatorTest, AveragesGradientsForOtherOptimizersThanSgd) {
  for (const CommMode mode : {CommMode::kAsync, CommMode::kHalfAsync}) {
    FakeServers servers;
    CommunicatorOptions options = merging(4, 4, 3000);
    options.cpu_num = mode == CommMode::kHalfAsync ? 4 : 1;
    options.is_sgd_optimizer = false;
    CommContext count = context("count");
    count.use_send_handler = false;
    CommContext statistics = context("statistics");
    statistics.is_datanorm_table = true;
    auto comm =
        make_communicator(servers, mode, options, contexts({context("g"), count, statistics}), {});
    ASSERT_TRUE(comm->start().ok());
    for (int step = 1; step <= 4; ++step)
      for (const char* const var : {"g", "count", "statistics"})
        ASSERT_TRUE(comm->send(var, dense({1.0F * step})).ok());
    ASSERT_TRUE(comm->stop().ok());
    EXPECT_THAT(servers.vars["g"], ElementsAre(mode == CommMode::kAsync ? 2.5F : 10.0F));
    EXPECT_EQ(servers.vars["count"][0] + servers.vars["statistics"][0], 20);
  }
}

TEST(CommunicatorTest, SendsWhatIsThereWhenNothingMoreComes) {
  FakeServers servers;
  auto comm = make_communicator(servers, CommMode::kAsync, merging(100, 100, 2),
                                contexts({context("w")}), {});
  ASSERT_TRUE(comm->start().ok());
  ASSERT_TRUE(comm->send("w", dense({3})).ok());
  ASSERT_TRUE(comm->send("w", dense({4})).ok());
  ASSERT_TRUE(servers.wait([&] { return servers.vars["w"] == std::vector<float>{7}; }));
  ASSERT_TRUE(comm->stop().ok());
}

TEST(CommunicatorTest, StopSendsWhatWaits) {
  FakeServers servers;
  auto comm = make_communicator(servers, CommMode::kAsync, merging(4, 50, 3000),
                                contexts({context("w")}), {});
  ASSERT_TRUE(comm->start().ok());
  for (int step = 0; step < 11; ++step) ASSERT_TRUE(comm->send("w", dense({1})).ok());
  ASSERT_TRUE(comm->stop().ok());
  EXPECT_THAT(servers.vars["w"], ElementsAre(11));
  EXPECT_THAT(servers.log["w"].back(), ElementsAre(3));
}

TEST(CommunicatorTest, MergesEqualRowsAndLeavesOthers) {
  FakeServers servers;
  servers.width = 2;
  servers.vars["t"] = std::vector<float>(20);
  auto comm = make_communicator(servers, CommMode::kAsync, merging(2, 2, 3000),
                                contexts({context("t", true)}), {});
  ASSERT_TRUE(comm->start().ok());
  ASSERT_TRUE(comm->send("t", selected({3, 1, 3}, {1, 1, 2, 2, 4, 4}, 10)).ok());
  ASSERT_TRUE(comm->send("t", selected({1, 9}, {8, 8, 16, 16}, 10)).ok());
  ASSERT_TRUE(comm->stop().ok());
  ASSERT_THAT(servers.row_log["t"], ElementsAre(ElementsAre(3, 1, 9)));
  EXPECT_THAT(servers.log["t"], ElementsAre(ElementsAre(5, 5, 10, 10, 16, 16)));
}

TEST(CommunicatorTest, TakesVarsOfOneContextTogether) {
  FakeServers servers;
  CommContext both = dense_table_context(1, {"b", "w"});
  auto comm =
      make_communicator(servers, CommMode::kAsync, merging(2, 4, 3000), contexts({both}), {});
  ASSERT_TRUE(comm->start().ok());
  for (int step = 0; step < 2; ++step) ASSERT_TRUE(comm->send("w", dense({1})).ok());
  EXPECT_EQ(comm->counts().sends, 0);
  for (int step = 0; step < 2; ++step) ASSERT_TRUE(comm->send("b", dense({10})).ok());
  ASSERT_TRUE(servers.wait([&] { return !servers.log["w"].empty(); }));
  EXPECT_THAT(servers.log["b"], ElementsAre(ElementsAre(20)));
  EXPECT_THAT(servers.log["w"], ElementsAre(ElementsAre(2)));
  ASSERT_TRUE(comm->send("w", dense({1})).ok());
  const Status status = comm->stop();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("'w' was sent more often than 'b'"));
}

TEST(CommunicatorTest, AFullQueueHoldsTheTrainerBack) {
  FakeServers servers;
  servers.is_blocked = true;
  auto comm =
      make_communicator(servers, CommMode::kAsync, merging(1, 3, 0), contexts({context("w")}), {});
  ASSERT_TRUE(comm->start().ok());
  std::atomic<int> sent = 0;
  std::thread trainer([&] {
    for (int step = 0; step < 10; ++step) {
      ASSERT_TRUE(comm->send("w", dense({1})).ok());
      ++sent;
    }
  });
  for (int i = 0; i < 20'000 && sent < 3; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // time to send one too many
  EXPECT_GE(sent, 3);
  EXPECT_LE(sent, 4) << "three wait, one is being sent";
  servers.block(false);
  trainer.join();
  ASSERT_TRUE(comm->stop().ok());
  EXPECT_THAT(servers.vars["w"], ElementsAre(10));
}

TEST(CommunicatorTest, AQueueThatStaysFullIsAnError) {
  FakeServers servers;
  servers.is_blocked = true;
  CommunicatorOptions options = merging(1, 1, 0);
  options.rpc_deadline_ms = 200;
  auto comm = make_communicator(servers, CommMode::kAsync, options, contexts({context("w")}), {});
  ASSERT_TRUE(comm->start().ok());
  Status status;
  for (int step = 0; step < 5 && status.ok(); ++step) status = comm->send("w", dense({1}));
  EXPECT_EQ(status.code(), StatusCode::kDistributed) << status.to_string();
  EXPECT_FALSE(comm->stop().ok());
}

TEST(CommunicatorTest, AFailedSendComesBackAtTheNextStepAndInStop) {
  FakeServers servers;
  servers.failure = Status(StatusCode::kDistributed, "lost 127.0.0.1:1");
  auto comm =
      make_communicator(servers, CommMode::kAsync, merging(1, 4, 0), contexts({context("w")}), {});
  ASSERT_TRUE(comm->start().ok());
  ASSERT_TRUE(comm->send("w", dense({1})).ok());
  Scope scope;
  Status status;
  for (int i = 0; i < 1000 && status.ok(); ++i) {
    status = comm->finish_step(scope);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(status.message(), "lost 127.0.0.1:1");
  EXPECT_THAT(status.notes(), ElementsAre("while sending 'w'"));
  EXPECT_EQ(comm->send("w", dense({1})).message(), "lost 127.0.0.1:1");
  EXPECT_EQ(comm->stop().message(), "lost 127.0.0.1:1");
}

TEST(CommunicatorTest, ReceivesByItsOwnThreadAndNeverTouchesTheScopeItself) {
  FakeServers servers;
  servers.vars["w"] = {0, 0};
  servers.targets["g"] = "w";
  servers.rate = -0.5F;
  auto comm = make_communicator(servers, CommMode::kAsync, merging(1, 4, 0),
                                contexts({context("g")}), contexts({context("w")}));
  Scope scope;
  scope.local("w") = dense({0, 0});
  ASSERT_TRUE(comm->start().ok());
  ASSERT_TRUE(comm->send("g", dense({2, 4})).ok());
  ASSERT_TRUE(comm->send("g", dense({2, 4})).ok());
  ASSERT_TRUE(servers.wait([&] { return servers.receives > 0; }));
  for (int i = 0; i < 5000 && floats(*scope.find("w"))[0] != -2; ++i) {
    EXPECT_TRUE(comm->finish_step(scope).ok());
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_THAT(floats(*scope.find("w")), ElementsAre(-2, -4));
  ASSERT_TRUE(comm->stop().ok());
}

TEST(CommunicatorTest, WithoutTheThreadReceivesAfterEachSend) {
  FakeServers servers;
  servers.targets["g"] = "w";
  CommunicatorOptions options = merging(1, 4, 0);
  options.independent_recv_thread = false;
  CommContext other = context("v");
  other.table_id = 3;
  CommContext own = context("w");
  own.table_id = 2;
  CommContext grad = context("g");
  grad.table_id = 2;
  auto comm = make_communicator(servers, CommMode::kAsync, options, contexts({grad}),
                                contexts({own, other}));
  ASSERT_TRUE(comm->start().ok());
  ASSERT_TRUE(comm->send("g", dense({5})).ok());
  ASSERT_TRUE(comm->stop().ok());
  EXPECT_EQ(comm->counts().receives, 1);
  Value live = dense({0});
  const auto adopted = comm->adopt("w", live);
  ASSERT_TRUE(adopted.ok());
  EXPECT_TRUE(*adopted);
  EXPECT_THAT(floats(live), ElementsAre(5));
  EXPECT_FALSE(*comm->adopt("w", live)) << "nothing new";
  EXPECT_FALSE(*comm->adopt("v", live));
}

// A received value replaces the memory of a var if only the var owns it; other owners of that
// memory keep the old values.
TEST(CommunicatorTest, FinishStepExchangesMemoryThatNobodyShares) {
  FakeServers servers;
  servers.targets["g"] = "w";
  CommunicatorOptions options = merging(1, 4, 0);
  options.independent_recv_thread = false;
  for (const bool is_shared : {false, true}) {
    auto comm = make_communicator(servers, CommMode::kAsync, options, contexts({context("g")}),
                                  contexts({context("w")}));
    servers.vars["w"] = {0};
    ASSERT_TRUE(comm->start().ok());
    Scope scope;
    scope.local("w") = dense({0});
    auto& live = scope.local("w").as<Tensor>();
    const std::byte* const before = live.raw();
    Tensor view;
    if (is_shared) view = live.share();
    ASSERT_TRUE(comm->send("g", dense({5})).ok());
    ASSERT_TRUE(comm->stop().ok());
    // stopped: received values are in place, and finish_step() is only for running communicators
    ASSERT_TRUE(comm->start().ok());
    ASSERT_TRUE(comm->finish_step(scope).ok());
    EXPECT_THAT(floats(scope.local("w")), ElementsAre(5));
    EXPECT_NE(live.raw(), before);
    EXPECT_EQ(is_shared ? *view.data<float>() : 0.0F, 0.0F);
    ASSERT_TRUE(comm->stop().ok());
  }
}

TEST(CommunicatorTest, RefusesParametersOfAnotherForm) {
  FakeServers servers;
  servers.vars["w"] = {1, 2, 3};
  auto comm = make_communicator(servers, CommMode::kAsync, {}, {}, contexts({context("w")}));
  Scope scope;
  scope.local("w") = dense({0, 0});
  const Status status = comm->recv(scope);
  EXPECT_EQ(status.code(), StatusCode::kExecution);
  EXPECT_THAT(status.message(), HasSubstr("'w' is f32 [2] here, but the servers sent f32 [3]"));
}

TEST(CommunicatorTest, CountersAreAddedUpAsIntegers) {
  FakeServers servers;
  CommContext counter = context("@PS_STEP_COUNTER@");
  counter.use_send_handler = false;
  counter.is_tensor_table = true;
  auto comm =
      make_communicator(servers, CommMode::kAsync, merging(3, 3, 3000), contexts({counter}), {});
  ASSERT_TRUE(comm->start().ok());
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(comm->send("@PS_STEP_COUNTER@", testing::ids({1})).ok());
  ASSERT_TRUE(comm->stop().ok());
  EXPECT_THAT(servers.row_log["@PS_STEP_COUNTER@"], ElementsAre(ElementsAre(3)));
}

TEST(CommunicatorTest, CountsStepsItself) {
  FakeServers servers;
  CommContext counter = context("@PS_STEP_COUNTER@");
  counter.use_send_handler = false;
  CommunicatorOptions options = merging(1, 4, 5);
  options.need_global_step = true;
  auto comm =
      *Communicator::create(CommMode::kAsync, options, std::make_shared<FakeSender>(servers));
  EXPECT_EQ(comm->init_with_ctx(contexts({context("g")}), {}).message(),
            "need_global_step: no context sends '@PS_STEP_COUNTER@'");
  ASSERT_TRUE(comm->init_with_ctx(contexts({context("g"), counter}), {}).ok());
  ASSERT_TRUE(comm->start().ok());
  Scope scope;
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(comm->send("g", dense({1})).ok());
    ASSERT_TRUE(comm->finish_step(scope).ok());
  }
  ASSERT_TRUE(comm->stop().ok());
  int64_t steps = 0;
  for (const auto& sent : servers.row_log["@PS_STEP_COUNTER@"]) steps += sent.front();
  EXPECT_EQ(steps, 3);
}

TEST(CommunicatorTest, HalfAsyncMergesWhatAllThreadsBrought) {
  FakeServers servers;
  servers.targets["g"] = "w";
  CommunicatorOptions options = merging(1, 1, 0);
  options.cpu_num = 3;
  CommContext grad = context("g");
  grad.aggregate = false;
  auto comm = make_communicator(servers, CommMode::kHalfAsync, options, contexts({grad}),
                                contexts({context("w")}));
  EXPECT_THAT(comm->remarks(), SizeIs(2));
  ASSERT_TRUE(comm->start().ok());
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      for (int step = 0; step < 20; ++step) {
        EXPECT_TRUE(comm->send("g", dense({static_cast<float>(t)})).ok());
        const Status status = comm->barrier();
        EXPECT_TRUE(status.ok()) << status.to_string();
      }
      // Threads leave one after another, and the rest must continue.
      for (int step = 0; step < t; ++step) {
        EXPECT_TRUE(comm->send("g", dense({7})).ok());
        EXPECT_TRUE(comm->barrier().ok());
      }
      EXPECT_TRUE(comm->leave().ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_TRUE(comm->stop().ok());
  ASSERT_THAT(servers.log["g"], SizeIs(22));
  for (size_t i = 0; i < 20; ++i) EXPECT_THAT(servers.log["g"][i], ElementsAre(1)) << i;
  EXPECT_THAT(servers.log["g"][20], ElementsAre(7));
  EXPECT_EQ(servers.receives, 22);
  EXPECT_THAT(servers.barriers, IsEmpty());
}

TEST(CommunicatorTest, SyncPutsBarriersBehindSendsAndReceives) {
  FakeServers servers;
  servers.targets["g"] = "w";
  auto comm = make_communicator(servers, CommMode::kSync, {}, contexts({context("g")}),
                                contexts({context("w")}));
  Scope scope;
  scope.local("w") = dense({0});
  ASSERT_TRUE(comm->start().ok());
  for (int step = 1; step <= 2; ++step) {
    ASSERT_TRUE(comm->send("g", dense({1})).ok());
    ASSERT_TRUE(comm->barrier().ok());
    ASSERT_TRUE(comm->finish_step(scope).ok());
    EXPECT_THAT(floats(*scope.find("w")), ElementsAre(step));
  }
  ASSERT_TRUE(comm->stop().ok());
  EXPECT_THAT(servers.barriers, ElementsAre("send", "receive", "send", "receive"));
}

TEST(CommunicatorTest, ABarrierThatNobodyElseReachesEnds) {
  FakeServers servers;
  CommunicatorOptions options;
  options.cpu_num = 2;
  options.rpc_deadline_ms = 50;
  auto comm =
      make_communicator(servers, CommMode::kHalfAsync, options, contexts({context("g")}), {});
  ASSERT_TRUE(comm->start().ok());
  const Status status = comm->barrier();
  EXPECT_EQ(status.code(), StatusCode::kDistributed);
  EXPECT_THAT(status.message(), HasSubstr("1 of 2 threads"));
  // A retry by the same thread must not count as the missing one.
  EXPECT_EQ(comm->barrier().message(), status.message());
  EXPECT_EQ(comm->send("g", dense({1})).message(), status.message());
}

TEST(CommunicatorTest, TrainerZeroGivesTheServersTheirFirstValues) {
  FakeServers servers;
  servers.trainers = 2;
  Scope first;
  first.local("w") = dense({1, 2});
  Scope second;
  for (const int trainer : {0, 1}) {
    CommunicatorOptions options;
    options.trainers = 2;
    options.trainer_id = trainer;
    auto comm = make_communicator(servers, CommMode::kAsync, options, {}, contexts({context("w")}));
    ASSERT_TRUE(comm->init_params(trainer == 0 ? first : second).ok());
  }
  EXPECT_THAT(floats(*second.find("w")), ElementsAre(1, 2));
  EXPECT_THAT(servers.barriers, ElementsAre("init", "init"));
}

TEST(CommunicatorTest, PullsOneTableAndPushesOneParameter) {
  FakeServers servers;
  servers.vars = {{"v", {1}}, {"w", {2}}};
  CommContext table = context("t@GRAD", true);
  table.table_id = 0;
  auto comm =
      make_communicator(servers, CommMode::kAsync, {}, contexts({table}),
                        contexts({dense_table_context(1, {"v"}), dense_table_context(2, {"w"})}));
  Scope scope;
  ASSERT_TRUE(comm->pull_dense(scope, 2).ok());
  EXPECT_EQ(scope.find("v"), nullptr);
  EXPECT_THAT(floats(*scope.find("w")), ElementsAre(2));
  EXPECT_EQ(comm->pull_dense(scope, 7).code(), StatusCode::kNotFound);
  scope.local("t") = dense({9, 9});
  EXPECT_EQ(comm->push_sparse_param("t", -1, scope).code(), StatusCode::kInvalidArgument)
      << "it does not run";
  ASSERT_TRUE(comm->start().ok());
  EXPECT_EQ(comm->push_sparse_param("t", 5, scope).code(), StatusCode::kInvalidArgument);
  ASSERT_TRUE(comm->push_sparse_param("t", -1, scope).ok());
  EXPECT_THAT(servers.vars["t@GRAD"], ElementsAre(9, 9));
}

TEST(CommunicatorTest, RefusesWhatNoContextSends) {
  FakeServers servers;
  auto comm = make_communicator(servers, CommMode::kAsync, {}, contexts({context("w")}), {});
  EXPECT_EQ(comm->send("w", dense({1})).code(), StatusCode::kInvalidArgument) << "not started";
  ASSERT_TRUE(comm->start().ok());
  EXPECT_EQ(comm->send("v", dense({1})).code(), StatusCode::kNotFound);
  EXPECT_TRUE(comm->sends("w"));
  EXPECT_FALSE(comm->sends("v"));
  Value text;
  text.as<Strings>() = {"x"};
  EXPECT_EQ(comm->send("w", text).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(comm->init_with_ctx({}, {}).code(), StatusCode::kInvalidArgument);
  ASSERT_TRUE(comm->stop().ok());
  EXPECT_EQ(comm->init_with_ctx(
                    contexts({dense_table_context(1, {"x"}), dense_table_context(2, {"x"})}), {})
                .message(),
            "'x' is in contexts 'Dense_1' and 'Dense_2'");
}

TEST(CommunicatorTest, GradientsOfOtherDimsAreAnErrorOfTheStep) {
  FakeServers servers;
  auto comm = make_communicator(servers, CommMode::kAsync, merging(2, 4, 3000),
                                contexts({context("w")}), {});
  ASSERT_TRUE(comm->start().ok());
  ASSERT_TRUE(comm->send("w", dense({1, 2})).ok());
  ASSERT_TRUE(comm->send("w", dense({1, 2, 3})).ok());
  const Status status = comm->stop();
  EXPECT_EQ(status.code(), StatusCode::kExecution);
  EXPECT_THAT(status.message(), HasSubstr("f32 [2] and f32 [3]"));
}

TEST(CommunicatorTest, FakeRpcSendsNothingAndMergeSparseGradOffSendsAtOnce) {
  FakeServers servers;
  servers.vars["t"] = {0, 0};
  CommunicatorOptions options = merging(100, 100, 3000);
  options.merge_sparse_grad = false;
  auto comm =
      make_communicator(servers, CommMode::kAsync, options, contexts({context("t", true)}), {});
  ASSERT_TRUE(comm->start().ok());
  ASSERT_TRUE(comm->send("t", selected({1, 1}, {2, 3}, 2)).ok());
  EXPECT_THAT(servers.vars["t"], ElementsAre(0, 5)) << "no queue, no wait";
  ASSERT_TRUE(comm->stop().ok());
  options.fake_rpc = true;
  auto idle = make_communicator(servers, CommMode::kAsync, options, contexts({context("w")}), {});
  ASSERT_TRUE(idle->start().ok());
  ASSERT_TRUE(idle->send("w", dense({1})).ok());
  ASSERT_TRUE(idle->stop().ok());
  EXPECT_THAT(servers.log["w"], IsEmpty());
}

}  // namespace
}  // namespace millrace::ps

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "ps/sequence_window.h"
#include "ps/server/changed_rows.h"
#include "tests/ps/server_fixture.h"

// Asynchronous servers apply gradients when they arrive: once, and with delay compensation.

namespace millrace::ps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Floats = std::vector<float>;

const std::map<std::string, Floats> kAsyncServerStart = {{"w", {8, 16}}, {"rate", {0.5}}};

TEST(AsyncServer, AppliesEachGradientOnce) {
  const auto way = std::make_shared<InprocTransport>();
  TestServer server(way, async_server(3), kAsyncServerStart);
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      TestTrainer trainer(way, t);
      const Value grad = floats({0.25, 0.5});
      for (int k = 0; k < 10; ++k) ASSERT_TRUE(trainer.call(Method::kSend, "w@GRAD", &grad).ok());
      if (t > 0) {
        ASSERT_TRUE(trainer.leave().ok());
        return;
      }
      ASSERT_TRUE(trainer.client().complete(true).ok());
      Floats seen;
      ASSERT_TRUE(
          trainer.call(Method::kGetNoBarrier, "w@WITHOUT_BARRIER@RECV", nullptr, &seen).ok());
      EXPECT_THAT(seen, ElementsAre(8 - 3.75F, 16 - 7.5F));
      ASSERT_TRUE(trainer.leave().ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(server.end().ok());
}

// transpile(sync_mode=False) without sync_mode in the configuration: distributed_mode says 0, but
// the program has one var for the gradients of all trainers, so that none can wait for another.
TEST(AsyncServer, AppliesEachGradientOfAProgramThatMergesNone) {
  const auto way = std::make_shared<InprocTransport>();
  std::string text = async_server(2);
  const std::string mode = "distributed_mode: ";
  text.replace(text.find(mode), mode.size() + 1, mode + "0");
  TestServer server(way, text, kAsyncServerStart);
  TestTrainer first(way, 0);
  TestTrainer second(way, 1);
  const Value some = floats({0.25, 0.5});
  const Value others = floats({1, 2});
  ASSERT_TRUE(first.call(Method::kSend, "w@GRAD", &some).ok());
  ASSERT_TRUE(second.call(Method::kSend, "w@GRAD", &others).ok());
  ASSERT_TRUE(second.leave().ok());
  ASSERT_TRUE(first.client().complete(true).ok());
  Floats seen;
  ASSERT_TRUE(first.call(Method::kGetNoBarrier, "w@WITHOUT_BARRIER@RECV", nullptr, &seen).ok());
  EXPECT_THAT(seen, ElementsAre(8 - 0.625F, 16 - 1.25F));
  ASSERT_TRUE(first.leave().ok());
  EXPECT_TRUE(server.end().ok());
}

// Federated: the parameter becomes the mean of the values that the trainers send.
TEST(FederatedServer, TakesTheMeanOfTheCopies) {
  const auto way = std::make_shared<InprocTransport>();
  TestServer server(way, R"(# millrace program 1

block 0 {
  persist w: f32(2)
  var w.opti.trainer_0: f32(2)
  var w.opti.trainer_1: f32(2)

  fl_listen_and_serv X=w.opti.trainer_0, w.opti.trainer_1 {
      optimize_blocks: [^1], endpoint: "server", Fanin: 2, sync_mode: true
  }
}

block 1 parent=0 {
  sum X=w.opti.trainer_0, w.opti.trainer_1 -> Out=w {op_role: 0}
  scale X=w -> Out=w {scale: 0.5, op_role: 0}
}
)",
                    {{"w", {8, 16}}});
  Floats seen[2];
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&, t] {
      TestTrainer trainer(way, t);
      for (int round = 0; round < 3; ++round)
        ASSERT_TRUE(trainer
                        .step(fmt::format("w.opti.trainer_{}", t),
                              {float(round), float(2 * t + round)}, seen[t])
                        .ok());
      ASSERT_TRUE(trainer.leave().ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(seen[0], ElementsAre(2, 3));
  EXPECT_THAT(seen[1], ElementsAre(2, 3));
  EXPECT_TRUE(server.end().ok());
}

// The effect of a call and the record that it was carried out are stored together.
TEST(AsyncServer, GoesOnFromItsSnapshot) {
  const auto way = std::make_shared<InprocTransport>();
  const std::string folder =
      ::testing::TempDir() + "/ps_async_snapshots_" + std::to_string(::getpid());
  std::filesystem::remove_all(folder);
  ServerOptions options;
  options.snapshot_root = folder;
  auto server = std::make_unique<TestServer>(way, async_server(1), kAsyncServerStart, options);
  TestTrainer trainer(way, 0);
  const Value grad = floats({2, 4});
  Floats seen;
  for (int k = 0; k < 4; ++k) {
    ASSERT_TRUE(trainer.call(Method::kSend, "w@GRAD", &grad).ok());
    ASSERT_TRUE(server->end(true).ok());  // saves a snapshot at its end
    server = std::make_unique<TestServer>(way, async_server(1), kAsyncServerStart, options);
  }
  ASSERT_TRUE(trainer.call(Method::kGet, "w", nullptr, &seen).ok());
  EXPECT_THAT(seen, ElementsAre(4, 8));
}

TEST(AsyncServer, NamesAGradientThatStartsNoBlock) {
  const auto way = std::make_shared<InprocTransport>();
  TestServer server(way, async_server(1), kAsyncServerStart);
  TestTrainer trainer(way, 0, 300);
  const Value grad = floats({1, 1});
  const Status status = trainer.call(Method::kSend, "v@GRAD", &grad);
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_THAT(status.to_string(), HasSubstr("no optimize block for 'v@GRAD'"));
  EXPECT_THAT(trainer.call(Method::kCount, "counter").to_string(),
              HasSubstr("computes no learning rate"));
  EXPECT_THAT(trainer.call(Method::kGet, "w", nullptr, nullptr, "changed").to_string(),
              HasSubstr("not a sparse table"));
  // slices of one gradient
  EXPECT_TRUE(trainer.call(Method::kSend, "w@GRAD@0@PIECE", &grad).ok());
}

TEST(AsyncServer, AGeoServerWithoutParametersServesUntilItsTrainersHaveLeft) {
  const auto way = std::make_shared<InprocTransport>();
  TestServer server(way, R"(# millrace program 1

block 0 {
  listen_and_serv {
      optimize_blocks: blocks[], endpoint: "server", Fanin: 1, distributed_mode: 3,
      grad_to_block_id: strings[], sparse_grad_to_param: strings[]
  }
}
)",
                    {});
  TestTrainer trainer(way, 0);
  const Status unknown = trainer.call(Method::kGet, "w");
  EXPECT_EQ(unknown.code(), StatusCode::kNotFound) << unknown.to_string();
  ASSERT_TRUE(trainer.leave().ok());
  EXPECT_TRUE(server.end().ok());
}

std::string compensating_server() {
  return R"(# millrace program 1

block 0 {
  persist w: f32(2)
  persist w@GRAD: f32(2)
  var w.trainer_0_bak: f32(2)
  var w.trainer_1_bak: f32(2)
  persist rate: f32(1)

  listen_and_serv X=w@GRAD {
      optimize_blocks: [^1], endpoint: "server", pserver_id: 0, Fanin: 2, distributed_mode: 1,
      grad_to_block_id: ["w@GRAD:1"], sparse_grad_to_param: strings[], dc_asgd: true
  }
}

block 1 parent=0 {
  var w.local_bak: f32(2)
  var @TRAINER_ID@: i64(1)
  var t0: f32(2)
  var t1: f32(2)
  var t2: f32(2)
  var t3: f32(2)

  ref_by_trainer_id X=w.trainer_0_bak, w.trainer_1_bak TrainerId=@TRAINER_ID@ -> Out=w.local_bak {op_role: 0}
  elementwise_sub X=w Y=w.local_bak -> Out=t0 {axis: -1}
  elementwise_mul X=t0 Y=w@GRAD -> Out=t1 {axis: -1}
  elementwise_mul X=t1 Y=w@GRAD -> Out=t2 {axis: -1}
  elementwise_add X=w@GRAD Y=t2 -> Out=t3 {axis: -1}
  sgd Param=w Grad=t3 LearningRate=rate -> ParamOut=w {op_role: 2}
}
)";
}

// One step in closed form: g + lambda g g (w - copy).
class DelayCompensation : public ::testing::TestWithParam<double> {};

TEST_P(DelayCompensation, AddsWhatTheTrainerCouldNotSee) {
  const auto lambda = static_cast<float>(GetParam());
  const auto way = std::make_shared<InprocTransport>();
  ServerOptions options;
  options.dc_lambda = GetParam();
  TestServer server(way, compensating_server(), kAsyncServerStart, options);
  TestTrainer early(way, 0);
  TestTrainer late(way, 1);
  Floats seen;
  ASSERT_TRUE(early.call(Method::kGet, "w", nullptr, &seen).ok());
  ASSERT_TRUE(late.call(Method::kGet, "w", nullptr, &seen).ok());
  const Value grad = floats({2, -4});
  ASSERT_TRUE(early.call(Method::kSend, "w@GRAD", &grad).ok());
  ASSERT_TRUE(early.call(Method::kGet, "w", nullptr, &seen).ok());
  EXPECT_THAT(seen, ElementsAre(7, 18));
  const Value second = floats({1, 2});
  ASSERT_TRUE(late.call(Method::kSend, "w@GRAD", &second).ok());
  ASSERT_TRUE(late.call(Method::kGet, "w", nullptr, &seen).ok());
  EXPECT_FLOAT_EQ(seen[0], 7 - 0.5F * (1 + lambda * 1 * (7 - 8)));
  EXPECT_FLOAT_EQ(seen[1], 18 - 0.5F * (2 + lambda * 4 * (18 - 16)));
}

INSTANTIATE_TEST_SUITE_P(Lambda, DelayCompensation, ::testing::Values(0.0, 1.0, 0.04));

TEST(SequenceWindow, KnowsWhatWasCarriedOut) {
  using Seen = SequenceWindow::Seen;
  SequenceWindow window;
  EXPECT_EQ(window.begin(1), Seen::kNew);
  EXPECT_EQ(window.begin(1), Seen::kRunning);
  EXPECT_EQ(window.begin(2), Seen::kNew);
  window.finish(2, true);
  EXPECT_EQ(window.low(), 0U);
  EXPECT_EQ(window.begin(2), Seen::kDone);
  window.finish(1, false);
  EXPECT_EQ(window.begin(1), Seen::kNew);
  window.finish(1, true);
  EXPECT_EQ(window.low(), 2U);
  EXPECT_THAT(window.done(), IsEmpty());
}

TEST(SequenceWindow, IsBounded) {
  using Seen = SequenceWindow::Seen;
  SequenceWindow window;
  EXPECT_EQ(window.begin(1), Seen::kNew);
  const uint64_t last = SequenceWindow::kMostDone + 1;
  for (uint64_t sequence = 2; sequence <= last; ++sequence) {
    if (window.begin(sequence) != Seen::kNew) FAIL() << sequence;
    window.finish(sequence, true);
  }
  EXPECT_EQ(window.begin(last + 1), Seen::kTooMany);
  window.settle(1);
  EXPECT_THAT(window.done(), IsEmpty());
  EXPECT_EQ(window.begin(last + 1), Seen::kNew);
}

TEST(ChangedRows, AreThoseSinceTheLastPullOfEachTrainer) {
  ChangedRows rows(2, 10);
  rows.add({7, 3});
  EXPECT_THAT(rows.take(0, false), ElementsAre(3, 7));
  EXPECT_THAT(rows.take(0, false), IsEmpty());
  rows.add({5});
  EXPECT_THAT(rows.take(1, false), ElementsAre(3, 5, 7));
  // the response was lost
  rows.add({1});
  EXPECT_THAT(rows.take(1, true), ElementsAre(1, 3, 5, 7));
  EXPECT_THAT(rows.take(0, false), ElementsAre(1, 5));
  rows.add_all();
  rows.forget(0);
  EXPECT_THAT(rows.take(0, false), IsEmpty());
}

}  // namespace
}  // namespace millrace::ps

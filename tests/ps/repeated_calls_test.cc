// Calls that a trainer repeats because it has received no response.
#include <atomic>
#include <thread>

#include <gmock/gmock.h>

#include "ps/protocol/answers.h"
#include "ps/server/kept_replies.h"
#include "ps/transport/epoch.h"
#include "tests/ps/direct_server.h"
#include "tests/ps/server_fixture.h"

namespace millrace::ps {
namespace {

using test::DirectServer;
using test::DirectTrainer;
using test::put_numbers;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Floats = std::vector<float>;

// A worker whose block returns what it has received so far. Block 2 fails after it has changed
// `total`.
constexpr const char* kWorker = R"(# millrace program 1

block 0 {
  persist h: f32(2)
  persist total: f32(2)
  persist missing: f32(2)

  heter_listen_and_serv X=h {
      optimize_blocks: [^1, ^2], endpoint: "worker", fanin: 1, distributed_mode: 0, pserver_id: 0,
      message_to_block_id: ["add:1", "fail:2"]
  }
}

block 1 parent=0 {
  sum X=total, h -> Out=total {op_role: 0}
}

block 2 parent=0 {
  sum X=total, h -> Out=total {op_role: 0}
  elementwise_add X=total Y=missing -> Out=h {axis: -1}
}
)";

class RepeatedRun : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(server_.status().ok()) << server_.status().to_string();
    server_.serve();
    trainer_.hello();
  }
  // Runs the block of a message with these numbers as `h`. \returns `total` after it
  StatusOr<Floats> run(const std::string& message, const Floats& numbers) {
    const Value value = floats(numbers);
    Reply reply;
    MILLRACE_RETURN_IF_ERROR(
        trainer_.call(protocol::Run{message, {{"h", &value, nullptr}}, {"total"}}, reply));
    return numbers_in(reply.values.at(0));
  }
  // Makes the next call a repeat of the call with this number.
  void repeat(uint64_t sequence) { trainer_.sequence = sequence - 1; }

  DirectServer server_{kWorker, {}, [](Scope& scope) {
                         put_numbers<float>(scope, "total", DType::kFloat32, {0, 0});
                       }};
  DirectTrainer trainer_{server_, 0, 7};
};

TEST_F(RepeatedRun, GetsTheFirstResponseAndChangesNothing) {
  EXPECT_THAT(*run("add", {1, 2}), ElementsAre(1, 2));
  repeat(1);
  EXPECT_THAT(*run("add", {1, 2}), ElementsAre(1, 2));
  EXPECT_THAT(*run("add", {10, 20}), ElementsAre(11, 22));
  // the first call again, after a later one
  repeat(1);
  EXPECT_THAT(*run("add", {1, 2}), ElementsAre(1, 2));
  trainer_.sequence = 2;
  EXPECT_THAT(*run("add", {100, 200}), ElementsAre(111, 222));
}

TEST_F(RepeatedRun, OfABlockThatFailedHalfwayFailsAgain) {
  const Status failed = run("fail", {1, 2}).status();
  EXPECT_THAT(failed.to_string(), HasSubstr("missing"));
  repeat(1);
  EXPECT_EQ(run("fail", {1, 2}).status().to_string(), failed.to_string());
  EXPECT_THAT(*run("add", {0, 0}), ElementsAre(1, 2)) << "the block ran once";
}

// A call that is refused before the block runs may be made again.
TEST_F(RepeatedRun, OfACallThatWasRefusedIsCarriedOut) {
  EXPECT_FALSE(run("add", {1, 2, 3}).ok());
  repeat(1);
  EXPECT_THAT(*run("add", {1, 2}), ElementsAre(1, 2));
}

TEST_F(RepeatedRun, IsRefusedOnceTheResponseIsDropped) {
  for (size_t i = 0; i <= KeptReplies::kMostCalls; ++i) ASSERT_TRUE(run("add", {1, 1}).ok());
  const uint64_t last = trainer_.sequence;
  repeat(1);
  const Status dropped = run("add", {1, 1}).status();
  EXPECT_EQ(dropped.code(), StatusCode::kExecution);
  EXPECT_THAT(dropped.message(), HasSubstr("call 1 of trainer 0 has run the block of message 'add' "
                                           "before, and its response is no longer known"));
  repeat(2);
  EXPECT_THAT(*run("add", {1, 1}), ElementsAre(2, 2));
  trainer_.sequence = last;
  EXPECT_THAT(*run("add", {0, 0}), ElementsAre(65, 65));
}

TEST_F(RepeatedRun, IsRefusedAfterTheTrainerHasSettledTheCall) {
  ASSERT_TRUE(run("add", {1, 1}).ok());
  ASSERT_TRUE(trainer_.call(protocol::Hello{.settled = 1}).ok());
  repeat(1);
  EXPECT_THAT(run("add", {1, 1}).status().to_string(), HasSubstr("no longer known"));
}

// The first try of a fetch barrier arrives when its trainer has sent the gradients of the step.
TEST(LateRepeat, OfAFetchBarrierChangesNothing) {
  DirectServer server(sync_server(2), {}, [](Scope& scope) {
    put_numbers<float>(scope, "w", DType::kFloat32, {8, 16});
    put_numbers<float>(scope, "rate", DType::kFloat32, {0.5});
  });
  server.serve();
  DirectTrainer trainer(server, 0, 7);
  DirectTrainer other(server, 1, 8);
  for (DirectTrainer* const each : {&trainer, &other}) {
    each->hello();
    ASSERT_TRUE(each->fetch().ok());
  }
  ASSERT_TRUE(trainer.send("w@GRAD.trainer_0", floats({2, 4})).ok());
  trainer.sequence = 0;
  ASSERT_TRUE(trainer.fetch().ok());
  trainer.sequence = 2;
  ASSERT_TRUE(other.send("w@GRAD.trainer_1", floats({2, 4})).ok());
  Floats seen;
  const Status status = trainer.fetch(&seen);
  ASSERT_TRUE(status.ok()) << status.to_string();
  EXPECT_THAT(seen, ElementsAre(7, 14));
  ASSERT_TRUE(trainer.send("w@GRAD.trainer_0", floats({2, 4})).ok());
}

TEST(KeptReplies, DropsTheOldestFirst) {
  KeptReplies kept;
  const auto reply = [](int64_t megabytes) {
    KeptReplies::Reply made;
    EXPECT_TRUE(made.outputs.emplace_back()
                    .second.as<Tensor>()
                    .resize(DType::kUint8, {megabytes << 20U})
                    .ok());
    return made;
  };
  kept.keep(1, reply(200));
  kept.keep(2, reply(50));
  EXPECT_EQ(kept.count(), 2U);
  kept.keep(3, reply(10));
  EXPECT_EQ(kept.find(1), nullptr);
  EXPECT_NE(kept.find(2), nullptr);
  kept.keep(4, reply(300));
  EXPECT_EQ(kept.count(), 1U) << "the last one is kept, however large it is";
  EXPECT_NE(kept.find(4), nullptr);
  kept.keep(5, reply(1));
  EXPECT_EQ(kept.find(4), nullptr);
  kept.keep(6, reply(1));
  kept.settle(5);
  EXPECT_EQ(kept.find(5), nullptr);
  EXPECT_NE(kept.find(6), nullptr);
  kept.settle(6);
  EXPECT_EQ(kept.count(), 0U);
}

// A synchronous server that answers hellos; from the second one on, each second one is lost, or all
// wait until their deadline.
class Greeted final : public Handler {
 public:
  explicit Greeted(bool hangs) : hangs_(hangs) {}
  Status handle(const Request& request, Deadline deadline, ReplySink& reply) override {
    const int number = ++heard_;
    if (hangs_ && number > 1) std::this_thread::sleep_until(deadline);
    if (number > 1 && (hangs_ || number % 2 == 0))
      return {StatusCode::kDistributed, "the call is lost"};
    EXPECT_EQ(request.method, Method::kHello);
    reply.set_epoch(make_epoch(1, 1));
    put_answer(protocol::HelloAnswer{}, reply);
    ++answered_;
    return Ok();
  }
  [[nodiscard]] int answered() const { return answered_; }

 private:
  const bool hangs_;
  std::atomic<int> heard_{0};
  std::atomic<int> answered_{0};
};

// Otherwise, one more lost heartbeat would make a server take the trainer for lost because another
// server is paused.
TEST(Heartbeats, ArriveInTimeWhereAnotherServerHangs) {
  const auto way = std::make_shared<InprocTransport>();
  Greeted responds(false);
  Greeted hangs(true);
  const auto first = way->listen("server", responds);
  const auto second = way->listen("other", hangs);
  ASSERT_TRUE(first.ok() && second.ok());
  TestTrainer trainer(way, 0, 20'000, "", 7, 300);
  for (const char* const endpoint : {"server", "other"})
    ASSERT_TRUE(trainer.client().mode_of(endpoint).ok());
  std::this_thread::sleep_for(std::chrono::milliseconds(3100));
  // ten rounds; if each began after the end of the one before, at most three would be answered
  EXPECT_GE(responds.answered(), 7);
}

}  // namespace
}  // namespace millrace::ps

#include <atomic>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "ps/transport/epoch.h"
#include "tests/ps/server_fixture.h"

// Servers and trainers that were replaced while they were paused do nothing more.

namespace millrace::ps {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Floats = std::vector<float>;

const std::map<std::string, Floats> kFencingStart = {{"w", {8, 16}}, {"rate", {0.5}}};

Deadline in_fencing(milliseconds time) {
  return std::chrono::steady_clock::now() + time;
}

ServerOptions saving_for_fencing(const std::string& name) {
  ServerOptions options;
  options.snapshot_root = ::testing::TempDir() + "/fencing_" + name + std::to_string(::getpid());
  options.snapshot_every = 1;
  options.snapshot_durable = true;
  std::filesystem::remove_all(options.snapshot_root);
  return options;
}

// A hello of a trainer that has spoken to a server of that epoch.
Status say_hello_to(InprocTransport& way, const std::string& job, uint64_t epoch, Reply& reply) {
  MILLRACE_ASSIGN_OR_RETURN(const std::shared_ptr<Channel> channel, way.connect("server"));
  Request request = protocol::pack(protocol::Hello{});
  request.caller = {job, 0, 7};
  request.epoch = epoch;
  return channel->call(request, in_fencing(std::chrono::seconds(20)), reply);
}

TEST(Fencing, EpochsAreOrderedByTerms) {
  EXPECT_LT(make_epoch(3, 0xffffffff), make_epoch(4, 1));
  EXPECT_EQ(term_of(make_epoch(4, 77)), 4U);
  EXPECT_EQ(any_run_of(make_epoch(4, 77)), make_epoch(4, 0));
  EXPECT_TRUE(names_run(make_epoch(4, 77)));
  EXPECT_FALSE(names_run(any_run_of(make_epoch(4, 77))));
}

TEST(Fencing, EachServerOfASnapshotFolderHasAHigherTerm) {
  const auto way = std::make_shared<InprocTransport>();
  const ServerOptions options = saving_for_fencing("terms");
  for (uint64_t term = 1; term <= 3; ++term) {
    TestServer server(way, sync_server(1), kFencingStart, options);
    Reply reply;
    ASSERT_TRUE(say_hello_to(*way, "", 0, reply).ok());
    EXPECT_EQ(term_of(reply.epoch), term);
    EXPECT_TRUE(server.end(true).ok());
  }
  // also without the file, as where only the snapshots were copied
  std::filesystem::remove(options.snapshot_root + "/server-0.term");
  TestServer server(way, sync_server(1), kFencingStart, options);
  Reply reply;
  ASSERT_TRUE(say_hello_to(*way, "", 0, reply).ok());
  EXPECT_GT(term_of(reply.epoch), 1U);
  EXPECT_TRUE(server.end(true).ok());
  std::filesystem::remove_all(options.snapshot_root);
}

TEST(Fencing, AMalformedTermIsAnError) {
  const ServerOptions options = saving_for_fencing("malformed");
  std::filesystem::create_directories(options.snapshot_root);
  std::ofstream(options.snapshot_root + "/server-0.term") << "four\n";
  TestServer server(std::make_shared<InprocTransport>(), sync_server(1), kFencingStart, options);
  const Status status = server.end(true);
  EXPECT_EQ(status.code(), StatusCode::kInvalidData);
  EXPECT_THAT(status.to_string(), HasSubstr("server-0.term"));
  std::filesystem::remove_all(options.snapshot_root);
}

TEST(Fencing, AServerEndsOnceATrainerKnowsALaterOne) {
  const auto way = std::make_shared<InprocTransport>();
  ServerOptions options;
  options.job = "clicks";
  TestServer server(way, sync_server(1), kFencingStart, options);
  Reply reply;
  // of another job: refused, and the server continues
  EXPECT_FALSE(say_hello_to(*way, "views", make_epoch(9, 0), reply).ok());
  ASSERT_TRUE(say_hello_to(*way, "clicks", make_epoch(1, 0), reply).ok());
  const Status refused = say_hello_to(*way, "clicks", make_epoch(9, 0), reply);
  EXPECT_EQ(refused.code(), StatusCode::kDistributed);
  const Status status = server.end(true);
  EXPECT_EQ(status.code(), StatusCode::kDistributed);
  EXPECT_THAT(status.to_string(), HasSubstr("another process serves in place of this server "
                                            "(server): it has term 9, this one has term 1"));
}

TEST(Fencing, AServerEndsBeforeItSavesOverALaterOne) {
  const auto way = std::make_shared<InprocTransport>();
  const ServerOptions options = saving_for_fencing("later");
  TestServer server(way, sync_server(1), kFencingStart, options);
  TestTrainer trainer(way, 0, 3000);
  Floats seen;
  ASSERT_TRUE(trainer.step("w@GRAD", {2, 4}, seen).ok());
  std::ofstream(options.snapshot_root + "/server-0.term") << "5\n";
  EXPECT_FALSE(trainer.step("w@GRAD", {2, 4}, seen).ok());
  EXPECT_THAT(server.end().to_string(), HasSubstr("it has term 5, this one has term 1"));
  EXPECT_FALSE(std::filesystem::exists(options.snapshot_root + "/server-0/step-3"));
  std::filesystem::remove_all(options.snapshot_root);
}

// Answers every hello, with an epoch that the test sets.
class AnswersWithEpoch final : public Handler {
 public:
  Status handle(const Request& /*request*/, Deadline /*deadline*/, ReplySink& reply) override {
    reply.set_epoch(epoch);
    put_answer(protocol::HelloAnswer{.mode = ServerMode::kAsync}, reply);
    return Ok();
  }
  std::atomic<uint64_t> epoch{make_epoch(6, 1)};
};

TEST(Fencing, ATrainerRefusesAServerOfALowerTerm) {
  const auto way = std::make_shared<InprocTransport>();
  AnswersWithEpoch handler;
  const auto listener = way->listen("server", handler);
  ASSERT_TRUE(listener.ok());
  TestTrainer trainer(way, 0, 2000);
  ASSERT_TRUE(trainer.call(Method::kGetNoBarrier).ok());
  handler.epoch = make_epoch(5, 3);
  const Status refused = trainer.call(Method::kGetNoBarrier);
  EXPECT_EQ(refused.code(), StatusCode::kDistributed);
  EXPECT_THAT(refused.to_string(), HasSubstr("the server at server has term 5, but another one "
                                             "with term 6 has answered in its place"));
  handler.epoch = make_epoch(7, 3);
  EXPECT_TRUE(trainer.call(Method::kGetNoBarrier).ok());
}

// The call of a lost trainer that waits for a step ends when the trainer is lost; otherwise, it
// would count as a call of the process that replaces the trainer.
TEST(Fencing, AWaitingCallOfALostTrainerEnds) {
  const auto way = std::make_shared<InprocTransport>();
  ServerOptions options;
  options.silence_timeout = milliseconds(500);
  options.elastic = true;
  TestServer server(way, sync_server(2), kFencingStart, options);
  TestTrainer first(way, 0, 20'000, "", 0, 50);
  Floats seen;
  ASSERT_TRUE(first.call(Method::kFetchBarrier, "w", nullptr, &seen).ok());
  {
    TestTrainer lost(way, 1, 20'000, "", 7);  // sends no heartbeats while it waits
    Floats none;
    const Status status = lost.step("w@GRAD.trainer_1", {4, 4}, none);
    EXPECT_EQ(status.code(), StatusCode::kDistributed);
    EXPECT_THAT(status.to_string(), HasSubstr("trainer 1 was silent for too long"));
  }
  TestTrainer second(way, 1, 20'000, "", 8, 50);
  ASSERT_TRUE(second.client().mode_of("server").ok());
  const auto begin = second.client().settle();
  ASSERT_TRUE(begin.ok()) << begin.status().to_string();
  const Value grad = floats({2, 2});
  for (int64_t k = 0; k < *begin; ++k) {
    ASSERT_TRUE(first.call(Method::kSendBarrier, "w@GRAD.trainer_0", &grad).ok());
    ASSERT_TRUE(first.call(Method::kFetchBarrier, "w", nullptr, &seen).ok());
  }
  std::thread other([&] {
    Floats own;
    const Status status = second.step("w@GRAD.trainer_1", {4, 4}, own);
    EXPECT_TRUE(status.ok()) << status.to_string();
    EXPECT_TRUE(second.leave().ok());
  });
  ASSERT_TRUE(first.call(Method::kSendBarrier, "w@GRAD.trainer_0", &grad).ok());
  ASSERT_TRUE(first.call(Method::kFetchBarrier, "w", nullptr, &seen).ok());
  other.join();
  ASSERT_TRUE(first.leave().ok());
  EXPECT_TRUE(server.end().ok());
}

TEST(Fencing, AnElasticJobThatLostEveryTrainerIsAnError) {
  const auto way = std::make_shared<InprocTransport>();
  ServerOptions options = saving_for_fencing("lost");
  options.silence_timeout = milliseconds(300);
  options.elastic = true;
  TestServer server(way, sync_server(1), kFencingStart, options);
  {
    TestTrainer trainer(way, 0);
    Floats seen;
    ASSERT_TRUE(trainer.step("w@GRAD", {2, 4}, seen).ok());
  }
  const Status status = server.end();
  EXPECT_EQ(status.code(), StatusCode::kDistributed);
  EXPECT_THAT(status.to_string(),
              AllOf(HasSubstr("no trainer is left that could finish the job: trainer 0 (lost)"),
                    HasSubstr("a snapshot of step 1 was saved in " + options.snapshot_root)));
  std::filesystem::remove_all(options.snapshot_root);
}

// A trainer that is wrong about its step must not discard what the others have done.
TEST(Fencing, GoingBackNeedsAServerAtThatStepAndIsDoneOnceForIt) {
  const auto way = std::make_shared<InprocTransport>();
  TestServer server(way, sync_server(1), kFencingStart, saving_for_fencing("reasons"));
  TestTrainer trainer(way, 0);
  Floats seen;
  for (int k = 0; k < 2; ++k) ASSERT_TRUE(trainer.step("w@GRAD", {2, 4}, seen).ok());
  const auto go_to = [&](const std::string& oldest, uint64_t epoch) {
    Client::Call call("server", protocol::GoTo{.step = 1, .oldest = oldest, .oldest_epoch = epoch});
    return trainer.client().call(call);
  };
  EXPECT_THAT(
      go_to("", 0).to_string(),
      AllOf(HasSubstr("trainer 0 asks this server (server) to go back from step 2 to step 1"),
            HasSubstr("names no server that is at that step")));
  EXPECT_THAT(go_to("server", 1).to_string(), HasSubstr("because of epoch 1, but this is epoch"));
  const uint64_t reason = make_epoch(2, 5);
  ASSERT_TRUE(go_to("other:1", reason).ok());
  const auto settled = trainer.client().settle();
  ASSERT_TRUE(settled.ok()) << settled.status().to_string();
  EXPECT_EQ(*settled, 1);
  trainer.begin_anew();
  for (int k = 1; k < 3; ++k) ASSERT_TRUE(trainer.step("w@GRAD", {2, 4}, seen).ok());
  EXPECT_THAT(seen, ElementsAre(5, 10));
  for (const uint64_t again : {reason, make_epoch(1, 9)})
    EXPECT_THAT(go_to("other:1", again).to_string(),
                HasSubstr("it has gone back because of epoch"));
  ASSERT_TRUE(trainer.step("w@GRAD", {2, 4}, seen).ok());
  EXPECT_TRUE(trainer.leave().ok());
  EXPECT_TRUE(server.end().ok());
}

TEST(Fencing, WhatIsNotSavedIsNamed) {
  const auto way = std::make_shared<InprocTransport>();
  ServerOptions options;
  options.silence_timeout = milliseconds(300);
  options.elastic = true;
  TestServer server(way, sync_server(1), kFencingStart, options);
  {
    TestTrainer trainer(way, 0);
    ASSERT_TRUE(trainer.call(Method::kFetchBarrier).ok());
  }
  EXPECT_THAT(server.end().to_string(), HasSubstr("nothing was saved"));
}

}  // namespace
}  // namespace millrace::ps

#include <atomic>
#include <filesystem>
#include <mutex>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/ps/losing_transport.h"
#include "tests/ps/server_fixture.h"

// A synchronous server: a step uses the mean over the active trainers, also if trainers are late,
// leave, or repeat calls.

namespace millrace::ps {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Floats = std::vector<float>;

const std::map<std::string, Floats> kSyncServerStart = {{"w", {8, 16}}, {"rate", {0.5}}};

std::shared_ptr<InprocTransport> transport_sync_server() {
  return std::make_shared<InprocTransport>();
}

TEST(SyncServer, AppliesTheMeanOfAllTrainers) {
  const auto way = transport_sync_server();
  TestServer server(way, sync_server(2), kSyncServerStart);
  Floats seen[2];
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&, t] {
      TestTrainer trainer(way, t);
      const Floats grad = t == 0 ? Floats{2, 0} : Floats{4, 8};
      for (int k = 0; k < 2; ++k)
        ASSERT_TRUE(trainer.step(fmt::format("w@GRAD.trainer_{}", t), grad, seen[t]).ok());
      ASSERT_TRUE(trainer.leave().ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
  // twice 0.5 * mean {3, 4}
  EXPECT_THAT(seen[0], ElementsAre(5, 12));
  EXPECT_THAT(seen[1], ElementsAre(5, 12));
  EXPECT_TRUE(server.end().ok());
}

// A get never sees a parameter of another step, whatever the trainers' pace.
TEST(SyncServer, KeepsStepAtRandomPace) {
  const auto way = transport_sync_server();
  TestServer server(way, sync_server(4), kSyncServerStart);
  constexpr int kSteps = 20;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(static_cast<unsigned>(t));
      TestTrainer trainer(way, t);
      for (int k = 0; k < kSteps; ++k) {
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 2000));
        Floats seen;
        ASSERT_TRUE(
            trainer.step(fmt::format("w@GRAD.trainer_{}", t), {2, 4 * float(t)}, seen).ok());
        EXPECT_THAT(seen, ElementsAre(8 - float(k + 1), 16 - 3 * float(k + 1)));
      }
      ASSERT_TRUE(trainer.leave().ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(server.end().ok());
}

// The mean is over the trainers that arrive, although the program divides by the number of all.
TEST(SyncServer, GoesOnWithoutATrainerThatLeaves) {
  const auto way = transport_sync_server();
  TestServer server(way, sync_server(3), kSyncServerStart);
  Floats seen[3];
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      TestTrainer trainer(way, t);
      const int steps = t == 2 ? 1 : 3;
      for (int k = 0; k < steps; ++k)
        ASSERT_TRUE(
            trainer.step(fmt::format("w@GRAD.trainer_{}", t), {3, 3 * float(t)}, seen[t]).ok());
      ASSERT_TRUE(trainer.leave().ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
  // {3, 3} of three, then twice {3, 1.5} of two
  EXPECT_THAT(seen[0], ElementsAre(8 - 1.5F - 3, 16 - 1.5F - 1.5F));
  EXPECT_TRUE(server.end().ok());
}

TEST(SyncServer, OneTrainerSendsThePlainName) {
  const auto way = transport_sync_server();
  TestServer server(way, sync_server(1), kSyncServerStart);
  TestTrainer trainer(way, 0);
  Floats seen;
  ASSERT_TRUE(trainer.step("w@GRAD", {2, 2}, seen).ok());
  EXPECT_THAT(seen, ElementsAre(7, 15));
}

// Loses every third response, after the call was carried out.
class ForgetfulTransport final : public Transport {
 public:
  explicit ForgetfulTransport(std::shared_ptr<Transport> inner) : inner_(std::move(inner)) {}
  StatusOr<std::shared_ptr<Channel>> connect(const std::string& endpoint) override {
    MILLRACE_ASSIGN_OR_RETURN(std::shared_ptr<Channel> channel, inner_->connect(endpoint));
    return std::shared_ptr<Channel>(std::make_shared<Way>(*this, std::move(channel)));
  }
  StatusOr<std::unique_ptr<Listener>> listen(const std::string& endpoint,
                                             Handler& handler) override {
    return inner_->listen(endpoint, handler);
  }

 private:
  class Way final : public Channel {
   public:
    Way(ForgetfulTransport& owner, std::shared_ptr<Channel> inner)
        : owner_(owner), inner_(std::move(inner)) {}
    const std::string& endpoint() const override { return inner_->endpoint(); }
    Status call(const Request& request, Deadline deadline, Reply& reply) override {
      Reply answer;
      Status status = inner_->call(request, deadline, answer);
      if (++owner_.calls_ % 3 == 0) return {StatusCode::kDistributed, "the answer was lost"};
      reply = std::move(answer);
      return status;
    }

   private:
    ForgetfulTransport& owner_;
    std::shared_ptr<Channel> inner_;
  };
  std::shared_ptr<Transport> inner_;
  std::atomic<int> calls_{0};
};

TEST(SyncServer, CarriesARepeatedCallOutOnce) {
  const auto way = transport_sync_server();
  TestServer server(way, sync_server(1), kSyncServerStart);
  TestTrainer trainer(std::make_shared<ForgetfulTransport>(way), 0);
  Floats seen;
  for (int k = 0; k < 5; ++k) ASSERT_TRUE(trainer.step("w@GRAD", {2, 4}, seen).ok());
  EXPECT_THAT(seen, ElementsAre(3, 6));
}

TEST(SyncServer, RefusesWhatIsOutOfPhase) {
  const auto way = transport_sync_server();
  TestServer server(way, sync_server(1), kSyncServerStart);
  TestTrainer trainer(way, 0, 300);
  const Value grad = floats({1, 1});
  const Status early = trainer.call(Method::kSend, "w@GRAD", &grad);
  EXPECT_EQ(early.code(), StatusCode::kDistributed);
  EXPECT_THAT(early.to_string(), HasSubstr("expected its fetch barrier first"));
  ASSERT_TRUE(trainer.call(Method::kFetchBarrier).ok());
  EXPECT_THAT(trainer.call(Method::kFetchBarrier).to_string(),
              HasSubstr("expected its send barrier first"));
  const Status missing = trainer.call(Method::kSendBarrier);
  EXPECT_EQ(missing.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(missing.to_string(), HasSubstr("'w@GRAD.trainer_0'"));
}

TEST(SyncServer, NamesVarsAndValuesThatDoNotFit) {
  const auto way = transport_sync_server();
  TestServer server(way, sync_server(2), kSyncServerStart);
  TestTrainer trainer(way, 0, 300);
  ASSERT_TRUE(trainer.call(Method::kHello, "", nullptr, nullptr, "0").ok());
  EXPECT_THAT(trainer.call(Method::kGetNoBarrier, "w").to_string(),
              HasSubstr("does not end in '@WITHOUT_BARRIER@RECV'"));
  const Status unknown = trainer.call(Method::kGetNoBarrier, "v@WITHOUT_BARRIER@RECV");
  EXPECT_EQ(unknown.code(), StatusCode::kNotFound);
  EXPECT_THAT(unknown.to_string(), HasSubstr("has no var 'v'"));
  EXPECT_THAT(trainer.call(Method::kGet, "w@GRAD").to_string(), HasSubstr("has no value"));
  ASSERT_TRUE(trainer.call(Method::kFetchBarrier).ok());
  const Value grad = floats({1, 1, 1});
  const Status dims = trainer.call(Method::kSend, "w@GRAD.trainer_0", &grad);
  EXPECT_EQ(dims.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(dims.to_string(), HasSubstr("expected dims [2], found f32 [3]"));
  EXPECT_THAT(trainer.call(Method::kSend, "w@GRAD.trainer_1", &grad).to_string(),
              HasSubstr("belongs to trainer 1"));
  EXPECT_THAT(trainer.call(Method::kSend, "x", &grad).to_string(),
              HasSubstr("does not accept 'x'"));
  EXPECT_THAT(trainer.call(Method::kCheckpoint, "folder").to_string(),
              HasSubstr("no block that saves checkpoints"));
  EXPECT_EQ(trainer.call(Method::kPull).code(), StatusCode::kUnimplemented);
}

TEST(SyncServer, SelectedRowsMustBeInTheTable) {
  const auto way = transport_sync_server();
  TestServer server(way, sync_server(1), kSyncServerStart);
  TestTrainer trainer(way, 0, 300);
  ASSERT_TRUE(trainer.call(Method::kFetchBarrier).ok());
  Value value;
  auto& rows = value.as<SelectedRows>();
  rows.height = 2;
  rows.rows = {2};
  ASSERT_TRUE(rows.value.resize(DType::kFloat32, {1, 1}).ok());
  const Status status = trainer.call(Method::kSend, "w@GRAD", &value);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.to_string(), HasSubstr("row 2 is out of range"));
}

TEST(SyncServer, KnowsItsJobAndItsTrainers) {
  const auto way = transport_sync_server();
  TestServer server(way, sync_server(2), kSyncServerStart);
  TestTrainer first(way, 0, 300, "", 7);
  ASSERT_TRUE(first.call(Method::kFetchBarrier).ok());
  TestTrainer twin(way, 0, 300, "", 8);
  EXPECT_THAT(twin.call(Method::kFetchBarrier).to_string(),
              HasSubstr("trainer 0 is already connected"));
  TestTrainer stranger(way, 1, 300, "another");
  EXPECT_THAT(stranger.call(Method::kFetchBarrier).to_string(), HasSubstr("job 'another'"));
  TestTrainer surplus(way, 2, 300);
  EXPECT_EQ(surplus.call(Method::kFetchBarrier).code(), StatusCode::kInvalidArgument);
}

TEST(SyncServer, ADeadlineSaysWhoIsWaitedFor) {
  const auto way = transport_sync_server();
  TestServer server(way, sync_server(2), kSyncServerStart);
  TestTrainer trainer(way, 0, 300);
  Floats seen;
  const Status status = trainer.step("w@GRAD.trainer_0", {1, 1}, seen);
  EXPECT_EQ(status.code(), StatusCode::kDistributed);
  EXPECT_THAT(status.to_string(), HasSubstr("trainer 1 (not connected yet)"));
}

// Repeated in the log of a server while there is no progress.
TEST(SyncServer, SaysNowAndThenWhoWaitsForWhom) {
  const auto way = transport_sync_server();
  std::mutex mutex;
  std::vector<std::string> lines;
  ServerOptions options;
  options.report_interval = std::chrono::milliseconds(50);
  options.log = [&](const std::string& line) {
    const std::lock_guard lock(mutex);
    lines.push_back(line);
  };
  TestServer server(way, sync_server(2), kSyncServerStart, options);
  TestTrainer other(way, 1);
  ASSERT_TRUE(other.call(Method::kFetchBarrier).ok());
  TestTrainer trainer(way, 0, 2500);
  Floats seen;
  EXPECT_EQ(trainer.step("w@GRAD.trainer_0", {1, 1}, seen).code(), StatusCode::kDistributed);
  const std::lock_guard lock(mutex);
  EXPECT_THAT(lines, ::testing::Contains(AllOf(HasSubstr("step 0: trainer 0"),
                                               HasSubstr(" wait for trainer 1 "),
                                               HasSubstr(" with w@GRAD.trainer_1")))
                         .Times(::testing::Gt(1)));
}

TEST(SyncServer, ATrainerThatNeverComesEndsTheServer) {
  const auto way = transport_sync_server();
  ServerOptions options;
  options.start_timeout = std::chrono::milliseconds(100);
  TestServer server(way, sync_server(2), kSyncServerStart, options);
  const Status status = server.end();
  EXPECT_EQ(status.code(), StatusCode::kDistributed);
  EXPECT_THAT(status.to_string(), HasSubstr("trainer 0 (not connected yet) is lost"));
}

TEST(SyncServer, ASilentTrainerEndsTheJob) {
  const auto way = transport_sync_server();
  ServerOptions options;
  options.silence_timeout = std::chrono::milliseconds(200);
  TestServer server(way, sync_server(1), kSyncServerStart, options);
  TestTrainer trainer(way, 0);
  ASSERT_TRUE(trainer.call(Method::kFetchBarrier).ok());
  const Status status = server.end();
  EXPECT_THAT(status.to_string(), HasSubstr("fetch-barrier) is lost"));
}

// A trainer that has done its steps and reads the results is between two calls, too.
TEST(SyncServer, WhoHasFinishedHearsWhyTheServerEnds) {
  const auto way = transport_sync_server();
  ServerOptions options;
  options.silence_timeout = std::chrono::milliseconds(400);
  TestServer server(way, async_server(2), kSyncServerStart, options);
  TestTrainer trainer(way, 0, 20'000, "", 0, 50);
  std::atomic<bool> heard = false;
  std::thread first([&] {
    ASSERT_TRUE(trainer.client().mode_of("server").ok());
    ASSERT_TRUE(trainer.client().complete(true).ok());
    std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    EXPECT_THAT(trainer.call(Method::kFetchBarrier, "w").to_string(), HasSubstr("is lost"));
    heard = true;
  });
  {
    TestTrainer silent(way, 1);
    EXPECT_TRUE(silent.client().mode_of("server").ok());
    EXPECT_TRUE(silent.client().complete(true).ok());
  }
  EXPECT_THAT(server.end().to_string(), HasSubstr("trainer 1"));
  EXPECT_TRUE(heard);
  first.join();
}

TEST(SyncServer, AnElasticJobGoesOnWithoutASilentTrainer) {
  const auto way = transport_sync_server();
  ServerOptions options;
  options.silence_timeout = std::chrono::milliseconds(400);
  options.elastic = true;
  TestServer server(way, sync_server(2), kSyncServerStart, options);
  Floats seen;
  {
    TestTrainer silent(way, 1);
    ASSERT_TRUE(silent.call(Method::kFetchBarrier).ok());
  }
  TestTrainer trainer(way, 0, 20'000, "", 0, 50);
  ASSERT_TRUE(trainer.step("w@GRAD.trainer_0", {2, 2}, seen).ok());
  EXPECT_THAT(seen, ElementsAre(7, 15));
}

// Durable snapshots of every step in a new folder of that name.
ServerOptions saving_every_step(const std::string& name) {
  ServerOptions options;
  options.snapshot_root = ::testing::TempDir() + "/" + name + std::to_string(::getpid());
  options.snapshot_every = 1;
  options.snapshot_durable = true;
  std::filesystem::remove_all(options.snapshot_root);
  return options;
}

// The replacement waits until the lost trainer is given up, joins at a later step, and counts from
// there.
TEST(SyncServer, AReplacementComesInAtALaterStep) {
  const auto way = transport_sync_server();
  ServerOptions options;
  options.silence_timeout = std::chrono::milliseconds(500);
  options.elastic = true;
  TestServer server(way, sync_server(2), kSyncServerStart, options);
  {
    TestTrainer lost(way, 1);
    ASSERT_TRUE(lost.call(Method::kFetchBarrier).ok());
  }
  Floats last;
  std::thread first([&] {
    TestTrainer trainer(way, 0, 20'000, "", 0, 50);
    for (int k = 0; k < 40; ++k) {
      const Status status = trainer.step("w@GRAD.trainer_0", {2, 2}, last);
      ASSERT_TRUE(status.ok()) << k << ": " << status.to_string();
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    ASSERT_TRUE(trainer.leave().ok());
  });
  TestTrainer second(way, 1, 20'000, "", 0, 50);
  ASSERT_TRUE(second.client().mode_of("server").ok());
  const auto begin = second.client().settle();
  ASSERT_TRUE(begin.ok()) << begin.status().to_string();
  EXPECT_GT(*begin, 0);
  Floats seen;
  for (int64_t k = *begin; k < 40; ++k) {
    const Status status = second.step("w@GRAD.trainer_1", {4, 4}, seen);
    ASSERT_TRUE(status.ok()) << k << ": " << status.to_string();
  }
  ASSERT_TRUE(second.leave().ok());
  first.join();
  EXPECT_TRUE(server.end().ok());
  // -1 per step of one trainer, -1.5 per step of both
  const auto together = static_cast<float>(40 - *begin);
  EXPECT_FLOAT_EQ(last[0], 8 - 40 - 0.5F * together);
}

// A server restarts with a snapshot that is three steps old.
TEST(SyncServer, ATrainerGoesBackToAnOldSnapshot) {
  const auto way = transport_sync_server();
  ServerOptions options = saving_every_step("ps_going_back");
  options.snapshot_every = 4;
  auto server = std::make_unique<TestServer>(way, sync_server(1), kSyncServerStart, options);
  TestTrainer trainer(way, 0);
  Floats seen;
  for (int k = 0; k < 7; ++k) ASSERT_TRUE(trainer.step("w@GRAD", {2, 4}, seen).ok());
  ASSERT_TRUE(server->end(true).ok());
  // as after a crash: the snapshot saved at its end is removed
  std::filesystem::remove_all(options.snapshot_root + "/server-0/step-3");
  server = std::make_unique<TestServer>(way, sync_server(1), kSyncServerStart, options);
  EXPECT_FALSE(trainer.step("w@GRAD", {2, 4}, seen).ok());
  ASSERT_TRUE(trainer.client().must_settle());
  const auto step = trainer.client().settle();
  ASSERT_TRUE(step.ok()) << step.status().to_string();
  EXPECT_EQ(*step, 4);
  trainer.begin_anew();
  for (int64_t k = *step; k < 8; ++k) ASSERT_TRUE(trainer.step("w@GRAD", {2, 4}, seen).ok());
  EXPECT_THAT(seen, ElementsAre(0, 0));
  ASSERT_TRUE(trainer.leave().ok());
  EXPECT_TRUE(server->end().ok());
}

// The server ends after every step; the next one loads the snapshot, without an effect on the
// trainers.
TEST(SyncServer, ComesBackFromItsSnapshot) {
  const auto way = transport_sync_server();
  const ServerOptions options = saving_every_step("ps_snapshots");
  auto server = std::make_unique<TestServer>(way, sync_server(1), kSyncServerStart, options);
  TestTrainer trainer(way, 0);
  Floats seen;
  for (int k = 0; k < 4; ++k) {
    const Status status = trainer.step("w@GRAD", {2, 4}, seen);
    ASSERT_TRUE(status.ok()) << status.to_string();
    EXPECT_THAT(seen, ElementsAre(8 - float(k + 1), 16 - 2 * float(k + 1)));
    ASSERT_TRUE(server->end(true).ok());
    server = std::make_unique<TestServer>(way, sync_server(1), kSyncServerStart, options);
  }
  ASSERT_TRUE(trainer.leave().ok());
  EXPECT_TRUE(server->end().ok());
}

// A server ends after its snapshot was saved and before the response was sent: the call takes
// effect once.
TEST(SyncServer, AnAnswerThatIsLostWithTheServerIsNoSecondUpdate) {
  const auto way = std::make_shared<LosingTransport>(transport_sync_server());
  const ServerOptions options = saving_every_step("ps_lost_answers");
  auto server = std::make_unique<TestServer>(way, sync_server(1), kSyncServerStart, options);
  TestTrainer trainer(way, 0);
  const auto restart = [&] {
    // the step is applied by the thread that serves
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    EXPECT_TRUE(server->end(true).ok());
    server = std::make_unique<TestServer>(way, sync_server(1), kSyncServerStart, options);
  };
  Floats seen;
  int updates = 0;
  for (const Method lost : {Method::kSendBarrier, Method::kFetchBarrier, Method::kSendBarrier}) {
    ASSERT_TRUE(trainer.step("w@GRAD", {2, 4}, seen).ok());
    way->lose(lost, restart);
    const Status status = trainer.step("w@GRAD", {2, 4}, seen);
    ASSERT_TRUE(status.ok()) << method_name(lost) << ": " << status.to_string();
    updates += 2;
    EXPECT_THAT(seen, ElementsAre(8 - float(updates), 16 - 2 * float(updates)));
  }
  ASSERT_TRUE(trainer.leave().ok());
  EXPECT_TRUE(server->end().ok());
}

TEST(SyncServer, ASnapshotThatIsTooOldIsSaid) {
  const auto way = transport_sync_server();
  const ServerOptions options = saving_every_step("ps_old_snapshots");
  auto server = std::make_unique<TestServer>(way, sync_server(1), kSyncServerStart, options);
  TestTrainer trainer(way, 0);
  Floats seen;
  for (int k = 0; k < 3; ++k) ASSERT_TRUE(trainer.step("w@GRAD", {2, 4}, seen).ok());
  ASSERT_TRUE(server->end(true).ok());
  // creates the state that a server that ended after step 1 would have left
  for (const auto& entry : std::filesystem::directory_iterator(options.snapshot_root + "/server-0"))
    std::filesystem::remove_all(entry.path());
  server = std::make_unique<TestServer>(way, sync_server(1), kSyncServerStart, options);
  const Status status = trainer.step("w@GRAD", {2, 4}, seen);
  EXPECT_EQ(status.code(), StatusCode::kDistributed);
  EXPECT_THAT(status.to_string(), HasSubstr("restarted from step 0, this trainer is at step 3"));
}

TEST(SyncServer, AServerWithoutOptimizeBlockIsRefused) {
  std::string text = sync_server(1);
  text.replace(text.find("[^1]"), 4, "blocks[]");
  TestServer server(transport_sync_server(), text, kSyncServerStart);
  EXPECT_THAT(server.end().to_string(), HasSubstr("the server has no optimize block"));
}

TEST(SyncServer, AFailingBlockReachesTheTrainers) {
  const auto way = transport_sync_server();
  TestServer server(way, sync_server(1), {{"w", {1, 1}}});
  TestTrainer trainer(way, 0);
  Floats seen;
  const Status status = trainer.step("w@GRAD", {1, 1}, seen);
  EXPECT_EQ(status.code(), StatusCode::kExecution);
  EXPECT_THAT(status.to_string(), HasSubstr("block 1, op 2 (sgd)"));
  EXPECT_THAT(status.to_string(), HasSubstr("from the server at server"));
}

TEST(SyncServer, GathersWhenAllAreDone) {
  const auto way = transport_sync_server();
  TestServer server(way, sync_server(2), kSyncServerStart);
  Floats last;
  std::thread other([&] {
    TestTrainer trainer(way, 1);
    Floats seen;
    for (int k = 0; k < 3; ++k) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      ASSERT_TRUE(trainer.step("w@GRAD.trainer_1", {2, 2}, seen).ok());
    }
    ASSERT_TRUE(trainer.leave().ok());
  });
  TestTrainer trainer(way, 0);
  Floats seen;
  ASSERT_TRUE(trainer.step("w@GRAD.trainer_0", {2, 2}, seen).ok());
  ASSERT_TRUE(trainer.client().complete(true).ok());
  ASSERT_TRUE(trainer.call(Method::kGetNoBarrier, "w@WITHOUT_BARRIER@RECV", nullptr, &last).ok());
  EXPECT_THAT(last, ElementsAre(5, 13));
  ASSERT_TRUE(trainer.leave().ok());
  other.join();
  EXPECT_TRUE(server.end().ok());
}

}  // namespace
}  // namespace millrace::ps

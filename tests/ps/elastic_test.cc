// Servers of an elastic job agree on the last step of a lost trainer, and a trainer may leave again
// where a response was lost.
#include <atomic>
#include <filesystem>
#include <memory>

#include <gmock/gmock.h>

#include "tests/io/temp_folder.h"
#include "tests/ps/losing_transport.h"
#include "tests/ps/server_fixture.h"

namespace millrace::ps {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Floats = std::vector<float>;

const std::map<std::string, Floats> kElasticStart = {{"w", {8, 16}}, {"rate", {0.5}}};
const std::vector<std::string> kBoth = {"server", "other"};

ServerOptions elastic_options() {
  ServerOptions options;
  options.silence_timeout = milliseconds(2000);
  options.elastic = true;
  return options;
}

// The program of a server at another endpoint.
std::string server_at(const std::string& endpoint, int trainers) {
  std::string text = sync_server(trainers);
  const std::string from = R"(endpoint: "server")";
  return text.replace(text.find(from), from.size(), "endpoint: \"" + endpoint + "\"");
}

// A trainer that calls some of two servers.
class TwoServerTrainer {
 public:
  TwoServerTrainer(std::shared_ptr<Transport> way, int id, int heartbeat_ms)
      : trainer_(std::move(way), id, 20'000, "", static_cast<uint64_t>(id) + 7, heartbeat_ms),
        grad_("w@GRAD.trainer_" + std::to_string(id)) {}

  Client& client() { return trainer_.client(); }
  Status send(const std::vector<std::string>& servers, const Floats& numbers) {
    sent_ = floats(numbers);
    std::vector<Client::Call> calls;
    for (const std::string& server : servers)
      calls.emplace_back(server, protocol::SendBarrier{{{grad_, &sent_, nullptr}}});
    return client().call_all(calls);
  }
  // \param seen  receives the parameter of each server
  Status fetch(const std::vector<std::string>& servers, std::vector<Floats>& seen) {
    std::vector<Client::Call> calls;
    for (const std::string& server : servers)
      calls.emplace_back(server, protocol::FetchBarrier{{"w"}});
    MILLRACE_RETURN_IF_ERROR(client().call_all(calls));
    seen.clear();
    for (const Client::Call& call : calls) seen.push_back(numbers_in(call.reply.values.at(0)));
    return Ok();
  }

 private:
  TestTrainer trainer_;
  std::string grad_;
  Value sent_;  // a client may have to send it again
};

// Both would otherwise decide alone: the one that has the gradients applies them.
TEST(Elastic, AnUpdateThatOneServerLacksIsAppliedByNone) {
  const auto way = std::make_shared<InprocTransport>();
  TestServer first(way, server_at("server", 2), kElasticStart, elastic_options());
  TestServer second(way, server_at("other", 2), kElasticStart, elastic_options());
  TwoServerTrainer stays(way, 0, 50);
  std::vector<Floats> seen;
  ASSERT_TRUE(stays.fetch(kBoth, seen).ok());
  {
    TwoServerTrainer lost(way, 1, 0);
    ASSERT_TRUE(lost.fetch(kBoth, seen).ok());
    ASSERT_TRUE(lost.send({"server"}, {4, 4}).ok());
  }
  ASSERT_TRUE(stays.send(kBoth, {2, 2}).ok());
  const Status status = stays.fetch(kBoth, seen);
  ASSERT_TRUE(status.ok()) << status.to_string();
  EXPECT_THAT(seen, ElementsAre(ElementsAre(7, 15), ElementsAre(7, 15)));
  EXPECT_TRUE(stays.client().complete(false).ok());
  EXPECT_TRUE(first.end().ok());
  EXPECT_TRUE(second.end().ok());
}

TEST(Elastic, AnUpdateThatOneServerHasAppliedIsAppliedByAll) {
  const auto way = std::make_shared<InprocTransport>();
  TestServer first(way, server_at("server", 2), kElasticStart, elastic_options());
  TestServer second(way, server_at("other", 2), kElasticStart, elastic_options());
  TwoServerTrainer stays(way, 0, 50);
  std::vector<Floats> seen;
  ASSERT_TRUE(stays.fetch(kBoth, seen).ok());
  Status status;
  std::thread other;
  {
    TwoServerTrainer lost(way, 1, 0);
    std::vector<Floats> own;
    ASSERT_TRUE(lost.fetch(kBoth, own).ok());
    ASSERT_TRUE(lost.send(kBoth, {4, 4}).ok());
    other = std::thread([&] {
      status = stays.send(kBoth, {2, 2});
      if (status.ok()) status = stays.fetch(kBoth, seen);
    });
    const Status fetched = lost.fetch({"server"}, own);
    EXPECT_TRUE(fetched.ok()) << fetched.to_string();
    EXPECT_THAT(own, ElementsAre(ElementsAre(6.5, 14.5)));
  }
  other.join();
  ASSERT_TRUE(status.ok()) << status.to_string();
  EXPECT_THAT(seen, ElementsAre(ElementsAre(6.5, 14.5), ElementsAre(6.5, 14.5)));
  EXPECT_TRUE(stays.client().complete(false).ok());
}

// The calls of the others end before the server would take it for lost.
TEST(Elastic, ATrainerThatNeverComesDoesNotEndTheOthers) {
  const auto way = std::make_shared<InprocTransport>();
  TestServer server(way, sync_server(2), kElasticStart, elastic_options());
  TestTrainer trainer(way, 0, 4'000, "", 0, 50);
  Floats seen;
  const Status status = trainer.step("w@GRAD.trainer_0", {2, 2}, seen);
  ASSERT_TRUE(status.ok()) << status.to_string();
  EXPECT_THAT(seen, ElementsAre(7, 15));
}

// The only call waits at the other server, so no call says hello to the one that was started again.
TEST(Elastic, AServerThatWasStartedAgainAgreesOnALossBeforeACall) {
  const ::millrace::testing::TempFolder disk;
  ServerOptions options = elastic_options();
  options.snapshot_root = disk.path();
  options.snapshot_every = 1;
  options.snapshot_durable = true;
  const auto way = std::make_shared<InprocTransport>();
  auto first = std::make_unique<TestServer>(way, server_at("server", 2), kElasticStart, options);
  TestServer second(way, server_at("other", 2), kElasticStart, elastic_options());
  TwoServerTrainer stays(way, 0, 50);
  std::vector<Floats> seen;
  ASSERT_TRUE(stays.fetch(kBoth, seen).ok());
  {
    TwoServerTrainer lost(way, 1, 0);
    std::vector<Floats> own;
    ASSERT_TRUE(lost.fetch(kBoth, own).ok());
    ASSERT_TRUE(lost.send(kBoth, {4, 4}).ok());
    ASSERT_TRUE(stays.send(kBoth, {2, 2}).ok());
    std::thread other([&] { EXPECT_TRUE(lost.fetch({"server"}, own).ok()); });
    EXPECT_TRUE(stays.fetch({"server"}, seen).ok());
    other.join();
  }
  ASSERT_TRUE(first->end(true).ok());
  first = std::make_unique<TestServer>(way, server_at("server", 2), kElasticStart, options);
  const Status status = stays.fetch({"other"}, seen);
  ASSERT_TRUE(status.ok()) << status.to_string();
  EXPECT_THAT(seen, ElementsAre(ElementsAre(6.5, 14.5)));
  EXPECT_TRUE(stays.client().complete(false).ok());
}

// Has lost the gradients that it had answered for.
TEST(Elastic, AServerThatLacksAnAppliedUpdateEnds) {
  const auto way = std::make_shared<InprocTransport>();
  TestServer server(way, sync_server(2), kElasticStart, elastic_options());
  TwoServerTrainer stays(way, 0, 0);
  TwoServerTrainer lost(way, 1, 0);
  std::vector<Floats> seen;
  ASSERT_TRUE(stays.fetch({"server"}, seen).ok());
  ASSERT_TRUE(lost.fetch({"server"}, seen).ok());
  Client::Call ask("server", protocol::Loss{.trainer = 1, .incarnation = 8});
  ASSERT_TRUE(stays.client().call(ask).ok());
  const auto answer = protocol::loss_answer(ask.reply);
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(answer->steps, 0);
  EXPECT_FALSE(answer->decided);
  const Status refused = lost.send({"server"}, {4, 4});
  EXPECT_THAT(refused.to_string(), HasSubstr("trainer 1 was silent for too long"));
  Client::Call decide("server", protocol::Loss{.trainer = 1, .incarnation = 8, .steps = 1});
  EXPECT_FALSE(stays.client().call(decide).ok());
  EXPECT_THAT(server.end().to_string(),
              AllOf(HasSubstr("this server (server) cannot continue without trainer 1"),
                    HasSubstr("its update of step 0")));
}

// A server goes back to an older step after it has said with how many steps of the lost trainer it
// was. It is asked again; the number from before would end it.
TEST(Elastic, AServerThatHasGoneBackIsAskedAgain) {
  const auto disk = std::make_unique<::millrace::testing::TempFolder>();
  ServerOptions options = elastic_options();
  options.silence_timeout = milliseconds(1000);
  options.snapshot_root = disk->path();
  options.snapshot_every = 1;
  options.snapshot_durable = true;
  const auto way = std::make_shared<LosingTransport>(std::make_shared<InprocTransport>());
  TestServer server(way, sync_server(2), kElasticStart, options);
  const auto channel = *way->connect("server");
  const auto call = [&](Request request, Reply& reply) {
    request.caller = {"", 0, 7};
    return channel->call(request, Clock::now() + std::chrono::seconds(10), reply);
  };
  TwoServerTrainer stays(way, 0, 50);
  std::vector<Floats> seen;
  ASSERT_TRUE(stays.fetch({"server"}, seen).ok());
  std::atomic<bool> went_back = false;
  {
    TwoServerTrainer lost(way, 1, 0);
    ASSERT_TRUE(lost.fetch({"server"}, seen).ok());
    ASSERT_TRUE(lost.send({"server"}, {4, 4}).ok());
    ASSERT_TRUE(stays.send({"server"}, {2, 2}).ok());
    std::thread other([&] {
      std::vector<Floats> own;
      EXPECT_TRUE(lost.fetch({"server"}, own).ok());
    });
    EXPECT_TRUE(stays.fetch({"server"}, seen).ok());
    other.join();
    way->after(Method::kLoss, [&] {
      Reply reply;
      const Status status = call(protocol::pack(protocol::GoTo{.step = 0, .oldest = "x"}), reply);
      EXPECT_TRUE(status.ok()) << status.to_string();
      EXPECT_TRUE(stays.client().settle().ok());
      went_back = true;
    });
  }
  protocol::LossAnswer answer;
  for (int i = 0; i < 200 && !answer.decided; ++i) {
    std::this_thread::sleep_for(milliseconds(50));
    if (!went_back) continue;
    (void)stays.fetch({"server"}, seen);
    Reply reply;
    const Status status =
        call(protocol::pack(protocol::Loss{.trainer = 1, .incarnation = 8}), reply);
    ASSERT_TRUE(status.ok()) << status.to_string();
    answer = *protocol::loss_answer(reply);
  }
  EXPECT_TRUE(answer.decided);
  EXPECT_EQ(answer.steps, 0);
}

// A server that is started again without snapshots expects trainers at step 0, where the other one
// lets a replacement join later. It must not be placed there: steps would be missing in one server.
TEST(Elastic, AReplacementDoesNotBeginWhereAServerHasLostSteps) {
  const auto way = std::make_shared<InprocTransport>();
  TestServer first(way, server_at("server", 2), kElasticStart, elastic_options());
  auto second =
      std::make_unique<TestServer>(way, server_at("other", 2), kElasticStart, elastic_options());
  TwoServerTrainer stays(way, 0, 50);
  std::vector<Floats> seen;
  {
    TwoServerTrainer lost(way, 1, 0);
    ASSERT_TRUE(lost.fetch(kBoth, seen).ok());
  }
  ASSERT_TRUE(stays.fetch(kBoth, seen).ok());
  for (int step = 0; step < 3; ++step) {
    ASSERT_TRUE(stays.send(kBoth, {2, 2}).ok());
    ASSERT_TRUE(stays.fetch(kBoth, seen).ok());
  }
  (void)second->end(true);
  second =
      std::make_unique<TestServer>(way, server_at("other", 2), kElasticStart, elastic_options());
  for (const auto& order : {kBoth, std::vector<std::string>{"other", "server"}}) {
    TestTrainer replacement(way, 1, 1'000, "", 50, 50);
    for (const std::string& server : order) ASSERT_TRUE(replacement.client().mode_of(server).ok());
    const StatusOr<int64_t> begin = replacement.client().settle();
    ASSERT_FALSE(begin.ok()) << *begin;
    EXPECT_THAT(begin.status().message(), HasSubstr("the server at other is at step 0"));
  }
  (void)second->end(true);
  (void)first.end(true);
}

TEST(Elastic, OnlyOthersOfAnElasticJobAreLost) {
  const auto way = std::make_shared<InprocTransport>();
  TestServer server(way, sync_server(2), kElasticStart, elastic_options());
  TwoServerTrainer trainer(way, 0, 0);
  for (const int id : {0, 2}) {
    Client::Call call("server", protocol::Loss{.trainer = id, .incarnation = 7});
    EXPECT_EQ(trainer.client().call(call).code(), StatusCode::kInvalidArgument);
  }
  TestServer plain(way, server_at("other", 2), kElasticStart);
  Client::Call call("other", protocol::Loss{.trainer = 1, .incarnation = 8});
  EXPECT_THAT(trainer.client().call(call).to_string(), HasSubstr("not one of an elastic"));
}

// A job is started again on snapshots that its servers took when they ended, one a step after the
// other: both have snapshots of steps 0 and 2, and one of 4, the other of 3.
TEST(TwoServers, ThatEndedAStepApartMeetAtTheNewestStepThatBothHave) {
  const ::millrace::testing::TempFolder disk;
  ServerOptions options;
  options.snapshot_root = disk / "first";
  options.snapshot_every = 2;
  ServerOptions of_other = options;
  of_other.snapshot_root = disk / "other";
  const auto way = std::make_shared<InprocTransport>();
  std::vector<Floats> seen;
  for (const bool again : {false, true}) {
    TestServer first(way, server_at("server", 1), kElasticStart, options);
    TestServer second(way, server_at("other", 1), kElasticStart, of_other);
    TwoServerTrainer trainer(way, 0, 0);
    for (const std::string& server : kBoth) {  // so that the trainer has greeted them
      Client::Call call(server, protocol::GetNow{.names = {"w"}});
      ASSERT_TRUE(trainer.client().call(call).ok());
    }
    const auto settled = trainer.client().settle();
    ASSERT_TRUE(settled.ok()) << settled.status().to_string();
    EXPECT_EQ(*settled, again ? 2 : 0);
    for (int step = 0; step < 3; ++step) {
      ASSERT_TRUE(trainer.fetch(kBoth, seen).ok());
      ASSERT_TRUE(trainer.send(kBoth, {2, 2}).ok());
    }
    ASSERT_TRUE(trainer.fetch(kBoth, seen).ok());
    if (again) break;
    ASSERT_TRUE(second.end(true).ok());
    ASSERT_TRUE(trainer.send({"server"}, {2, 2}).ok());
    ASSERT_TRUE(trainer.fetch({"server"}, seen).ok());
    ASSERT_TRUE(first.end(true).ok());
  }
}

// One trainer is a step ahead, so its call to the other server waits for the gradients of the
// second one, which waits for the first one on the server that was started again. Neither call may
// last until its deadline.
TEST(TwoServers, ATrainerThatHasToGoBackDoesNotLetTheOthersWait) {
  const ::millrace::testing::TempFolder disk;
  ServerOptions options;
  options.snapshot_root = disk / "server";
  options.snapshot_every = 10;
  ServerOptions of_other = options;
  of_other.snapshot_root = disk / "other";
  const auto way = std::make_shared<InprocTransport>();
  const std::string program = server_at("server", 2);
  auto first = std::make_unique<TestServer>(way, program, kElasticStart, options);
  TestServer second(way, server_at("other", 2), kElasticStart, of_other);
  TwoServerTrainer ahead(way, 0, 0);
  TwoServerTrainer late(way, 1, 0);
  std::vector<Floats> seen;
  for (TwoServerTrainer* const trainer : {&ahead, &late}) {
    ASSERT_TRUE(trainer->fetch(kBoth, seen).ok());
    ASSERT_TRUE(trainer->send(kBoth, {2, 2}).ok());
  }
  ASSERT_TRUE(ahead.fetch(kBoth, seen).ok());
  ASSERT_TRUE(ahead.send(kBoth, {2, 2}).ok());
  ASSERT_TRUE(first->end(true).ok());
  // as after a crash: the snapshot saved at its end is removed
  ASSERT_GT(std::filesystem::remove_all(disk / "server/server-0/step-2"), 0U);
  first = std::make_unique<TestServer>(way, program, kElasticStart, options);
  const auto begin = Clock::now();
  Status of_ahead;
  std::thread other([&] {
    std::vector<Floats> own;
    of_ahead = ahead.fetch(kBoth, own);
  });
  const Status of_late = late.fetch(kBoth, seen);
  other.join();
  EXPECT_FALSE(of_ahead.ok());
  EXPECT_FALSE(of_late.ok());
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(10));
  for (TwoServerTrainer* const trainer : {&ahead, &late}) {
    EXPECT_TRUE(trainer->client().must_settle()) << of_ahead.to_string() << "\n"
                                                 << of_late.to_string();
    const auto step = trainer->client().settle();
    ASSERT_TRUE(step.ok()) << step.status().to_string();
    EXPECT_EQ(*step, 0);
  }
}

TEST(Leaving, ALostResponseIsNoError) {
  const auto way = std::make_shared<LosingTransport>(std::make_shared<InprocTransport>());
  TestServer server(way, sync_server(1), kElasticStart);
  TestTrainer trainer(way, 0, 2'000);
  ASSERT_TRUE(trainer.call(Method::kFetchBarrier).ok());
  // time for the server to end, if it does
  way->lose(Method::kComplete, [] { std::this_thread::sleep_for(milliseconds(300)); });
  const Status status = trainer.leave();
  EXPECT_TRUE(status.ok()) << status.to_string();
  EXPECT_TRUE(server.end().ok());
}

TEST(Leaving, TheLastResponseMayBeLost) {
  const auto way = std::make_shared<LosingTransport>(std::make_shared<InprocTransport>());
  TestServer server(way, sync_server(1), kElasticStart);
  TestTrainer trainer(way, 0, 2'000);
  ASSERT_TRUE(trainer.call(Method::kFetchBarrier).ok());
  ASSERT_TRUE(trainer.client().complete(true).ok());
  way->lose(Method::kComplete, [&] { EXPECT_TRUE(server.end().ok()); });
  const Status status = trainer.leave();
  EXPECT_TRUE(status.ok()) << status.to_string();
}

}  // namespace
}  // namespace millrace::ps

// Servers whose trainers are lost or go back to a step: what of their steps counts, and what such a
// trainer hears.
#include <atomic>

#include <gmock/gmock.h>

#include "tests/io/temp_folder.h"
#include "tests/ps/direct_server.h"
#include "tests/ps/server_fixture.h"

namespace millrace::ps {
namespace {

using std::chrono::milliseconds;
using test::DirectServer;
using test::DirectTrainer;
using test::put_numbers;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using Floats = std::vector<float>;
using Standing = protocol::HelloAnswer::Standing;

void fill_losses(Scope& scope) {
  put_numbers<float>(scope, "w", DType::kFloat32, {8, 16});
  put_numbers<float>(scope, "rate", DType::kFloat32, {0.5});
}

ServerOptions elastic_losses() {
  ServerOptions options;
  options.elastic = true;
  return options;
}

// Both trainers make a step with equal gradients, which changes w by -1 and -2.
void step_of_both(DirectTrainer& first, DirectTrainer& second) {
  const Value grad = floats({2, 4});
  ASSERT_TRUE(first.send("w@GRAD.trainer_0", grad).ok());
  ASSERT_TRUE(second.send("w@GRAD.trainer_1", grad).ok());
  std::thread other([&] { EXPECT_TRUE(second.fetch().ok()); });
  EXPECT_TRUE(first.fetch().ok());
  other.join();
}

class Losses : public ::testing::Test {
 protected:
  void SetUp() override {
    server_.serve();
    for (DirectTrainer* const trainer : {&stays_, &lost_}) {
      trainer->hello();
      ASSERT_TRUE(trainer->fetch().ok());
    }
  }

  DirectServer server_{sync_server(2), elastic_losses(), fill_losses};
  DirectTrainer stays_{server_, 0, 7};
  DirectTrainer lost_{server_, 1, 8};
};

// A process that has joined in place of a lost one, and is lost before it begins a step, has taken
// part in none, whatever the one before it did.
TEST_F(Losses, AReplacementThatIsLostBeforeItsFirstStepHasAppliedNone) {
  step_of_both(stays_, lost_);
  EXPECT_EQ(stays_.report_loss(1, 8).steps, 1);
  ASSERT_TRUE(stays_.call(protocol::Loss{.trainer = 1, .incarnation = 8, .steps = 1}).ok());
  DirectTrainer second(server_, 1, 9);
  EXPECT_EQ(second.hello().standing, Standing::kJoins);
  const protocol::LossAnswer answer = stays_.report_loss(1, 9);
  EXPECT_EQ(answer.steps, -1);
  EXPECT_FALSE(answer.decided);
  ASSERT_TRUE(stays_.call(protocol::Loss{.trainer = 1, .incarnation = 9, .steps = -1}).ok());
  EXPECT_TRUE(stays_.report_loss(1, 9).decided);
  DirectTrainer third(server_, 1, 10);
  EXPECT_EQ(third.hello().standing, Standing::kJoins);
}

// Another server has applied step 0 with the trainer, so this one must, too, although a replacement
// calls before it does.
TEST_F(Losses, AReplacementWaitsUntilTheLastStepOfTheLostOneIsApplied) {
  ASSERT_TRUE(lost_.send("w@GRAD.trainer_1", floats({6, 8})).ok());
  ASSERT_TRUE(stays_.send("w@GRAD.trainer_0", floats({2, 4})).ok());
  EXPECT_EQ(stays_.report_loss(1, 8).steps, 0);
  ASSERT_TRUE(stays_.call(protocol::Loss{.trainer = 1, .incarnation = 8, .steps = 1}).ok());
  DirectTrainer second(server_, 1, 9);
  second.patience = milliseconds(50);
  EXPECT_THAT(second.call(protocol::Hello{}).to_string(),
              HasSubstr("trainer 1 (lost), which another process wants to replace"));
  Floats seen;
  ASSERT_TRUE(stays_.fetch(&seen).ok());
  EXPECT_THAT(seen, ElementsAre(8 - 2, 16 - 3));
  EXPECT_EQ(second.hello().standing, Standing::kJoins);
}

// Another server took the trainer for lost before it called there, so it begins later on all.
TEST_F(Losses, ATrainerThatHasSentNothingMayJoinLater) {
  ASSERT_TRUE(lost_.call(protocol::GoTo{.step = 1, .settled = lost_.sequence}).ok());
  ASSERT_TRUE(stays_.send("w@GRAD.trainer_0", floats({2, 4})).ok());
  Floats seen;
  ASSERT_TRUE(stays_.fetch(&seen).ok());
  EXPECT_THAT(seen, ElementsAre(8 - 1, 16 - 2));
  ASSERT_TRUE(lost_.fetch(&seen).ok());
  step_of_both(stays_, lost_);
  ASSERT_TRUE(lost_.send("w@GRAD.trainer_1", floats({2, 4})).ok());
  const Status refused = lost_.call(protocol::GoTo{.step = 3, .settled = lost_.sequence});
  EXPECT_THAT(refused.to_string(), HasSubstr("wants to continue at step 3"));
}

// Another server has applied step 1 with the trainer; this one has not received it.
TEST_F(Losses, AServerThatLacksALaterUpdateNamesItsStep) {
  step_of_both(stays_, lost_);
  EXPECT_EQ(stays_.report_loss(1, 8).steps, 1);
  const Status refused = stays_.call(protocol::Loss{.trainer = 1, .incarnation = 8, .steps = 2});
  EXPECT_THAT(refused.to_string(), HasSubstr("its update of step 1, this one has not"));
  EXPECT_FALSE(server_.end().ok());
  // the lost trainer hears that it is lost; others hear why the server has ended
  EXPECT_THAT(lost_.call(protocol::Get{.names = {"w"}}).to_string(),
              HasSubstr("trainer 1 was silent for too long"));
  EXPECT_THAT(stays_.call(protocol::Get{.names = {"w"}}).to_string(),
              HasSubstr("cannot continue without trainer 1"));
}

// No trainer waits for one that was lost during its call, so the values may be of several steps.
TEST_F(Losses, ATrainerThatIsLostWhileItGetsValuesHearsIt) {
  Reply reply;
  ASSERT_TRUE(lost_.call(protocol::Get{.names = {"w"}}, reply).ok());
  lost_.on_put = [&] { EXPECT_EQ(stays_.report_loss(1, 8).steps, 0); };
  const Status status = lost_.call(protocol::Get{.names = {"w"}}, reply);
  EXPECT_EQ(status.code(), StatusCode::kDistributed);
  EXPECT_THAT(status.to_string(), HasSubstr("trainer 1 was silent for too long"));
}

TEST_F(Losses, ALateTrainerIsNamedWithWhatItLacks) {
  const Value grad = floats({2, 4});
  ASSERT_TRUE(stays_.send("w@GRAD.trainer_0", grad).ok());
  stays_.patience = milliseconds(50);
  EXPECT_THAT(stays_.fetch().to_string(),
              AllOf(HasSubstr("the gradients of step 0 of trainer 1 (last heard "),
                    HasSubstr(" s ago: fetch-barrier) with w@GRAD.trainer_1")));
  // it has sent all its gradients, but not that these are all
  ASSERT_TRUE(lost_.call(protocol::Send{.vars = {{"w@GRAD.trainer_1", &grad, nullptr}}}).ok());
  EXPECT_THAT(stays_.fetch().to_string(),
              AllOf(HasSubstr("the gradients of step 0 of trainer 1 (last heard "),
                    HasSubstr(" s ago: send)"), Not(HasSubstr(" with"))));
}

// A server that was started again does not decide alone about a silent trainer: another one, which
// has not called it yet, may have finished a step with it on the other servers.
TEST(Losing, ATrainerThatHasNotCalledYetMayKnowTheLastStep) {
  ServerOptions options = elastic_losses();
  options.silence_timeout = milliseconds(300);
  DirectServer server(sync_server(2), options, fill_losses);
  server.serve();
  DirectTrainer lost(server, 1, 8);
  lost.hello();
  Reply status;
  for (int i = 0; i < 200 && status.text.find("suspected") == std::string::npos; ++i) {
    std::this_thread::sleep_for(milliseconds(20));
    ASSERT_TRUE(lost.call(protocol::Watch{}, status).ok());
    ASSERT_THAT(status.text, Not(HasSubstr("lost")));
  }
  DirectTrainer late(server, 0, 7);
  const protocol::HelloAnswer answer = late.hello();
  ASSERT_EQ(answer.suspects.size(), 1U);
  EXPECT_EQ(answer.suspects[0].trainer, 1);
  EXPECT_EQ(answer.suspects[0].incarnation, 8U);
}

// It had sent its gradients to this server before that was started again, and another server has
// applied them.
TEST(Losing, ATrainerThatNeverCalledMayHaveAnUpdateElsewhere) {
  DirectServer server(sync_server(2), elastic_losses(), fill_losses);
  server.serve();
  DirectTrainer stays(server, 0, 7);
  stays.hello();
  EXPECT_EQ(stays.report_loss(1, 8).steps, 0);
  const Status refused = stays.call(protocol::Loss{.trainer = 1, .incarnation = 8, .steps = 1});
  EXPECT_THAT(refused.to_string(), HasSubstr("its update of step 0, this one has not"));
}

// One trainer begins its step again: what the other one has sent for it is discarded, and that one
// has to go back, too.
TEST(GoingBack, GradientsOfTheStepAreDiscarded) {
  DirectServer server(sync_server(2), {}, fill_losses);
  server.serve();
  DirectTrainer first(server, 0, 7);
  DirectTrainer second(server, 1, 8);
  for (DirectTrainer* const trainer : {&first, &second}) {
    trainer->hello();
    ASSERT_TRUE(trainer->fetch().ok());
  }
  ASSERT_TRUE(second.send("w@GRAD.trainer_1", floats({4, 4})).ok());
  ASSERT_TRUE(first.call(protocol::GoTo{.step = 0, .settled = first.sequence}).ok());
  EXPECT_THAT(second.fetch().to_string(), HasSubstr("has not sent a hello"));
  const protocol::HelloAnswer answer = second.hello();
  EXPECT_EQ(answer.sent, 0);
  EXPECT_EQ(answer.standing, Standing::kMustGoBack);
  ASSERT_TRUE(second.call(protocol::GoTo{.step = 0, .settled = second.sequence}).ok());
  for (DirectTrainer* const trainer : {&first, &second}) ASSERT_TRUE(trainer->fetch().ok());
  ASSERT_TRUE(first.send("w@GRAD.trainer_0", floats({2, 2})).ok());
  ASSERT_TRUE(second.send("w@GRAD.trainer_1", floats({8, 10})).ok());
  Floats seen;
  ASSERT_TRUE(first.fetch(&seen).ok());
  EXPECT_THAT(seen, ElementsAre(8 - 2.5F, 16 - 3));
}

// Its gradients would let this server advance, while the other trainer may have to begin the step
// again on another server: the two would undo each other's steps forever.
TEST(GoingBack, ATrainerThatHasNotSentMustDoSoToo) {
  DirectServer server(sync_server(2), {}, fill_losses);
  server.serve();
  DirectTrainer first(server, 0, 7);
  DirectTrainer second(server, 1, 8);
  for (DirectTrainer* const trainer : {&first, &second}) {
    trainer->hello();
    ASSERT_TRUE(trainer->fetch().ok());
  }
  ASSERT_TRUE(first.call(protocol::GoTo{.step = 0, .settled = first.sequence}).ok());
  EXPECT_THAT(second.send("w@GRAD.trainer_1", floats({4, 4})).to_string(),
              HasSubstr("has not sent a hello"));
  EXPECT_EQ(second.hello().standing, Standing::kMustGoBack);
  ASSERT_TRUE(second.call(protocol::GoTo{.step = 0, .settled = second.sequence}).ok());
  for (DirectTrainer* const trainer : {&first, &second}) ASSERT_TRUE(trainer->fetch().ok());
  step_of_both(first, second);
}

// The arrival of a lost trainer at a barrier does not count for the process that replaces it.
TEST(AsyncLosses, AReplacementArrivesAtABarrierItself) {
  ServerOptions options = elastic_losses();
  options.silence_timeout = milliseconds(1200);
  DirectServer server(async_server(2), options, fill_losses);
  server.serve();
  DirectTrainer stays(server, 0, 7);
  DirectTrainer lost(server, 1, 8);
  stays.hello();
  lost.hello();
  const protocol::Barrier barrier{protocol::ServerBarrier{CommBarrier::kSend}};
  std::atomic<bool> ended = false;
  std::thread waits([&] {
    EXPECT_THAT(lost.call(barrier).to_string(), HasSubstr("trainer 1 was silent for too long"));
    ended = true;
  });
  while (!ended) {
    stays.hello();
    std::this_thread::sleep_for(milliseconds(20));
  }
  waits.join();
  DirectTrainer second(server, 1, 9);
  EXPECT_EQ(second.hello().standing, Standing::kJoins);
  stays.patience = milliseconds(50);
  EXPECT_THAT(stays.call(barrier).to_string(),
              AllOf(HasSubstr("barrier 'send': trainer 1"), Not(HasSubstr("trainer 0 "))));
  const Status arrived = second.call(barrier);
  EXPECT_TRUE(arrived.ok()) << arrived.to_string();
  // it takes part in the training at once
  ASSERT_TRUE(second.call(protocol::Send{.vars = {}}).ok());
}

// Another server has heard the process, and reports it as the one that it knows.
TEST(Unheard, ATrainerIsEndedAsTheProcessThatAnotherServerKnows) {
  ServerOptions options = elastic_losses();
  options.start_timeout = milliseconds(100);
  DirectServer server(sync_server(2), options, fill_losses);
  server.serve();
  DirectTrainer stays(server, 0, 7);
  stays.hello();
  ASSERT_TRUE(stays.fetch().ok());
  ASSERT_TRUE(stays.send("w@GRAD.trainer_0", floats({2, 4})).ok());
  for (int i = 0; i < 100 && stays.hello().suspects.empty(); ++i)
    std::this_thread::sleep_for(milliseconds(50));
  ASSERT_EQ(stays.hello().suspects.size(), 1U);
  EXPECT_EQ(stays.report_loss(1, 8).steps, 0);
  EXPECT_EQ(stays.hello().suspects.front().incarnation, 8U);
  ASSERT_TRUE(stays.call(protocol::Loss{.trainer = 1, .incarnation = 8, .steps = 0}).ok());
  EXPECT_TRUE(stays.report_loss(1, 8).decided);
  Floats seen;
  ASSERT_TRUE(stays.fetch(&seen).ok());
  EXPECT_THAT(seen, ElementsAre(8 - 1, 16 - 2));
}

// Its calls wait at another server, so it has not greeted this one since that was started again.
TEST(Unheard, ATrainerMayReportALossBeforeItsHello) {
  const ::millrace::testing::TempFolder disk;
  ServerOptions options = elastic_losses();
  options.snapshot_root = disk.path();
  options.snapshot_every = 1;
  options.snapshot_durable = true;
  DirectServer server(sync_server(3), options, fill_losses);
  server.serve();
  DirectTrainer stays(server, 0, 7);
  EXPECT_EQ(stays.report_loss(1, 8).steps, 0);
  EXPECT_THAT(stays.fetch().to_string(), HasSubstr("which has not sent a hello to this server"));
  stays.hello();
  EXPECT_THAT(stays.call(protocol::Loss{.trainer = 0, .incarnation = 7}).to_string(),
              HasSubstr("trainer 0 reports the loss of trainer 0"));
}

// It may have lost steps that the trainer has seen, and would have all decide without them.
TEST(Unheard, AServerThatMayHaveLostStepsWaitsForAHello) {
  DirectServer server(sync_server(3), elastic_losses(), fill_losses);
  DirectTrainer stays(server, 0, 7);
  EXPECT_THAT(stays.call(protocol::Loss{.trainer = 1, .incarnation = 8}).to_string(),
              HasSubstr("reports a loss before its hello"));
  stays.hello();
  EXPECT_EQ(stays.report_loss(1, 8).steps, 0);
}

}  // namespace
}  // namespace millrace::ps

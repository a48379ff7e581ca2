// What a server writes down: its snapshots, the calls in them and its term; and what its metrics
// say.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>

#include <gmock/gmock.h>

#include "io/checkpoint/folder.h"
#include "ps/server/calls_record.h"
#include "ps/transport/epoch.h"
#include "tests/io/temp_folder.h"
#include "tests/ps/direct_server.h"
#include "tests/ps/server_fixture.h"

namespace millrace::ps {
namespace {

namespace fs = std::filesystem;
using ::millrace::testing::TempFolder;
using test::DirectServer;
using test::DirectTrainer;
using test::put_numbers;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using Floats = std::vector<float>;

void fill_records(Scope& scope) {
  put_numbers<float>(scope, "w", DType::kFloat32, {8, 16});
  put_numbers<float>(scope, "rate", DType::kFloat32, {0.5});
}

class Records : public ::testing::Test {
 protected:
  void SetUp() override {
    options_.snapshot_root = disk_.path();
    options_.log = [this](const std::string& line) { log_ += line + "\n"; };
  }
  [[nodiscard]] size_t snapshots() const {
    const auto entries = io::list_checkpoints(disk_ / "server-0");
    return entries.ok() ? entries->size() : 0;
  }
  [[nodiscard]] StatusOr<CallsRecord> last_calls() const {
    MILLRACE_ASSIGN_OR_RETURN(const io::LastCheckpoint last,
                              io::open_last_checkpoint(disk_ / "server-0"));
    MILLRACE_ASSIGN_OR_RETURN(const std::string text, last.checkpoint.load_record(kCallsRecord));
    return parse_calls(text);
  }
  // Nothing can be written below the folder of snapshots any more.
  void block_folder() {
    // a snapshot that is being written may make the folder again
    for (int k = 0; !std::ofstream(disk_ / "server-0"); ++k) {
      std::error_code ignored;
      fs::rename(disk_ / "server-0", disk_ / ("gone" + std::to_string(k)), ignored);
    }
  }

  TempFolder disk_;
  ServerOptions options_;
  std::string log_;
};

TEST(CallsRecord, SaysTheSameWhenItIsRead) {
  CallsRecord record;
  record.applied = 5;
  record.trainers.resize(2);
  record.trainers[0] = {.incarnation = 7, .sent = 5, .fetched = 6, .low = 12, .done = {14, 19}};
  record.trainers[1] = {.incarnation = 8, .sent = 4, .fetched = 4, .low = 9, .done = {}};
  const auto read = parse_calls(calls_text(record));
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ(read->applied, 5);
  ASSERT_EQ(read->trainers.size(), 2U);
  EXPECT_EQ(read->trainers[0].incarnation, 7U);
  EXPECT_EQ(read->trainers[0].sent, 5);
  EXPECT_EQ(read->trainers[0].fetched, 6);
  EXPECT_EQ(read->trainers[0].low, 12U);
  EXPECT_THAT(read->trainers[0].done, ElementsAre(14, 19));
  EXPECT_THAT(read->trainers[1].done, IsEmpty());
  const std::string head = "millrace.ps.calls 1 5 1\n7 5 6 12 ";
  ASSERT_TRUE(parse_calls(head + "2 14 19\n").ok());
  for (const char* const rest : {"2 14 14", "2 14", "1 14 19", "x"}) {
    const auto malformed = parse_calls(head + rest + "\n");
    EXPECT_EQ(malformed.status().code(), StatusCode::kInvalidData) << rest;
  }
}

// A second snapshot of a step would displace an older one that other servers may need.
TEST_F(Records, AServerThatEndsSavesAStepOnce) {
  DirectServer server(sync_server(1), options_, fill_records);
  server.serve();
  DirectTrainer trainer(server, 0, 7);
  trainer.hello();  // waits for the first snapshot
  EXPECT_TRUE(server.end(true).ok());
  EXPECT_EQ(snapshots(), 1U);
}

// A trainer of a server that takes snapshots, some of which cannot be written.
class Unwritten : public Records {
 protected:
  void begin(int every) {
    options_.snapshot_every = every;
    server_ = std::make_unique<DirectServer>(sync_server(1), options_, fill_records);
    server_->serve();
    trainer_.emplace(*server_, 0, 7);
    trainer_->hello();
    ASSERT_TRUE(trainer_->fetch().ok());
  }
  void step(float grad) {
    ASSERT_TRUE(trainer_->send("w@GRAD", floats({grad, grad})).ok());
    ASSERT_TRUE(trainer_->fetch().ok());
  }
  // Another server is at this step, as its epoch says.
  Status go_to(int64_t step, uint64_t epoch) {
    return trainer_->call(protocol::GoTo{
        .step = step, .settled = trainer_->sequence, .oldest = "other", .oldest_epoch = epoch});
  }
  [[nodiscard]] std::string path_of(int number) const {
    return disk_ / ("server-0/step-" + std::to_string(number));
  }

  // The snapshot of this number gets no folder.
  void block(int number) {
    fs::create_directories(disk_ / "server-0");
    EXPECT_TRUE(std::ofstream(path_of(number)).put('x'));
  }

  std::unique_ptr<DirectServer> server_;
  std::optional<DirectTrainer> trainer_;
};

// Step 2 is done twice, with other gradients, and only its first state was written.
TEST_F(Unwritten, AStepThatWasGivenUpIsNotLoaded) {
  begin(1);
  for (int k = 0; k < 3; ++k) step(2);
  ASSERT_TRUE(go_to(1, 1).ok());
  ASSERT_TRUE(trainer_->fetch().ok());
  block(6);
  step(4);
  step(4);
  const Status status = go_to(2, 2);
  EXPECT_EQ(status.code(), StatusCode::kDistributed) << status.to_string();
  EXPECT_THAT(status.message(), HasSubstr("no snapshot of step 2, so it went back to step 1"));
  EXPECT_EQ(trainer_->hello().sent, 1);
  EXPECT_THAT(trainer_->floats_of(protocol::GetNow{.names = {"w"}}), ElementsAre(7, 15));
}

// The failure was reported when another snapshot was looked for.
TEST_F(Unwritten, AServerThatEndsSavesItsStepAgain) {
  begin(2);
  block(2);
  for (int k = 0; k < 2; ++k) step(2);
  // or it would go back to step 0
  for (int i = 0; i < 500 && fs::remove_all(path_of(1)) == 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  for (int i = 0; i < 500 && log_.find("could not be written") == std::string::npos; ++i) {
    EXPECT_THAT(go_to(1, 1).to_string(), HasSubstr("no snapshot of step 1; it has none"));
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_THAT(log_, HasSubstr("a snapshot could not be written"));
  fs::remove(path_of(2));
  EXPECT_TRUE(server_->end(true).ok());
  const auto record = last_calls();
  ASSERT_TRUE(record.ok()) << record.status().to_string();
  EXPECT_EQ(record->applied, 2);
}

// Gradients of a step that is not applied are not in the snapshot. So the calls that sent them are
// not in its record, also those that overtook another call.
TEST_F(Records, ASnapshotHasNoCallsOfTheStepThatFollows) {
  DirectServer server(sync_server(2), options_, fill_records);
  server.serve();
  DirectTrainer ahead(server, 0, 7);
  DirectTrainer late(server, 1, 8);
  for (DirectTrainer* const trainer : {&ahead, &late}) {
    trainer->hello();
    ASSERT_TRUE(trainer->fetch().ok());
  }
  ASSERT_TRUE(ahead.send("w@GRAD.trainer_0", floats({2, 4})).ok());
  ASSERT_TRUE(late.send("w@GRAD.trainer_1", floats({2, 4})).ok());
  for (DirectTrainer* const trainer : {&ahead, &late}) ASSERT_TRUE(trainer->fetch().ok());
  EXPECT_EQ(ahead.sequence, 3U);
  ++ahead.sequence;  // call 4 is still on its way
  ASSERT_TRUE(ahead.send("w@GRAD.trainer_0", floats({2, 4})).ok());
  EXPECT_TRUE(server.end(true).ok());
  const auto record = last_calls();
  ASSERT_TRUE(record.ok()) << record.status().to_string();
  EXPECT_EQ(record->applied, 1);
  ASSERT_EQ(record->trainers.size(), 2U);
  for (const CallsRecord::Trainer& trainer : record->trainers) {
    EXPECT_EQ(trainer.sent, 1);
    EXPECT_EQ(trainer.fetched, 2);
    EXPECT_EQ(trainer.low, 3U);
    EXPECT_THAT(trainer.done, IsEmpty());
  }
}

// Two trainers, one of which was lost and is replaced from a later step on, of a server that takes
// a snapshot of each step.
class Replaced : public Records {
 protected:
  void SetUp() override {
    Records::SetUp();
    options_.elastic = true;
    options_.snapshot_every = 1;
    options_.snapshot_durable = true;
    begin();
    for (DirectTrainer* const trainer : {&*stays_, &*lost_}) {
      trainer->hello();
      ASSERT_TRUE(trainer->fetch().ok());
    }
  }
  void begin() {
    server_.reset();
    server_ = std::make_unique<DirectServer>(sync_server(2), options_, fill_records);
    server_->serve();
    stays_.emplace(*server_, 0, 7);
    lost_.emplace(*server_, 1, 8);
    second_.emplace(*server_, 1, 9);
  }
  // A step with the lost trainer or without it.
  void step(bool both) {
    ASSERT_TRUE(stays_->send("w@GRAD.trainer_0", floats({2, 4})).ok());
    if (both) {
      ASSERT_TRUE(lost_->send("w@GRAD.trainer_1", floats({2, 4})).ok());
      ASSERT_TRUE(
          lost_->call(protocol::Complete{.stays = true, .waits = false, .sent_everywhere = true})
              .ok());
    }
    ASSERT_TRUE(stays_->fetch().ok());
  }
  void replace(int64_t steps, int64_t from) {
    EXPECT_EQ(stays_->report_loss(1, 8).steps, steps);
    ASSERT_TRUE(stays_->call(protocol::Loss{.trainer = 1, .incarnation = 8, .steps = steps}).ok());
    EXPECT_EQ(second_->hello().standing, protocol::HelloAnswer::Standing::kJoins);
    ASSERT_TRUE(second_->call(protocol::GoTo{.step = from}).ok());
  }

  std::unique_ptr<DirectServer> server_;
  std::optional<DirectTrainer> stays_;
  std::optional<DirectTrainer> lost_;
  std::optional<DirectTrainer> second_;
};

// A server that is started again waits for its gradients.
TEST_F(Replaced, HasSentNothingOfTheStepsBefore) {
  replace(0, 3);
  step(false);
  const auto record = last_calls();
  ASSERT_TRUE(record.ok()) << record.status().to_string();
  EXPECT_EQ(record->applied, 1);
  ASSERT_EQ(record->trainers.size(), 2U);
  EXPECT_EQ(record->trainers[1].incarnation, 9U);
  EXPECT_EQ(record->trainers[1].sent, 1);
  EXPECT_EQ(record->trainers[1].fetched, 1);
  begin();
  EXPECT_EQ(stays_->hello().sent, 1);
  stays_->sequence = record->trainers[0].low;
  ASSERT_TRUE(stays_->fetch().ok());
  ASSERT_TRUE(stays_->send("w@GRAD.trainer_0", floats({2, 4})).ok());
  stays_->patience = std::chrono::milliseconds(50);
  EXPECT_THAT(stays_->fetch().to_string(), HasSubstr("trainer 1 (not connected yet)"));
}

// The snapshot knows only the process before it.
TEST_F(Replaced, WaitsForTheSameStepOfAServerThatGoesBack) {
  step(true);
  replace(1, 4);
  step(false);
  ASSERT_TRUE(
      stays_->call(protocol::GoTo{.step = 1, .settled = stays_->sequence, .oldest = "other"}).ok());
  second_->patience = std::chrono::milliseconds(50);
  const protocol::HelloAnswer answer = second_->hello();
  EXPECT_EQ(answer.standing, protocol::HelloAnswer::Standing::kJoins);
  EXPECT_EQ(answer.sent, 4);
  EXPECT_EQ(answer.applied, 1);
}

// As resharded snapshots are: they belong to no job, and a new one begins with the values.
TEST_F(Records, ASnapshotOfValuesAloneBelongsToAnyJob) {
  const Value w = floats({1, 2});
  const std::string calls = calls_text({});
  io::LocalState state;
  state.add("w", w);
  state.add_record(kCallsRecord, calls);
  ASSERT_TRUE(io::save_checkpoint(state, disk_ / "server-0", 1, {}, 3).ok());
  DirectServer server(sync_server(1), options_, fill_records);
  ASSERT_TRUE(server.status().ok()) << server.status().to_string();
  server.serve();
  DirectTrainer trainer(server, 0, 7);
  EXPECT_EQ(trainer.hello().applied, 0);
  EXPECT_THAT(trainer.floats_of(protocol::GetNow{.names = {"w"}}), ElementsAre(1, 2));
  EXPECT_THAT(log_, HasSubstr("has no values for these vars, which keep theirs: rate\n"));
}

// The training continues without a snapshot.
TEST_F(Records, ASnapshotThatCannotBeWrittenIsLogged) {
  options_.snapshot_every = 1;
  DirectServer server(sync_server(1), options_, fill_records);
  server.serve();
  DirectTrainer trainer(server, 0, 7);
  trainer.hello();
  Floats seen;
  ASSERT_TRUE(trainer.fetch().ok());
  for (int step = 0; step < 4; ++step) {
    if (step == 2) block_folder();
    ASSERT_TRUE(trainer.send("w@GRAD", floats({2, 4})).ok());
    ASSERT_TRUE(trainer.fetch(&seen).ok());
  }
  EXPECT_THAT(seen, ElementsAre(4, 8));
  ASSERT_TRUE(trainer.call(protocol::Complete{}).ok());
  EXPECT_TRUE(server.end().ok());
  EXPECT_THAT(log_, HasSubstr("a snapshot could not be written: "));
}

TEST_F(Records, ASnapshotThatIsWrittenIsNoFailure) {
  options_.snapshot_every = 1;
  DirectServer server(sync_server(1), options_, fill_records);
  server.serve();
  DirectTrainer trainer(server, 0, 7);
  trainer.hello();
  ASSERT_TRUE(trainer.fetch().ok());
  for (int step = 0; step < 2; ++step) {
    ASSERT_TRUE(trainer.send("w@GRAD", floats({2, 4})).ok());
    ASSERT_TRUE(trainer.fetch().ok());
  }
  EXPECT_TRUE(server.end(true).ok());
  EXPECT_THAT(log_, Not(HasSubstr("could not be written")));
}

TEST_F(Records, ADurableSnapshotThatCannotBeWrittenEndsTheServer) {
  options_.snapshot_every = 1;
  options_.snapshot_durable = true;
  DirectServer server(sync_server(1), options_, fill_records);
  server.serve();
  DirectTrainer trainer(server, 0, 7);
  trainer.hello();
  ASSERT_TRUE(trainer.fetch().ok());
  ASSERT_TRUE(trainer.send("w@GRAD", floats({2, 4})).ok());
  ASSERT_TRUE(trainer.fetch().ok());
  block_folder();
  ASSERT_TRUE(trainer.send("w@GRAD", floats({2, 4})).ok());
  EXPECT_THAT(trainer.fetch().to_string(), HasSubstr("while saving a snapshot"));
  EXPECT_THAT(server.end().to_string(), HasSubstr("while saving a snapshot"));
}

TEST_F(Records, ATermThatCannotBeReadIsAnError) {
  fs::create_directories(disk_ / "server-0.term");
  const DirectServer server(sync_server(1), options_, fill_records);
  EXPECT_THAT(server.status().to_string(),
              AllOf(HasSubstr("while reading the term of a server"), HasSubstr("server-0.term")));
}

// In a long step it makes no call, but its heartbeats to the process before show that it runs.
TEST_F(Records, ATrainerThatOnlySendsHeartbeatsIsNotGivenUp) {
  options_.start_timeout = std::chrono::milliseconds(200);
  options_.silence_timeout = std::chrono::milliseconds(5000);
  options_.snapshot_every = 1;  // the snapshot of a step has the process of the trainer
  auto server = std::make_unique<DirectServer>(sync_server(1), options_, fill_records);
  server->serve();
  {
    DirectTrainer trainer(*server, 0, 7);
    trainer.hello();
    ASSERT_TRUE(trainer.fetch().ok());
    ASSERT_TRUE(trainer.send("w@GRAD", floats({2, 2})).ok());
    ASSERT_TRUE(trainer.fetch().ok());
  }
  ASSERT_TRUE(server->end(true).ok());
  server.reset();  // releases the folder
  server = std::make_unique<DirectServer>(sync_server(1), options_, fill_records);
  server->serve();
  DirectTrainer trainer(*server, 0, 7);
  trainer.epoch = make_epoch(1, 5);
  for (int i = 0; i < 30; ++i) {
    EXPECT_THAT(trainer.call(protocol::Hello{}).to_string(), HasSubstr("is meant for epoch"));
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  trainer.epoch = 0;
  EXPECT_EQ(trainer.hello().standing, protocol::HelloAnswer::Standing::kContinues);
  EXPECT_TRUE(server->end(true).ok());
}

// ---- metrics

// The value of a series; -1 if there is none.
double metric(const Metrics& metrics, const std::string& name, const MetricLabels& labels) {
  for (const MetricFamily& family : metrics.collect()) {
    if (family.name != name) continue;
    for (const MetricSample& sample : family.samples)
      if (sample.labels == labels) return sample.value;
  }
  return -1;
}

const MetricLabels kOfServer = {{"server", "server"}};

TEST(ServerMetrics, TellHowFarTrainersAre) {
  Metrics metrics;
  DirectServer server(sync_server(3), {}, fill_records);
  server.service().publish_to(metrics);
  server.serve();
  DirectTrainer slow(server, 0, 7);
  DirectTrainer fast(server, 1, 8);
  slow.step = 3;
  fast.step = 5;
  for (DirectTrainer* const trainer : {&slow, &fast}) {
    trainer->hello();
    ASSERT_TRUE(trainer->fetch().ok());
  }
  ASSERT_TRUE(fast.send("w@GRAD.trainer_1", floats({2, 4})).ok());
  EXPECT_TRUE(server.end(true).ok());
  EXPECT_EQ(metric(metrics, "millrace_peers_alive", kOfServer), 2);
  EXPECT_EQ(metric(metrics, "millrace_ps_trainers_waiting", kOfServer), 1);
  EXPECT_EQ(metric(metrics, "millrace_staleness_steps", kOfServer), 2);
  EXPECT_EQ(metric(metrics, "millrace_peer_step", {{"peer", "trainer 0"}}), 3);
  EXPECT_EQ(metric(metrics, "millrace_peer_step", {{"peer", "trainer 1"}}), 5);
  EXPECT_EQ(metric(metrics, "millrace_peer_step", {{"peer", "trainer 2"}}), -1);
  EXPECT_EQ(metric(metrics, "millrace_step_total", {{"role", "server"}, {"rank", "0"}}), 0);
  EXPECT_EQ(metric(metrics, "millrace_updates_applied_total", kOfServer), 3);
}

TEST(ServerMetrics, WithoutTrainersNoneIsAhead) {
  Metrics metrics;
  DirectServer server(sync_server(1), {}, fill_records);
  server.service().publish_to(metrics);
  server.serve();
  EXPECT_TRUE(server.end(true).ok());
  EXPECT_EQ(metric(metrics, "millrace_peers_alive", kOfServer), 0);
  EXPECT_EQ(metric(metrics, "millrace_ps_trainers_waiting", kOfServer), 0);
  EXPECT_EQ(metric(metrics, "millrace_staleness_steps", kOfServer), 0);
}

// Tables are sparse parameters and vars with row numbers, but not gradients or dense vars.
TEST(ServerMetrics, ListTables) {
  Metrics metrics;
  DirectServer server(R"(# millrace program 1

block 0 {
  persist w: f32(2)
  persist rate: f32(1)
  persist table: f32(4, 2)
  persist table@GRAD: selected_rows f32(4, 2)
  persist part: selected_rows f32(10, 3)
  persist unset: f32(5)

  listen_and_serv X=table@GRAD {
      optimize_blocks: [^1], endpoint: "server", pserver_id: 0, Fanin: 1, distributed_mode: 1,
      grad_to_block_id: ["table@GRAD:1"], sparse_grad_to_param: ["table@GRAD:table"]
  }
}

block 1 parent=0 {
  sgd Param=table Grad=table@GRAD LearningRate=rate -> ParamOut=table {op_role: 2}
}
)",
                      {}, [](Scope& scope) {
                        fill_records(scope);
                        put_numbers<float>(scope, "table", DType::kFloat32, Floats(8), {4, 2});
                        auto& part = scope.root().local("part").as<SelectedRows>();
                        part.rows = {1, 4, 7};
                        part.height = 10;
                        ASSERT_TRUE(part.value.resize(DType::kFloat32, {3, 3}).ok());
                      });
  server.service().publish_to(metrics);
  server.serve();
  DirectTrainer trainer(server, 0, 7);
  trainer.hello();
  Value grad;
  grad.as<SelectedRows>().rows = {1};
  grad.as<SelectedRows>().height = 4;
  ASSERT_TRUE(grad.as<SelectedRows>().value.resize(DType::kFloat32, {1, 2}).ok());
  std::fill_n(grad.as<SelectedRows>().value.data<float>(), 2, 1.0F);
  ASSERT_TRUE(trainer.call(protocol::Send{.vars = {{"table@GRAD", &grad, nullptr}}}).ok());
  EXPECT_TRUE(server.end(true).ok());
  EXPECT_EQ(metric(metrics, "millrace_table_rows", {{"table", "table"}}), 4);
  EXPECT_EQ(metric(metrics, "millrace_table_bytes", {{"table", "table"}}), 4 * 2 * 4);
  EXPECT_EQ(metric(metrics, "millrace_table_rows", {{"table", "part"}}), 3);
  EXPECT_EQ(metric(metrics, "millrace_table_bytes", {{"table", "part"}}), 3 * 3 * 4);
  for (const char* const other : {"w", "rate", "table@GRAD", "unset"}) {
    EXPECT_EQ(metric(metrics, "millrace_table_rows", {{"table", other}}), -1) << other;
    EXPECT_EQ(metric(metrics, "millrace_table_bytes", {{"table", other}}), -1) << other;
  }
  EXPECT_EQ(metric(metrics, "millrace_ps_vars", kOfServer), 5);
  EXPECT_EQ(metric(metrics, "millrace_memory_bytes", {{"kind", "vars"}}), 8 + 4 + 32 + 8 + 36);
}

}  // namespace
}  // namespace millrace::ps

#include <array>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ps/ops/row_instances.h"
#include "ps/table/client_caller.h"
#include "ps/table/dense_table.h"
#include "ps/table/sparse_table.h"
#include "ps/table/table_client.h"
#include "ps/table/table_handler.h"
#include "tests/ps/losing_transport.h"
#include "tests/ps/server_fixture.h"

// Typed tables on the server of a program: trainers reach both with one client, and the barriers of
// the tables do not wait for trainers that are done or lost.

namespace millrace::ps {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Floats = std::vector<float>;

const std::map<std::string, Floats> kTypedTablesStart = {{"w", {8, 16}}, {"rate", {0.5}}};

class TypedTables : public ::testing::Test {
 protected:
  static constexpr int kTrainers = 2;
  static constexpr int kTable = 4;

  TypedTables() {
    DenseTableOptions dense;
    dense.elements = 3;
    dense.learning_rate = 1;
    auto table = DenseTable::create(dense);
    EXPECT_TRUE(table.ok());
    EXPECT_TRUE(tables_.add(kTable, *std::move(table)).ok());
    options_.tables = &tables_;
  }
  // A trainer, and its view of the tables.
  struct Both {
    Both(const std::shared_ptr<Transport>& way, int id, int deadline_ms = 20'000,
         int heartbeat_ms = 0)
        : trainer(way, id, deadline_ms, "", 0, heartbeat_ms),
          client(std::shared_ptr<Client>(&trainer.client(), [](Client*) {})),
          tables(std::make_shared<ClientCaller>(client, std::vector<std::string>{"server"})) {}
    TestTrainer trainer;
    std::shared_ptr<Client> client;
    TableClient tables;
  };

  std::shared_ptr<Transport> way_ = std::make_shared<InprocTransport>();
  TableHandler tables_{kTrainers};
  ServerOptions options_;
};

TEST(RowInstances, AreSequencesOrRows) {
  Tensor ids;
  ASSERT_TRUE(ids.resize(DType::kInt64, {3, 2}).ok());
  EXPECT_THAT(*instances_of(ids), ElementsAre(0, 0, 1, 1, 2, 2));
  ids.set_lod(Lod({{0, 2, 3}}));
  EXPECT_THAT(*instances_of(ids), ElementsAre(0, 0, 0, 0, 1, 1));
  ids.set_lod(Lod({{0, 2, 9}}));
  EXPECT_EQ(instances_of(ids).status().code(), StatusCode::kInvalidData);
}

TEST_F(TypedTables, LiveBesideTheVarsOfTheProgram) {
  TestServer server(way_, sync_server(kTrainers), kTypedTablesStart, options_);
  std::array<Floats, kTrainers> vars;
  std::array<Floats, kTrainers> pulled;
  std::vector<std::thread> threads;
  for (int t = 0; t < kTrainers; ++t) {
    threads.emplace_back([&, t] {
      const auto i = static_cast<size_t>(t);
      Both both(way_, t);
      pulled[i].resize(3);
      for (int step = 0; step < 2; ++step) {
        ASSERT_TRUE(both.trainer.step(fmt::format("w@GRAD.trainer_{}", t), {2, 4}, vars[i]).ok());
        ASSERT_TRUE(both.tables.push_dense(kTable, Floats(3, t == 0 ? 1 : 3)).ok());
        ASSERT_TRUE(both.tables.barrier(CommBarrier::kSend).ok());
        ASSERT_TRUE(both.tables.pull_dense(kTable, pulled[i]).ok());
        EXPECT_THAT(pulled[i], Each(-4.0F * static_cast<float>(step + 1)));
        ASSERT_TRUE(both.tables.barrier(CommBarrier::kReceive).ok());
      }
      ASSERT_TRUE(both.trainer.leave().ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(server.end().ok());
  for (const Floats& param : vars) EXPECT_THAT(param, ElementsAre(6, 12));
}

TEST_F(TypedTables, ARepeatedPushCountsOnce) {
  TestServer server(way_, sync_server(kTrainers), kTypedTablesStart, options_);
  const auto channel = *way_->connect("server");
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  const Value grad = floats({2, 4, 6});
  const Caller caller{"", 0, 77};
  Request hello = pack(protocol::Hello{});
  hello.caller = caller;
  Reply reply;
  ASSERT_TRUE(channel->call(hello, deadline, reply).ok());
  Request request = pack(protocol::Push{kTable, PushKind::kUpdate, {{"", &grad, nullptr}}});
  request.caller = caller;
  request.sequence = 1;
  for (int k = 0; k < 3; ++k) {
    const Status status = channel->call(request, deadline, reply);
    ASSERT_TRUE(status.ok()) << status.to_string();
  }
  request.sequence = 2;
  ASSERT_TRUE(channel->call(request, deadline, reply).ok());
  Floats values(3);
  ASSERT_TRUE(dynamic_cast<DenseTable&>(*tables_.find(kTable)).pull(values).ok());
  EXPECT_THAT(values, ElementsAre(-4, -8, -12));  // two pushes, not four
}

// A server that was started again has lost what trainers have sent before: they must not end well.
TEST_F(TypedTables, NobodyIsDoneAtAServerWithoutValues) {
  tables_.wait_for_values();
  TestServer server(way_, async_server(kTrainers), kTypedTablesStart, options_);
  Both late(way_, 0);
  ASSERT_TRUE(late.client->mode_of("server").ok());
  EXPECT_THAT(late.client->complete(true).to_string(), HasSubstr("this server was started later"));
  tables_.resume();
  Both other(way_, 1);
  ASSERT_TRUE(other.client->mode_of("server").ok());
  std::thread peer([&] { EXPECT_TRUE(other.client->complete(true).ok()); });
  EXPECT_TRUE(late.client->complete(true).ok());
  peer.join();
  EXPECT_TRUE(late.trainer.leave().ok());
  EXPECT_TRUE(other.trainer.leave().ok());
  EXPECT_TRUE(server.end().ok());
}

// The barriers do not wait for trainers that are done: one leaves the tables, the other the job.
TEST_F(TypedTables, NobodyWaitsForWhoIsDone) {
  for (const bool leaves_job : {false, true}) {
    SCOPED_TRACE(leaves_job ? "completes" : "leaves");
    TableHandler tables(kTrainers);
    options_.tables = &tables;
    TestServer server(way_, sync_server(kTrainers), kTypedTablesStart, options_);
    Both early(way_, 0);
    Both late(way_, 1, 2'000);
    const Status left = leaves_job ? early.client->mode_of("server").status() : Ok();
    ASSERT_TRUE(left.ok());
    const Status done = leaves_job ? early.trainer.leave() : early.tables.leave();
    ASSERT_TRUE(done.ok()) << done.to_string();
    const Status status = late.tables.barrier(CommBarrier::kSend);
    EXPECT_TRUE(status.ok()) << status.to_string();
  }
}

TEST_F(TypedTables, NobodyWaitsForWhoIsLost) {
  options_.silence_timeout = std::chrono::milliseconds(400);
  options_.elastic = true;
  TestServer server(way_, sync_server(kTrainers), kTypedTablesStart, options_);
  {
    Both silent(way_, 0);
    ASSERT_TRUE(silent.client->mode_of("server").ok());
  }
  Both other(way_, 1, 10'000, 50);
  const Status status = other.tables.barrier(CommBarrier::kSend);
  EXPECT_TRUE(status.ok()) << status.to_string();
}

// The replacement does not take part in barriers that passed meanwhile; the next one waits for it.
TEST_F(TypedTables, AReplacementComesToTheBarriersUnderWay) {
  options_.silence_timeout = std::chrono::milliseconds(400);
  options_.elastic = true;
  TestServer server(way_, sync_server(kTrainers), kTypedTablesStart, options_);
  {
    Both silent(way_, 0);
    ASSERT_TRUE(silent.client->mode_of("server").ok());
  }
  Both other(way_, 1, 10'000, 50);
  for (int phase = 0; phase < 3; ++phase)
    ASSERT_TRUE(other.tables.barrier(CommBarrier::kSend).ok());
  Both replacement(way_, 0, 10'000, 50);
  ASSERT_TRUE(replacement.client->mode_of("server").ok());
  std::atomic<bool> passed = false;
  std::thread waits([&] {
    EXPECT_TRUE(other.tables.barrier(CommBarrier::kSend).ok());
    passed = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_FALSE(passed);
  const Status status = replacement.tables.barrier(CommBarrier::kSend);
  EXPECT_TRUE(status.ok()) << status.to_string();
  waits.join();
}

// A server that keeps the values that it may move, and does not give them back.
class KeepsValues final : public Handler {
 public:
  Status handle(const Request& request, Deadline /*deadline*/, ReplySink& reply) override {
    if (request.method == Method::kHello)
      put_answer(protocol::HelloAnswer{.mode = ServerMode::kAsync}, reply);
    for (const RequestItem& item : request.items) {
      seen.push_back(item.value == nullptr ? Floats() : numbers_in(*item.value));
      if (item.movable != nullptr) *item.movable = Value();
    }
    return Ok();
  }
  std::vector<Floats> seen;
};

// The same values are sent again where the answer was lost.
TEST(TableCalls, ARepeatHasTheValuesOfTheFirstCall) {
  const auto way = std::make_shared<LosingTransport>(std::make_shared<InprocTransport>());
  KeepsValues server;
  const auto listener = way->listen("server", server);
  ASSERT_TRUE(listener.ok());
  const auto client = std::make_shared<Client>(way, ClientOptions{});
  TableClient tables(std::make_shared<ClientCaller>(client, std::vector<std::string>{"server"}));
  way->lose(Method::kPush, [] {});
  const Floats numbers{1, 2, 3};
  const Status status = tables.push_dense(4, numbers);
  ASSERT_TRUE(status.ok()) << status.to_string();
  EXPECT_THAT(server.seen, ElementsAre(numbers, numbers));
}

TEST_F(TypedTables, WhoIsMissingAtABarrierIsNamed) {
  TestServer server(way_, sync_server(kTrainers), kTypedTablesStart, options_);
  Both alone(way_, 1, 300);
  const Status status = alone.tables.barrier(CommBarrier::kSend);
  EXPECT_EQ(status.code(), StatusCode::kDistributed);
  EXPECT_THAT(status.to_string(), HasSubstr("no arrival of trainer 0"));
}

TEST_F(TypedTables, ATableThatIsNotThereIsNamed) {
  Floats values(3);
  {
    TestServer server(way_, sync_server(kTrainers), kTypedTablesStart, options_);
    Both both(way_, 0, 1'000);
    EXPECT_THAT(both.tables.pull_dense(9, values).to_string(), HasSubstr("has no table 9"));
  }
  TestServer server(way_, sync_server(kTrainers), kTypedTablesStart);
  Both both(way_, 0, 1'000);
  const Status status = both.tables.pull_dense(kTable, values);
  EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
  EXPECT_THAT(status.to_string(), HasSubstr("has no typed tables: table 4 is unknown"));
}

}  // namespace
}  // namespace millrace::ps

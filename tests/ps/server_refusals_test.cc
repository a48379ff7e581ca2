// What servers refuse, and what they say then; how they go on where trainers are late.
#include <array>
#include <filesystem>
#include <mutex>

#include <gmock/gmock.h>

#include "io/params.h"
#include "ps/server/step_rules.h"
#include "ps/table/table_handler.h"
#include "tests/io/temp_folder.h"
#include "tests/ps/direct_server.h"
#include "tests/ps/server_fixture.h"

namespace millrace::ps {
namespace {

using ::millrace::testing::TempFolder;
using std::chrono::milliseconds;
using test::DirectServer;
using test::DirectTrainer;
using test::put_numbers;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Floats = std::vector<float>;

void fill_refusals(Scope& scope) {
  put_numbers<float>(scope, "w", DType::kFloat32, {8, 16});
  put_numbers<float>(scope, "rate", DType::kFloat32, {0.5});
}

// A server with one connected trainer.
struct OneTrainer {
  explicit OneTrainer(const std::string& text, const ServerOptions& options = {},
                      const std::function<void(Scope&)>& fill = fill_refusals)
      : server(text, options, fill) {
    server.serve();
    trainer.hello();
  }
  DirectServer server;
  DirectTrainer trainer{server, 0, 7};
};

TEST(ServerRefusals, CallsOfAnotherKindOfServer) {
  OneTrainer sync(sync_server(1));
  EXPECT_THAT(
      sync.trainer.call(protocol::Get{.kind = GetKind::kChangedRows, .names = {"w"}}).to_string(),
      HasSubstr("a synchronous server (server) does not track changed rows"));
  EXPECT_THAT(sync.trainer.call(protocol::Count{.counter = "w", .steps = 1}).to_string(),
              HasSubstr("a synchronous server (server) counts steps itself"));
  OneTrainer async(async_server(2));
  EXPECT_THAT(async.trainer.call(protocol::GoTo{.step = 0}).to_string(),
              HasSubstr("an asynchronous server (server) has no steps"));
  EXPECT_THAT(async.trainer.call(protocol::Loss{.trainer = 1, .incarnation = 8}).to_string(),
              HasSubstr("not one of an elastic synchronous job"));
  for (OneTrainer* const each : {&sync, &async}) {
    for (const Status& status :
         {each->trainer.call(protocol::Barrier{protocol::LeaveBarriers{}}),
          each->trainer.call(protocol::Checkpoint{protocol::CountLoaded{}})}) {
      EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
      EXPECT_THAT(status.to_string(), HasSubstr("this server (server) has no typed tables"));
    }
  }
}

TEST(ServerRefusals, WhatIsOutOfPhaseNamesTheStep) {
  OneTrainer one(sync_server(1));
  const Value grad = floats({2, 4});
  EXPECT_THAT(one.trainer.call(protocol::Send{.vars = {{"w@GRAD", &grad, nullptr}}}).to_string(),
              HasSubstr("trainer 0 sends gradients in step 0, expected its fetch barrier first"));
  EXPECT_THAT(one.trainer.call(protocol::SendBarrier{}).to_string(),
              HasSubstr("trainer 0 reached the send barrier in step 0, expected its fetch"));
  ASSERT_TRUE(one.trainer.fetch().ok());
  ASSERT_TRUE(one.trainer.send("w@GRAD", grad).ok());
  ASSERT_TRUE(one.trainer.fetch().ok());
  EXPECT_THAT(
      one.trainer.fetch().to_string(),
      HasSubstr("trainer 0 reached the fetch barrier in step 1, expected its send barrier"));
}

TEST(ServerRefusals, CallsForAnotherRunOfTheServer) {
  OneTrainer one(async_server(1));
  const uint64_t epoch = one.server.service().epoch();
  one.trainer.epoch = epoch;
  EXPECT_TRUE(one.trainer.call(protocol::GetNow{.names = {"w"}}).ok());
  one.trainer.epoch = epoch - 1;
  EXPECT_THAT(one.trainer.call(protocol::GetNow{.names = {"w"}}).to_string(),
              HasSubstr(fmt::format("is meant for epoch {} of this server, which is in epoch {}",
                                    epoch - 1, epoch)));
}

TEST(ServerRefusals, StepsThatTheServerCannotGoTo) {
  OneTrainer one(sync_server(2));
  EXPECT_THAT(one.trainer.call(protocol::GoTo{.step = 3}).to_string(),
              HasSubstr("trainer 0 wants to continue at step 3, but this server is at step 0"));
  DirectTrainer leaves(one.server, 1, 8);
  leaves.hello();
  for (DirectTrainer* const trainer : {&one.trainer, &leaves}) ASSERT_TRUE(trainer->fetch().ok());
  ASSERT_TRUE(one.trainer.send("w@GRAD.trainer_0", floats({2, 4})).ok());
  ASSERT_TRUE(leaves.send("w@GRAD.trainer_1", floats({2, 4})).ok());
  for (DirectTrainer* const trainer : {&one.trainer, &leaves}) ASSERT_TRUE(trainer->fetch().ok());
  EXPECT_THAT(one.trainer.call(protocol::GoTo{.step = 0, .oldest = "other"}).to_string(),
              HasSubstr("takes no snapshots, so it cannot go back to step 0"));
  ASSERT_TRUE(leaves.call(protocol::Complete{}).ok());
  EXPECT_THAT(one.trainer.call(protocol::GoTo{.step = 0, .oldest = "other"}).to_string(),
              HasSubstr("cannot go back to step 0: trainer 1 has left"));
  // it goes on from where it is
  Floats seen;
  ASSERT_TRUE(one.trainer.send("w@GRAD.trainer_0", floats({2, 4})).ok());
  ASSERT_TRUE(one.trainer.fetch(&seen).ok());
  EXPECT_THAT(seen, ElementsAre(6, 12));
}

// A trainer that joins would continue with updates that this server has and another one has lost.
TEST(ServerRefusals, AnElasticServerThatCannotGoBackEnds) {
  ServerOptions options;
  options.elastic = true;
  OneTrainer one(sync_server(1), options);
  ASSERT_TRUE(one.trainer.fetch().ok());
  ASSERT_TRUE(one.trainer.send("w@GRAD", floats({2, 4})).ok());
  ASSERT_TRUE(one.trainer.fetch().ok());
  for (int call = 0; call < 2; ++call)
    EXPECT_THAT(one.trainer.call(protocol::GoTo{.step = 0, .oldest = "other", .oldest_epoch = 1})
                    .to_string(),
                HasSubstr("takes no snapshots, so it cannot go back to step 0"));
  DirectTrainer joins(one.server, 0, 9);
  EXPECT_THAT(joins.call(protocol::Hello{}).to_string(), HasSubstr("cannot go back to step 0"));
}

// Trainer 0 was lost in step 3, which was applied without it; then the server was started again.
TEST(ServerRefusals, GradientsOfAStepThatWasAppliedWithoutTheTrainer) {
  Trainers trainers(2, "", true, std::chrono::steady_clock::now());
  StepCounts counts;
  StepRules rules(trainers, counts, true);
  rules.restore(4);
  load_calls({.applied = 4,
              .trainers = {{.incarnation = 7, .sent = 3, .fetched = 4, .low = 0, .done = {}},
                           {.incarnation = 8, .sent = 4, .fetched = 5, .low = 0, .done = {}}}},
             trainers);
  EXPECT_EQ(rules.arrive(0).message(),
            "trainer 0 reached the send barrier in step 3, which was applied without it: it was "
            "lost");
  EXPECT_TRUE(rules.arrive(1).ok());
  rules.place(0, 5);  // another process in its place
  EXPECT_EQ(rules.arrive(0).message(),
            "trainer 0 reached the send barrier in step 4, expected its fetch barrier first");
}

TEST(ServerRefusals, StepsWithoutASnapshotAreNamedWithThoseThatHaveOne) {
  const TempFolder disk;
  ServerOptions options;
  options.snapshot_root = disk.path();
  options.snapshot_every = 1;
  options.snapshot_durable = true;
  OneTrainer one(sync_server(1), options);
  ASSERT_TRUE(one.trainer.fetch().ok());
  for (int step = 0; step < 5; ++step) {
    ASSERT_TRUE(one.trainer.send("w@GRAD", floats({2, 4})).ok());
    ASSERT_TRUE(one.trainer.fetch().ok());
  }
  EXPECT_THAT(
      one.trainer.call(protocol::GoTo{.step = 1, .oldest = "other", .oldest_epoch = 1}).to_string(),
      HasSubstr("has no snapshot of step 1; it has 5, 4, 3"));
  ASSERT_TRUE(
      one.trainer
          .call(protocol::GoTo{
              .step = 3, .settled = one.trainer.sequence, .oldest = "other", .oldest_epoch = 1})
          .ok());
  Floats seen;
  ASSERT_TRUE(one.trainer.fetch(&seen).ok());
  EXPECT_THAT(seen, ElementsAre(5, 10));
}

TEST(ServerRefusals, AVarThatTwoBlocksMerge) {
  std::string text = sync_server(1);
  text.replace(text.find("[^1]"), 4, "[^1, ^2]");
  text += R"(
block 2 parent=0 {
  sum X=w@GRAD.trainer_0 -> Out=w@GRAD {op_role: 0}
}
)";
  const DirectServer server(text, {}, fill_refusals);
  EXPECT_EQ(server.status().code(), StatusCode::kInvalidProgram);
  EXPECT_THAT(server.status().to_string(),
              HasSubstr("block 2 merges 'w@GRAD.trainer_0', which another block also merges"));
}

TEST(ServerRefusals, LookUpsThatNameNoRows) {
  OneTrainer one(R"(# millrace program 1

block 0 {
  persist table: f32(2, 1)
  persist unset: f32(2, 1)

  listen_and_serv X=[] {
      optimize_blocks: [^1], endpoint: "server", pserver_id: 0, Fanin: 1, distributed_mode: 1
  }
}

block 1 parent=0 {
}
)",
                 {}, [](Scope& scope) {
                   put_numbers<float>(scope, "table", DType::kFloat32, {8, 16}, {2, 1});
                 });
  Value ids;
  ASSERT_TRUE(ids.as<Tensor>().resize(DType::kInt64, {1}).ok());
  *ids.as<Tensor>().data<int64_t>() = 1;
  const auto look_up = [&](const char* table, const Value* value) {
    Reply reply;
    return one.trainer
        .call(protocol::Prefetch{.table = table, .ids = {{"ids", value, nullptr}}}, reply)
        .to_string();
  };
  EXPECT_EQ(look_up("table", &ids), "ok");
  const Value numbers = floats({1});
  EXPECT_THAT(look_up("table", &numbers), HasSubstr("ids must be i64, found f32 [1]"));
  EXPECT_THAT(look_up("unset", &ids), HasSubstr("a table must have rows, found"));
  EXPECT_THAT(look_up("other", &ids), HasSubstr("has no var 'other'"));
  const Value none;
  EXPECT_THAT(look_up("table", &none), HasSubstr("'ids' has no ids to look up"));
}

// Without rounds, the copy of one trainer replaces the parameter.
TEST(FederatedRefusals, ATrainerSendsItsOwnCopy) {
  OneTrainer one(R"(# millrace program 1

block 0 {
  persist w: f32(2)

  fl_listen_and_serv X=w {
      optimize_blocks: [^1], endpoint: "server", Fanin: 2, sync_mode: false
  }
}

block 1 parent=0 {
}
)");
  const Value copy = floats({1, 2});
  const auto send = [&](const char* name) {
    return one.trainer.call(protocol::Send{.vars = {{name, &copy, nullptr}}});
  };
  ASSERT_TRUE(send("w.opti.trainer_0").ok());
  EXPECT_THAT(one.trainer.floats_of(protocol::GetNow{.names = {"w"}}), ElementsAre(1, 2));
  for (const char* const name : {"w.opti.trainer_1", "v.opti.trainer_0"}) {
    EXPECT_THAT(send(name).to_string(),
                HasSubstr(fmt::format("does not accept '{}' from trainer 0", name)));
  }
}

// The mean over those who came is computed for gradients of f64, too, and for no integers.
TEST(ServerRefusals, MeansOfIntegers) {
  for (const std::string type : {"f64", "i64"}) {
    std::string text = sync_server(2);
    for (size_t at = 0; (at = text.find("f32(", at)) != std::string::npos; ++at)
      text.replace(at, 3, type);
    const bool is_float = type == "f64";
    const size_t at = text.find("  sgd ");
    if (!is_float) text.replace(at, text.find('\n', at) - at, "  assign X=w@GRAD -> Out=w");
    OneTrainer one(text, {}, [&](Scope& scope) {
      if (!is_float) return put_numbers<int64_t>(scope, "w", DType::kInt64, {8, 16});
      put_numbers<double>(scope, "w", DType::kFloat64, {8, 16});
      put_numbers<double>(scope, "rate", DType::kFloat64, {0.5});
    });
    DirectTrainer leaves(one.server, 1, 8);
    leaves.hello();
    ASSERT_TRUE(leaves.call(protocol::Complete{}).ok());
    ASSERT_TRUE(one.trainer.fetch().ok());
    Value grad;
    auto& tensor = grad.as<Tensor>();
    ASSERT_TRUE(tensor.resize(is_float ? DType::kFloat64 : DType::kInt64, {2}).ok());
    if (is_float) {
      std::copy_n(std::array{2.0, 4.0}.begin(), 2, tensor.data<double>());
    } else {
      std::copy_n(std::array<int64_t, 2>{2, 4}.begin(), 2, tensor.data<int64_t>());
    }
    ASSERT_TRUE(one.trainer.send("w@GRAD.trainer_0", grad).ok());
    Reply reply;
    const Status status = one.trainer.call(protocol::FetchBarrier{.names = {"w"}}, reply);
    if (is_float) {
      ASSERT_TRUE(status.ok()) << status.to_string();
      EXPECT_THAT(reply.values.at(0).get_if<Tensor>()->values<double>(), ElementsAre(7, 14));
    } else {
      EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
      EXPECT_THAT(
          status.to_string(),
          HasSubstr("the mean over fewer than all trainers is not implemented for i64 [2]"));
    }
  }
}

// ---- late trainers

TEST(LateTrainers, AreNamedInTheLog) {
  std::mutex mutex;
  std::string log;
  ServerOptions options;
  options.report_interval = milliseconds(10);
  options.start_timeout = milliseconds(1000);
  options.log = [&](const std::string& line) {
    const std::lock_guard lock(mutex);
    log += line + "\n";
  };
  TestServer server(std::make_shared<InprocTransport>(), sync_server(2), {}, options);
  EXPECT_THAT(server.end().to_string(),
              HasSubstr("trainer 0 (not connected yet) is lost: no call for 1 s"));
  EXPECT_THAT(log, HasSubstr("this server waits for trainer 0 (not connected yet), trainer 1 (not "
                             "connected yet)\n"));
}

TEST(LateTrainers, AreShownByTheStatus) {
  OneTrainer one(sync_server(2));
  one.trainer.step = 3;
  ASSERT_TRUE(one.trainer.fetch().ok());
  Reply reply;
  ASSERT_TRUE(one.trainer.call(protocol::Watch{}, reply).ok());
  const std::string json = protocol::watch_answer(std::move(reply)).json;
  EXPECT_THAT(
      json,
      AllOf(HasSubstr(R"({"endpoint":"server","job":"","epoch":)"),
            HasSubstr(R"("mode":"sync","step":0,"vars":5,"trainers":[)"),
            HasSubstr(R"([{"trainer":0,"state":"live","step":3,"sent":0,"fetched":1,"silent_s":)"),
            HasSubstr(R"("last":"fetch-barrier"},{"trainer":1,"state":"absent","step":-1,"sent":0,)"
                      R"("fetched":0,)")));
}

// ---- saving a part of a distributed table

constexpr const char* kSaving = R"(# millrace program 1

block 0 {
  persist part: selected_rows f32(9, 1)
  persist whole: f32(2)
  persist number: f32()

  listen_and_serv X=[] {
      optimize_blocks: [^1], endpoint: "server", pserver_id: 2, Fanin: 1, distributed_mode: 1,
      checkpint_block_id: 2
  }
}

block 1 parent=0 {
}

block 2 parent=0 {
  save X=part {file_path: "none", overwrite: true}
}
)";

Value part_rows(const Floats& numbers) {
  Value value;
  auto& rows = value.as<SelectedRows>();
  rows.height = 9;
  rows.rows = {2, 5, 8};
  EXPECT_TRUE(rows.value.resize(DType::kFloat32, {3, 1}).ok());
  std::copy(numbers.begin(), numbers.end(), rows.value.data<float>());
  return value;
}

TEST(SavedRows, AreThoseOfTheCheckpointBlockThatChanged) {
  const TempFolder disk;
  ServerOptions options;
  options.files_root = disk.path();
  OneTrainer one(kSaving, options, [](Scope& scope) {
    scope.root().local("part") = part_rows({1, 2, 3});
    put_numbers<float>(scope, "whole", DType::kFloat32, {1, 2});
  });
  const auto save = [&](const char* folder) {
    const Status status = one.trainer.call(protocol::Checkpoint{
        protocol::SaveVar{.table = {}, .folder = folder, .rows = RowsToSave::kChanged}});
    EXPECT_TRUE(status.ok()) << status.to_string();
    const std::string file = std::string(folder) + "/part_2";
    auto values = io::load_separate(disk.path(), {{file, VarKind::kSelectedRows, {}, {}}});
    EXPECT_TRUE(values.ok()) << values.status().to_string();
    return values.ok() ? std::move((*values)[file]) : Value();
  };
  const Value all = save("first");
  ASSERT_NE(all.get_if<SelectedRows>(), nullptr);
  EXPECT_EQ(all.get_if<SelectedRows>()->height, 9);
  EXPECT_THAT(all.get_if<SelectedRows>()->rows, ElementsAre(2, 5, 8));
  EXPECT_THAT(all.get_if<SelectedRows>()->value.values<float>(), ElementsAre(1, 2, 3));
  const Value changed = part_rows({1, 7, 3});
  ASSERT_TRUE(
      one.trainer
          .call(protocol::Send{.kind = SendKind::kValues, .vars = {{"part", &changed, nullptr}}})
          .ok());
  const Value some = save("second");
  EXPECT_EQ(some.get_if<SelectedRows>()->height, 9);
  EXPECT_THAT(some.get_if<SelectedRows>()->rows, ElementsAre(5));
  EXPECT_THAT(some.get_if<SelectedRows>()->value.values<float>(), ElementsAre(7));
  EXPECT_THAT(save("third").get_if<SelectedRows>()->rows, IsEmpty());
  EXPECT_THAT(one.trainer
                  .call(protocol::Checkpoint{protocol::SaveVar{
                      .table = "number", .folder = "x", .rows = RowsToSave::kChanged}})
                  .to_string(),
              HasSubstr("'number' is not a table of rows"));
}

// What a failed request would have saved is still missing in the files.
TEST(SavedRows, OfAFailedRequestAreInTheNextFile) {
  const TempFolder disk;
  ServerOptions options;
  options.files_root = disk.path();
  OneTrainer one(kSaving, options, [](Scope& scope) {
    scope.root().local("part") = part_rows({1, 2, 3});
  });
  const auto save = [&] {
    return one.trainer.call(protocol::Checkpoint{
        protocol::SaveVar{.table = {}, .folder = "to", .rows = RowsToSave::kChanged}});
  };
  std::filesystem::create_directories(disk.path() + "/to/part_2/in_the_way");
  EXPECT_FALSE(save().ok());
  std::filesystem::remove_all(disk.path() + "/to");
  const Status saved = save();
  ASSERT_TRUE(saved.ok()) << saved.to_string();
  auto values = io::load_separate(disk.path(), {{"to/part_2", VarKind::kSelectedRows, {}, {}}});
  ASSERT_TRUE(values.ok()) << values.status().to_string();
  EXPECT_THAT((*values)["to/part_2"].get_if<SelectedRows>()->rows, ElementsAre(2, 5, 8));
}

TEST(SavedRows, NeedAFolder) {
  OneTrainer one(kSaving, {}, [](Scope& scope) {
    scope.root().local("part") = part_rows({1, 2, 3});
  });
  EXPECT_THAT(one.trainer.call(protocol::Checkpoint{protocol::SaveVar{.table = {}, .folder = "x"}})
                  .to_string(),
              AllOf(HasSubstr("'part' cannot be saved: no folder was allowed"),
                    HasSubstr("pserver --allow-dir DIR lets it write files below a folder")));
}

// ---- typed tables in snapshots

TEST(TablesInSnapshots, ComeBackAndMustFit) {
  const TempFolder disk;
  const auto handler_of = [](int dim) {
    auto handler = std::make_unique<TableHandler>(1);
    SparseTableOptions options;
    options.table_id = 3;
    options.accessor.embedx_dim = dim;
    options.accessor.embedx_rule.kind = SparseRuleOptions::Kind::kNaive;
    EXPECT_TRUE(handler->add_sparse(*SparseTable::create(options), 0).ok());
    return handler;
  };
  const std::vector<int64_t> keys{5, -9};
  ServerOptions options;
  options.snapshot_root = disk.path();
  const auto saved = handler_of(2);
  auto& table = dynamic_cast<SparseTable&>(*saved->find(3));
  ASSERT_TRUE(table.set(keys, Floats{1, 2, 3, 4}.data()).ok());
  options.tables = saved.get();
  {
    OneTrainer one(sync_server(1), options);
    EXPECT_TRUE(one.server.end(true).ok());
  }
  const auto loaded = handler_of(2);
  options.tables = loaded.get();
  {
    const DirectServer server(sync_server(1), options, fill_refusals);
    ASSERT_TRUE(server.status().ok()) << server.status().to_string();
  }
  Floats rows(4);
  auto& again = dynamic_cast<SparseTable&>(*loaded->find(3));
  EXPECT_EQ(again.size(), 2);
  ASSERT_TRUE(again.pull(keys, rows.data()).ok());
  EXPECT_THAT(rows, ElementsAre(1, 2, 3, 4));
  const auto wide = handler_of(3);
  options.tables = wide.get();
  const DirectServer refused(sync_server(1), options, fill_refusals);
  EXPECT_THAT(refused.status().to_string(),
              AllOf(HasSubstr("state 'rows' of a table"), HasSubstr("in typed table 3"),
                    HasSubstr(disk / "server-0")));
}

}  // namespace
}  // namespace millrace::ps

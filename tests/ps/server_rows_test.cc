// Servers of sparse parameters: rows that trainers push, look up, and get since their last get; the
// rows of a distributed table that a server loads.
#include <gmock/gmock.h>

#include "tests/ps/direct_server.h"
#include "tests/ps/server_fixture.h"
#include "tests/ps/wire_values.h"

namespace millrace::ps {
namespace {

using test::DirectServer;
using test::DirectTrainer;
using test::put_numbers;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Floats = std::vector<float>;

// A server of a table of four rows, sgd with rate 1. `mode` is distributed_mode.
std::string rows_server(int mode, const std::string& rest = "") {
  return fmt::format(R"(# millrace program 1

block 0 {{
  persist table: f32(4, 2)
  persist table@GRAD: selected_rows f32(4, 2)
  persist rate: f32(1)
  var ids: i64(-1)
  var rows: f32(-1, 2)

  listen_and_serv X=table@GRAD {{
      optimize_blocks: [^1], endpoint: "server", pserver_id: 0, Fanin: 2, distributed_mode: {},
      grad_to_block_id: ["table@GRAD:1"], sparse_grad_to_param: ["table@GRAD:table"],
      prefetch_var_name_to_block_id: ["ids:2"]
  }}
}}

block 1 parent=0 {{
  sgd Param=table Grad=table@GRAD LearningRate=rate -> ParamOut=table {{op_role: 2}}
}}

block 2 parent=0 {{
  lookup_table_v2 Ids=ids W=table -> Out=rows {{padding_idx: -1l, op_role: 0}}
}}
{})",
                     mode, rest);
}

void fill_rows(Scope& scope) {
  put_numbers<float>(scope, "table", DType::kFloat32, {0, 1, 10, 11, 20, 21, 30, 31}, {4, 2});
  put_numbers<float>(scope, "rate", DType::kFloat32, {1});
}

Value rows_of_floats(std::vector<int64_t> numbers, const Floats& values, int64_t width = 2) {
  Value value;
  auto& rows = value.as<SelectedRows>();
  rows.height = 4;
  EXPECT_TRUE(
      rows.value.resize(DType::kFloat32, {static_cast<int64_t>(numbers.size()), width}).ok());
  std::copy(values.begin(), values.end(), rows.value.data<float>());
  rows.rows = std::move(numbers);
  return value;
}

Value ids_value(const std::vector<int64_t>& numbers) {
  Value value;
  auto& tensor = value.as<Tensor>();
  EXPECT_TRUE(tensor.resize(DType::kInt64, {static_cast<int64_t>(numbers.size())}).ok());
  std::copy(numbers.begin(), numbers.end(), tensor.data<int64_t>());
  return value;
}

Status push_rows(DirectTrainer& trainer, const Value& value, const char* name = "table@GRAD") {
  return trainer.call(protocol::Send{.vars = {{name, &value, nullptr}}});
}

TEST(ServerRows, AGeoServerReturnsTheRowsThatChangedSinceTheLastGet) {
  DirectServer server(rows_server(3), {}, fill_rows);
  server.serve();
  DirectTrainer first(server, 0, 7);
  DirectTrainer second(server, 1, 8);
  first.hello();
  second.hello();
  ASSERT_TRUE(push_rows(first, rows_of_floats({3, 1}, {5, 6, 1, 2})).ok());
  const protocol::Get changed{.kind = GetKind::kChangedRows, .names = {"table"}};
  Reply reply;
  Status status = second.call(changed, reply);
  ASSERT_TRUE(status.ok()) << status.to_string();
  const auto* rows = reply.values.at(0).get_if<SelectedRows>();
  ASSERT_NE(rows, nullptr);
  EXPECT_EQ(rows->height, 4);
  EXPECT_THAT(rows->rows, ElementsAre(1, 3));
  EXPECT_THAT(rows->value.dims(), ElementsAre(2, 2));
  EXPECT_THAT(rows->value.values<float>(), ElementsAre(10 - 1, 11 - 2, 30 - 5, 31 - 6));
  Reply again;
  ASSERT_TRUE(second.call(changed, again).ok());
  rows = again.values.at(0).get_if<SelectedRows>();
  EXPECT_THAT(rows->rows, IsEmpty());
  EXPECT_THAT(rows->value.dims(), ElementsAre(0, 2));
  // a get of the whole table has them all
  EXPECT_THAT(first.floats_of(protocol::Get{.names = {"table"}}),
              ElementsAre(0, 1, 9, 9, 20, 21, 25, 25));
  Reply none;
  ASSERT_TRUE(first.call(changed, none).ok());
  EXPECT_THAT(none.values.at(0).get_if<SelectedRows>()->rows, IsEmpty());
}

TEST(ServerRows, RowsMustFitTheTable) {
  DirectServer server(rows_server(1), {}, fill_rows);
  server.serve();
  DirectTrainer trainer(server, 0, 7);
  trainer.hello();
  for (const int64_t width : {1, 3}) {
    const Status status = push_rows(trainer, rows_of_floats({0}, Floats(3, 1.0F), width));
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.to_string(), HasSubstr("expected rows of 2 elements"));
  }
  EXPECT_THAT(push_rows(trainer, rows_of_floats({4}, {1, 1})).to_string(),
              HasSubstr("row 4 is out of range"));
  Value uneven = rows_of_floats({0, 1}, {1, 1, 1, 1});
  uneven.as<SelectedRows>().rows = {0};
  EXPECT_THAT(push_rows(trainer, uneven).to_string(), HasSubstr("expected values of 1 rows"));
  // no row has no width
  for (const int64_t width : {1, 2}) {
    const Status empty = push_rows(trainer, rows_of_floats({}, {}, width));
    EXPECT_TRUE(empty.ok()) << empty.to_string();
  }
  ASSERT_TRUE(push_rows(trainer, rows_of_floats({0}, {1, 1})).ok());
  EXPECT_THAT(trainer.floats_of(protocol::Get{.names = {"table"}}),
              ElementsAre(-1, 0, 10, 11, 20, 21, 30, 31));
}

TEST(ServerRows, ALookUpNamesABlockOrATable) {
  DirectServer server(rows_server(1), {}, fill_rows);
  server.serve();
  DirectTrainer trainer(server, 0, 7);
  trainer.hello();
  const Value ids = ids_value({2, 0, 2});
  for (const bool by_block : {true, false}) {
    // twice: with other ids, too, so that nothing of the first lookup is left
    for (const std::vector<int64_t>& wanted : {std::vector<int64_t>{2, 0, 2}, {3, 0}}) {
      const Value value = ids_value(wanted);
      Floats expected;
      for (const int64_t id : wanted) {
        expected.push_back(static_cast<float>(10 * id));
        expected.push_back(static_cast<float>(10 * id + 1));
      }
      protocol::Prefetch look_up{.table = {}, .ids = {{"ids", &value, nullptr}}};
      if (!by_block) look_up.table = "table";
      EXPECT_THAT(trainer.floats_of(look_up), ElementsAreArray(expected)) << by_block;
    }
  }
  for (const int64_t id : {-1, 4}) {
    const Value value = ids_value({0, id});
    Reply reply;
    const Status status = trainer.call(
        protocol::Prefetch{.table = "table", .ids = {{"ids", &value, nullptr}}}, reply);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.to_string(), HasSubstr(fmt::format("row {} is not in the table", id)));
  }
  Reply reply;
  EXPECT_THAT(
      trainer.call(protocol::Prefetch{.table = {}, .ids = {{"others", &ids, nullptr}}}, reply)
          .to_string(),
      HasSubstr("no block that looks up 'others'"));
}

// A trainer that has left adds no rows to a step, although its last ones are still there.
TEST(ServerRows, AStepWithoutATrainerHasNoneOfItsRows) {
  DirectServer server(R"(# millrace program 1

block 0 {
  persist w: f32(4, 2)
  persist w@GRAD: selected_rows f32(4, 2)
  persist rate: f32(1)
  var w@GRAD.trainer_0: selected_rows f32(4, 2)
  var w@GRAD.trainer_1: selected_rows f32(4, 2)

  listen_and_serv X=w@GRAD.trainer_0, w@GRAD.trainer_1 {
      optimize_blocks: [^1], endpoint: "server", pserver_id: 0, Fanin: 2, distributed_mode: 0,
      grad_to_block_id: ["w@GRAD:1"], sparse_grad_to_param: ["w@GRAD:w"]
  }
}

block 1 parent=0 {
  sum X=w@GRAD.trainer_0, w@GRAD.trainer_1 -> Out=w@GRAD {op_role: 0}
  scale X=w@GRAD -> Out=w@GRAD {scale: 0.5, op_role: 0}
  sgd Param=w Grad=w@GRAD LearningRate=rate -> ParamOut=w {op_role: 2}
}
)",
                      {}, [](Scope& scope) {
                        put_numbers<float>(scope, "w", DType::kFloat32, Floats(8, 10), {4, 2});
                        put_numbers<float>(scope, "rate", DType::kFloat32, {1});
                      });
  server.serve();
  DirectTrainer stays(server, 0, 7);
  DirectTrainer leaves(server, 1, 8);
  Floats seen;
  for (DirectTrainer* const trainer : {&stays, &leaves}) {
    trainer->hello();
    ASSERT_TRUE(trainer->fetch().ok());
  }
  ASSERT_TRUE(stays.send("w@GRAD.trainer_0", rows_of_floats({0, 2}, {2, 2, 2, 2})).ok());
  ASSERT_TRUE(leaves.send("w@GRAD.trainer_1", rows_of_floats({2, 3}, {4, 4, 4, 4})).ok());
  ASSERT_TRUE(stays.fetch(&seen).ok());
  EXPECT_THAT(seen, ElementsAre(9, 9, 10, 10, 7, 7, 8, 8));
  ASSERT_TRUE(leaves.fetch().ok());
  ASSERT_TRUE(leaves.call(protocol::Complete{}).ok());
  ASSERT_TRUE(stays.send("w@GRAD.trainer_0", rows_of_floats({1, 2}, {3, 3, 3, 3})).ok());
  const Status status = stays.fetch(&seen);
  ASSERT_TRUE(status.ok()) << status.to_string();
  EXPECT_THAT(seen, ElementsAre(9, 9, 7, 7, 4, 4, 8, 8));
}

// ---- loading a server's part of values

transpiler::SlicesFile slices_of_two() {
  transpiler::SlicesFile slices;
  slices.properties.is_distributed = true;
  slices.properties.endpoints = {"server", "other"};
  slices.properties.distributed_lookup_table = "table";
  return slices;
}

std::unique_ptr<Program> loading_program(const std::string& pserver_id) {
  auto program = read_program_bytes(
      R"(# millrace program 1

block 0 {
  persist table: selected_rows f32(5, 2)
  persist steps: i64(2)
  var seen: f32(1)

  listen_and_serv X=[] {
      optimize_blocks: [^1], endpoint: "server", Fanin: 1, distributed_mode: 1)" +
          pserver_id + R"(
  }
}

block 1 parent=0 {
}
)",
      "server", {});
  EXPECT_TRUE(program.ok()) << program.status().to_string();
  return program.ok() ? *std::move(program) : nullptr;
}

TEST(LoadSlices, AServerTakesItsRowsOfTheTableAndWholeVars) {
  std::map<std::string, Value> whole;
  auto& table = whole["table"].as<Tensor>();
  ASSERT_TRUE(table.resize(DType::kFloat32, {5, 2}).ok());
  for (int64_t i = 0; i < 10; ++i) table.data<float>()[i] = static_cast<float>(i);
  whole["steps"] = ids_value({3, 4});
  whole["seen"] = floats({1});
  whole["unknown"] = floats({1});
  for (const int server : {0, 1}) {
    const auto program = loading_program(fmt::format(", pserver_id: {}", server));
    Scope scope;
    const Status status = load_slices(slices_of_two(), *program, whole, scope);
    ASSERT_TRUE(status.ok()) << status.to_string();
    const auto* const rows = scope.find("table")->get_if<SelectedRows>();
    ASSERT_NE(rows, nullptr);
    EXPECT_EQ(rows->height, 5);
    EXPECT_EQ(rows->rows,
              server == 0 ? (std::vector<int64_t>{0, 2, 4}) : (std::vector<int64_t>{1, 3}));
    EXPECT_THAT(rows->value.values<float>(),
                ElementsAreArray(server == 0 ? Floats{0, 1, 4, 5, 8, 9} : Floats{2, 3, 6, 7}));
    const Value* const steps = scope.find("steps");
    ASSERT_NE(steps, nullptr);
    ASSERT_NE(steps->get_if<Tensor>(), nullptr);
    EXPECT_THAT(steps->get_if<Tensor>()->values<int64_t>(), ElementsAre(3, 4));
    EXPECT_EQ(scope.find("seen"), nullptr) << "not persistable";
    EXPECT_EQ(scope.find("unknown"), nullptr);
  }
  whole["steps"] = ids_value({3});
  Scope scope;
  EXPECT_THAT(load_slices(slices_of_two(), *loading_program(""), whole, scope).to_string(),
              HasSubstr("'steps': expected i64 [2], found i64 [1]"));
}

// Server 1 of 2 of a table of 5 rows, which it updates.
std::unique_ptr<Program> updating_program() {
  auto program = read_program_bytes(
      R"(# millrace program 1

block 0 {
  persist table: selected_rows f32(3, 2)
  persist table@GRAD: selected_rows f32(5, 2)
  persist lr: f32(1)

  listen_and_serv X=[] {
      optimize_blocks: [^1], endpoint: "server", Fanin: 1, distributed_mode: 1, pserver_id: 1
  }
}

block 1 parent=0 {
  sgd Param=table Grad=table@GRAD LearningRate=lr -> ParamOut=table
}
)",
      "server", {});
  EXPECT_TRUE(program.ok()) << program.status().to_string();
  return program.ok() ? *std::move(program) : nullptr;
}

TEST(LoadSlices, RowsOfTheTableGetTheNumbersOfTheirServer) {
  for (const int server : {-1, 0, 1}) {  // -1: the program does not say it
    const auto program = loading_program(server < 0 ? "" : fmt::format(", pserver_id: {}", server));
    Scope scope;
    auto& rows = scope.local("table").as<SelectedRows>();
    ASSERT_TRUE(rows.value.resize(DType::kFloat32, {3, 2}).ok());
    ASSERT_TRUE(number_table_rows(slices_of_two(), *program, scope).ok());
    EXPECT_EQ(rows.height, 6);
    EXPECT_EQ(rows.rows,
              server == 1 ? (std::vector<int64_t>{1, 3, 5}) : (std::vector<int64_t>{0, 2, 4}));
  }
  // the gradient has as many rows as the whole table
  const auto updated = updating_program();
  Scope odd;
  auto& rows = odd.local("table").as<SelectedRows>();
  ASSERT_TRUE(rows.value.resize(DType::kFloat32, {3, 2}).ok());
  ASSERT_TRUE(number_table_rows(slices_of_two(), *updated, odd).ok());
  EXPECT_EQ(rows.height, 5);
  EXPECT_EQ(rows.rows, (std::vector<int64_t>{1, 3}));
  EXPECT_EQ(rows.value.dim(0), 2);
  std::map<std::string, Value> whole;
  ASSERT_TRUE(whole["table"].as<Tensor>().resize(DType::kFloat32, {6, 2}).ok());
  EXPECT_THAT(load_slices(slices_of_two(), *updated, whole, odd).to_string(),
              HasSubstr("'table': expected a table of 5 rows of f32 [2], found f32 [6, 2]"));
  Scope scope;
  scope.local("table");
  EXPECT_TRUE(number_table_rows({}, *loading_program(""), scope).ok()) << "no such table";
}

}  // namespace
}  // namespace millrace::ps

#include "executor/executor.h"

#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "executor/check_nan.h"
#include "executor/feed_targets.h"
#include "executor/standard_runtime.h"
#include "executor/trace.h"
#include "framework/tensor/limit.h"
#include "tests/executor/values.h"

namespace millrace::executor {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// y = 2 x + 1, z = 3 y
std::unique_ptr<Program> two_scales() {
  auto program = Program::create();
  Block& block = program->root();
  for (const char* const name : {"x", "y", "z"})
    block.declare(name, VarSpec::tensor(DType::kFloat32, {-1, 2}));
  block.append_op("scale")
      .set_input("X", "x")
      .set_output("Out", "y")
      .set_float("scale", 2)
      .set_float("bias", 1);
  block.append_op("scale").set_input("X", "y").set_output("Out", "z").set_float("scale", 3);
  return program;
}

class ExecutorTest : public ::testing::Test {
 protected:
  std::unique_ptr<PreparedProgram> prepare(const Program& program, bool optimize = true) {
    auto prepared = Executor(runtime_, {.optimize = optimize}).prepare(program, scope_);
    EXPECT_TRUE(prepared.ok()) << prepared.status().to_string();
    return std::move(prepared).value();
  }

  std::shared_ptr<const Runtime> runtime_ = standard_runtime();
  Scope scope_;
};

TEST_F(ExecutorTest, RunsOpsInOrderAndFetches) {
  const auto prepared = prepare(*two_scales());
  NamedValues feeds;
  feeds["x"] = tensor_value({1, 2}, {1, 2});
  std::vector<Value> results;
  const Status status = prepared->run(feeds, {"z", "y", "z"}, results);
  ASSERT_TRUE(status.ok()) << status.to_string();
  EXPECT_THAT(floats(results[0]), ElementsAre(9, 15));
  EXPECT_THAT(floats(results[1]), ElementsAre(3, 5));
  EXPECT_THAT(floats(results[2]), ElementsAre(9, 15));
}

TEST_F(ExecutorTest, FollowsTheShapeOfTheFeed) {
  const auto prepared = prepare(*two_scales());
  std::vector<Value> results;
  for (const int64_t rows : {3, 1, 5}) {
    NamedValues feeds;
    feeds["x"] = tensor_value({rows, 2}, std::vector<float>(static_cast<size_t>(rows) * 2, 1));
    ASSERT_TRUE(prepared->run(feeds, {"z"}, results).ok());
    EXPECT_EQ(results[0].get_if<Tensor>()->dim(0), rows);
  }
}

TEST_F(ExecutorTest, HandsLodOn) {
  const auto prepared = prepare(*two_scales());
  NamedValues feeds;
  feeds["x"] = tensor_value({3, 2}, {1, 2, 3, 4, 5, 6}, Lod({{0, 1, 3}}));
  std::vector<Value> results;
  ASSERT_TRUE(prepared->run(feeds, {"z"}, results).ok());
  EXPECT_EQ(results[0].get_if<Tensor>()->lod(), Lod({{0, 1, 3}}));
}

TEST_F(ExecutorTest, SaysWhichInputHoldsNoValue) {
  const auto prepared = prepare(*two_scales(), false);
  std::vector<Value> results;
  const Status status = prepared->run({}, {"z"}, results);
  EXPECT_EQ(status.code(), StatusCode::kExecution);
  EXPECT_THAT(status.to_string(),
              HasSubstr("block 0, op 0 (scale), X[0] 'x': the input holds no value"));
}

// x -> feed, y = x * w, with names of older releases: w is not marked as a parameter
std::unique_ptr<Program> fed_product() {
  auto program = Program::create();
  Block& block = program->root();
  VarSpec holder;
  holder.kind = VarKind::kFeedMinibatch;
  holder.persistable = true;
  block.declare("feed", holder);
  for (const char* const name : {"x", "y"})
    block.declare(name, VarSpec::tensor(DType::kFloat32, {-1, 2}));
  VarSpec weight = VarSpec::tensor(DType::kFloat32, {2, 2});
  weight.persistable = true;
  block.declare("w", weight);
  block.append_op("feed").set_input("X", "feed").set_output("Out", "x").set_int("col", 0);
  block.append_op("mul").set_input("X", "x").set_input("Y", "w").set_output("Out", "y");
  return program;
}

TEST_F(ExecutorTest, NamesTheFeedThatIsMissing) {
  const auto prepared = prepare(*fed_product());
  scope_.local("w") = tensor_value({2, 2}, {1, 0, 0, 1});
  std::vector<Value> results;
  EXPECT_THAT(
      prepared->run({}, {"y"}, results).to_string(),
      HasSubstr("block 0, op 0 (feed), Out[0] 'x': the program feeds this var, but no value "
                "was given"));
}

TEST_F(ExecutorTest, AFeedServesOneRun) {
  const auto prepared = prepare(*fed_product());
  scope_.local("w") = tensor_value({2, 2}, {1, 0, 0, 1});
  NamedValues feeds;
  feeds["x"] = tensor_value({1, 2}, {1, 2});
  std::vector<Value> results;
  ASSERT_TRUE(prepared->run(feeds, {"y"}, results).ok());
  EXPECT_THAT(prepared->run({}, {"y"}, results).to_string(), HasSubstr("'x'"));
  const Status again = prepared->run(feeds, {"y"}, results);
  ASSERT_TRUE(again.ok()) << again.to_string();
  EXPECT_THAT(floats(results[0]), ElementsAre(1, 2));
}

TEST_F(ExecutorTest, SaysWhichFeedsThereAre) {
  NamedValues feeds;
  feeds["image"] = tensor_value({1, 2}, {1, 2});
  std::vector<Value> results;
  EXPECT_EQ(prepare(*fed_product())->run(feeds, {"y"}, results).to_string(),
            "error: 'image': feed: the program has no such var; it is fed x");
  EXPECT_EQ(prepare(*two_scales())->run(feeds, {"z"}, results).to_string(),
            "error: 'image': feed: the program has no such var; it is fed x");
}

TEST_F(ExecutorTest, RefusesAnOpWithMoreInputsThanPositionsCanSay) {
  const auto program = Program::create();
  for (const char* const name : {"x", "y"})
    program->root().declare(name, VarSpec::tensor(DType::kFloat32, {2}));
  const std::vector<llvm::StringRef> many(65536, "x");
  program->root().append_op("sum").set_input("X", many).set_output("Out", "y");
  const auto prepared = Executor(runtime_, {.optimize = false}).prepare(*program, scope_);
  ASSERT_FALSE(prepared.ok());
  EXPECT_EQ(prepared.status().code(), StatusCode::kUnimplemented);
  EXPECT_THAT(prepared.status().to_string(),
              HasSubstr("block 0, op 0 (sum): an op with 65536 inputs and 1 outputs"));
}

TEST_F(ExecutorTest, RefusesToFeedAParameter) {
  NamedValues feeds;
  feeds["w"] = tensor_value({2, 2}, {1, 0, 0, 1});
  std::vector<Value> results;
  const Status status = prepare(*fed_product())->run(feeds, {"y"}, results);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.to_string(), HasSubstr("'w': feed: the var is a parameter of the program"));
  // a learning rate is not treated as a parameter if it updates another var
  auto program = fed_product();
  VarSpec rate = VarSpec::tensor(DType::kFloat32, {1});
  rate.persistable = true;
  program->root().declare("rate", rate);
  program->root().declare("g", VarSpec::tensor(DType::kFloat32, {2, 2}));
  Op& update = program->root().append_op("sgd");
  update.set_input("Param", "w").set_input("Grad", "g").set_input("LearningRate", "rate");
  update.set_output("ParamOut", "w");
  EXPECT_TRUE(check_feed_name(*program, "rate").ok());
  EXPECT_FALSE(check_feed_name(*program, "w").ok());
}

TEST_F(ExecutorTest, NamesOpAndVarOfATensorThatIsTooLarge) {
  auto program = Program::create();
  Block& block = program->root();
  block.declare("x", VarSpec::tensor(DType::kInt64, {-1, 1}));
  block.declare("y", VarSpec::tensor(DType::kFloat32, {-1, -1}));
  block.append_op("one_hot").set_input("X", "x").set_output("Out", "y").set_int("depth", 1000);
  const auto prepared = prepare(*program);
  NamedValues feeds;
  auto& ids = feeds["x"].as<Tensor>();
  ASSERT_TRUE(ids.resize(DType::kInt64, {4, 1}).ok());
  std::fill_n(ids.data<int64_t>(), 4, 1);
  std::vector<Value> results;
  set_max_tensor_bytes(8000);
  const Status status = prepared->run(feeds, {"y"}, results);
  set_max_tensor_bytes(0);
  EXPECT_EQ(status.code(), StatusCode::kResource);
  EXPECT_THAT(status.to_string(),
              HasSubstr("block 0, op 0 (one_hot), Out[0] 'y': a tensor of 16000 bytes is above the "
                        "limit of 8000 bytes"));
  EXPECT_TRUE(prepared->run(feeds, {"y"}, results).ok());
}

TEST_F(ExecutorTest, RefusesADenseResultInAVarOfRows) {
  auto program = two_scales();
  VarSpec spec = program->root().find_var("z")->spec();
  spec.kind = VarKind::kSelectedRows;
  program->root().find_var("z")->set_spec(spec);
  const auto prepared = prepare(*program, false);
  NamedValues feeds;
  feeds["x"] = tensor_value({1, 2}, {1, 2});
  std::vector<Value> results;
  const Status status = prepared->run(feeds, {"z"}, results);
  EXPECT_THAT(status.to_string(),
              HasSubstr("block 0, op 1 (scale), Out[0] 'z': the op makes a dense tensor, but the "
                        "var is declared as selected rows"));
}

TEST_F(ExecutorTest, RefusesATensorThatWasNeverResizedForAParameter) {
  auto program = Program::create();
  Block& block = program->root();
  block.declare("x", VarSpec::tensor(DType::kFloat32, {-1, 2}));
  block.declare("y", VarSpec::tensor(DType::kFloat32, {-1, 1}));
  for (const auto& [name, dims] : {std::pair{"w", Dims{2, 1}}, {"b", Dims{1}}}) {
    VarSpec spec = VarSpec::tensor(DType::kFloat32, dims);
    spec.persistable = true;
    block.declare(name, spec);
  }
  Op& op = block.append_op("fc");
  op.set_input("Input", "x").set_input("W", "w").set_input("Bias", "b").set_output("Out", "y");
  Scope scope;
  scope.local("w") = tensor_value({2, 1}, {10, 1});
  EXPECT_FALSE(scope.local("b").as<Tensor>().initialized());
  auto prepared = Executor(standard_runtime()).prepare(*program, scope);
  ASSERT_TRUE(prepared.ok()) << prepared.status().to_string();
  NamedValues feeds;
  feeds["x"] = tensor_value({1, 2}, {3, 4});
  std::vector<Value> results;
  for (int run = 0; run < 2; ++run) {
    const Status status = prepared.value()->run(feeds, {"y"}, results);
    EXPECT_EQ(status.code(), StatusCode::kExecution);
    EXPECT_THAT(status.to_string(), HasSubstr("'b': the input holds no value"));
  }
}

TEST_F(ExecutorTest, FillsAVarOfRowsWhereTheOpMakesTables) {
  for (const char* const type : {"fill_constant", "uniform_random"}) {
    auto program = Program::create();
    VarSpec spec = VarSpec::tensor(DType::kFloat32, {3, 2});
    spec.kind = VarKind::kSelectedRows;
    spec.form = TensorForm::kSelectedRows;
    program->root().declare("table", spec);
    program->root()
        .append_op(type)
        .set_output("Out", "table")
        .set_attr("shape", AttrValue::of_longs({3, 2}));
    const auto prepared = prepare(*program, false);
    std::vector<Value> results;
    const Status status = prepared->run({}, {"table"}, results);
    EXPECT_TRUE(status.ok()) << status.to_string();
  }
}

TEST_F(ExecutorTest, RefusesAFetchOfAVarThatNoOpWrites) {
  auto program = two_scales();
  program->root().declare("late", VarSpec::tensor(DType::kFloat32, {-1, 2}));
  VarSpec list;
  list.kind = VarKind::kFetchList;
  program->root().declare("fetch", list);
  program->root()
      .append_op("fetch")
      .set_input("X", "late")
      .set_output("Out", "fetch")
      .set_int("col", 0);
  const auto prepared = prepare(*program, false);
  NamedValues feeds;
  feeds["x"] = tensor_value({1, 2}, {1, 2});
  std::vector<Value> results;
  EXPECT_THAT(prepared->run(feeds, {"z"}, results).to_string(),
              HasSubstr("the program fetches this var, but no op has written it"));
}

TEST_F(ExecutorTest, RunsAgainAfterAnError) {
  const auto prepared = prepare(*two_scales());
  std::vector<Value> results;
  EXPECT_FALSE(prepared->run({}, {"z"}, results).ok());
  NamedValues feeds;
  feeds["x"] = tensor_value({1, 2}, {0, 0});
  EXPECT_TRUE(prepared->run(feeds, {"z"}, results).ok());
}

TEST_F(ExecutorTest, RefusesAFetchThatNoOpUses) {
  const auto prepared = prepare(*two_scales());
  std::vector<Value> results;
  EXPECT_EQ(prepared->run({}, {"w"}, results).code(), StatusCode::kNotFound);
}

TEST_F(ExecutorTest, RefusesAFeedWithAWrongLod) {
  const auto prepared = prepare(*two_scales());
  NamedValues feeds;
  feeds["x"] = tensor_value({3, 2}, {1, 2, 3, 4, 5, 6}, Lod({{0, 1, 4}}));
  std::vector<Value> results;
  const Status status = prepared->run(feeds, {"z"}, results);
  EXPECT_THAT(status.to_string(), HasSubstr("LoD level 0: expected a last offset of 3"));
}

TEST_F(ExecutorTest, KeepsPersistableVarsInTheScope) {
  auto program = two_scales();
  VarSpec spec = program->root().find_var("z")->spec();
  spec.persistable = true;
  program->root().find_var("z")->set_spec(spec);
  const auto prepared = prepare(*program);
  NamedValues feeds;
  feeds["x"] = tensor_value({1, 2}, {1, 2});
  std::vector<Value> results;
  ASSERT_TRUE(prepared->run(feeds, {}, results).ok());
  ASSERT_NE(scope_.find_local("z"), nullptr);
  EXPECT_THAT(floats(*scope_.find_local("z")), ElementsAre(9, 15));
  EXPECT_EQ(scope_.find_local("y"), nullptr);
}

// Four scales in a row need two locations that alternate, or one if each works in place.
TEST_F(ExecutorTest, LetsTemporariesShareMemory) {
  auto program = Program::create();
  Block& block = program->root();
  for (const char* const name : {"a", "b", "c", "d", "e"})
    block.declare(name, VarSpec::tensor(DType::kFloat32, {-1}));
  for (const char* const names : {"ab", "bc", "cd", "de"}) {
    block.append_op("scale")
        .set_input("X", std::string(1, names[0]))
        .set_output("Out", std::string(1, names[1]))
        .set_float("scale", 2);
  }
  const auto prepared = prepare(*program, false);
  std::vector<Value> results;
  // sizes shrink, grow beyond the planned size, and shrink again
  for (const int64_t count : {32, 32, 8, 100, 100, 8}) {
    NamedValues feeds;
    feeds["a"] = tensor_value({count}, std::vector<float>(static_cast<size_t>(count), 1));
    const Status status = prepared->run(feeds, {"e"}, results);
    ASSERT_TRUE(status.ok()) << status.to_string();
    EXPECT_THAT(floats(results[0]), ::testing::Each(16.0F));
    EXPECT_EQ(results[0].get_if<Tensor>()->numel(), count);
  }
  EXPECT_EQ(prepared->memory_bytes(), 448);  // b, c and d in one location of 100 floats, rounded up
}

// A var that is fetched for the first time must be kept from that run on. Memory is shared from the
// second run on; a scalar must then be sized like every other tensor.
TEST_F(ExecutorTest, KeepsScalarsInSharedMemory) {
  auto program = Program::create();
  Block& block = program->root();
  for (const char* const name : {"x", "a", "b", "c"})
    block.declare(name, VarSpec::tensor(DType::kFloat32, {}));
  for (const auto& [from, to] : {std::pair{"x", "a"}, {"a", "b"}, {"b", "c"}})
    block.append_op("scale").set_input("X", from).set_output("Out", to).set_float("scale", 2);
  const auto prepared = prepare(*program);
  for (int run = 0; run < 3; ++run) {
    NamedValues feeds;
    feeds["x"] = tensor_value({}, {1});
    std::vector<Value> results;
    const Status status = prepared->run(feeds, {"c"}, results);
    ASSERT_TRUE(status.ok()) << status.to_string();
    EXPECT_THAT(floats(results[0]), ElementsAre(8)) << "run " << run;
  }
}

TEST_F(ExecutorTest, FetchesOtherVarsInALaterRun) {
  const auto prepared = prepare(*two_scales());
  NamedValues feeds;
  feeds["x"] = tensor_value({1, 2}, {1, 2});
  std::vector<Value> results;
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(prepared->run(feeds, {"z"}, results).ok());
    ASSERT_TRUE(prepared->run(feeds, {"y"}, results).ok());
    EXPECT_THAT(floats(results[0]), ElementsAre(3, 5));
  }
}

TEST_F(ExecutorTest, StopsAtTheFirstNanIfAsked) {
  const auto prepared = prepare(*two_scales(), false);
  NanCheck check;
  prepared->observe(&check);
  NamedValues feeds;
  feeds["x"] = tensor_value({1, 2}, {1, std::numeric_limits<float>::quiet_NaN()});
  std::vector<Value> results;
  const Status status = prepared->run(feeds, {"z"}, results);
  EXPECT_THAT(status.to_string(), HasSubstr("block 0, op 0 (scale), Out[0] 'y': the output has 1 "
                                            "NaN and 0 infinite values among 2, the others from 3 "
                                            "to 3"));
}

TEST_F(ExecutorTest, TimesEveryOp) {
  const auto prepared = prepare(*two_scales(), false);
  Trace trace;
  prepared->observe(&trace);
  NamedValues feeds;
  feeds["x"] = tensor_value({1, 2}, {1, 2});
  std::vector<Value> results;
  ASSERT_TRUE(prepared->run(feeds, {"z"}, results).ok());
  EXPECT_THAT(trace.chrome_json(), HasSubstr(R"("outputs": "f32 [1, 2]")"));
  EXPECT_THAT(trace.op_table(), ::testing::ContainsRegex("scale +2 "));
}

TEST_F(ExecutorTest, PrintsStepsAndMemory) {
  const auto prepared = prepare(*two_scales(), false);
  NamedValues feeds;
  feeds["x"] = tensor_value({1, 2}, {1, 2});
  std::vector<Value> results;
  ASSERT_TRUE(prepared->run(feeds, {"z"}, results).ok());
  EXPECT_EQ(prepared->plan_text(),
            "block 0: 2 steps\n"
            "     0  scale                         y: f32 [1, 2] at 0\n"
            "     1  scale                         z: f32 [1, 2]\n"
            "memory of temporaries: 64 bytes; live at once: 64 bytes\n");
}

TEST_F(ExecutorTest, NamesAnOpItHasNoKernelFor) {
  auto program = Program::create();
  program->root().append_op("no_such_op").set_input("X", "x");
  const auto prepared = Executor(runtime_).prepare(*program, scope_);
  EXPECT_EQ(prepared.status().code(), StatusCode::kUnimplemented);
  EXPECT_THAT(prepared.status().to_string(), HasSubstr("block 0, op 0 (no_such_op)"));
}

TEST_F(ExecutorTest, NamesAnInputThatIsNoDenseTensor) {
  auto program = Program::create();
  Block& block = program->root();
  for (const char* const name : {"x", "y"})
    block.declare(name, VarSpec::tensor(DType::kFloat32, {-1, 2}));
  block.append_op("softmax").set_input("X", "x").set_output("Out", "y");
  const auto prepared = prepare(*program);
  std::vector<Value> results;
  NamedValues feeds;
  feeds["x"].as<TensorArray>().resize(2);
  EXPECT_THAT(prepared->run(feeds, {"y"}, results).to_string(),
              HasSubstr("block 0, op 0 (softmax), X[0] 'x': the input must be a dense tensor"));
  auto& rows = feeds["x"].as<SelectedRows>();
  rows.rows = {1};
  rows.height = 3;
  ASSERT_TRUE(rows.value.resize(DType::kFloat32, {1, 2}).ok());
  EXPECT_THAT(prepared->run(feeds, {"y"}, results).to_string(), HasSubstr("dense tensor, found"));
}

TEST_F(ExecutorTest, DeletesVars) {
  auto program = two_scales();
  program->root().append_op("delete_var").set_input("X", "y");
  program->root().append_op("scale").set_input("X", "y").set_output("Out", "z");
  const auto prepared = prepare(*program);
  NamedValues feeds;
  feeds["x"] = tensor_value({1, 2}, {1, 2});
  std::vector<Value> results;
  EXPECT_THAT(prepared->run(feeds, {"z"}, results).to_string(),
              HasSubstr("op 3 (scale), X[0] 'y': the input holds no value"));
}

}  // namespace
}  // namespace millrace::executor

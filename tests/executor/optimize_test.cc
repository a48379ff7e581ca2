#include "executor/optimize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "executor/executor.h"

namespace millrace::executor {
namespace {

using testing::ElementsAre;

Value tensor_value(std::vector<int64_t> dims, std::vector<float> data) {
  Value value;
  auto& tensor = value.as<Tensor>();
  EXPECT_TRUE(tensor.resize(DType::kFloat32, dims).ok());
  std::copy(data.begin(), data.end(), tensor.data<float>());
  return value;
}

std::vector<float> floats(const Value& value) {
  const auto values = value.get_if<Tensor>()->values<float>();
  return {values.begin(), values.end()};
}

std::vector<std::string> op_types(const Program& program) {
  std::vector<std::string> types;
  for (const Op& op : program.root().ops()) types.push_back(op.type().str());
  return types;
}

// y = relu(x w + b), with x w in t and the sum in u
std::unique_ptr<Program> layer() {
  auto program = Program::create();
  Block& block = program->root();
  for (const char* const name : {"x", "t", "u", "y"})
    block.declare(name, VarSpec::tensor(DType::kFloat32, {-1, 2}));
  for (const auto& [name, dims] : {std::pair{"w", Dims{2, 2}}, {"b", Dims{2}}}) {
    VarSpec spec = VarSpec::tensor(DType::kFloat32, dims);
    spec.persistable = true;
    block.declare(name, spec);
  }
  block.append_op("mul").set_input("X", "x").set_input("Y", "w").set_output("Out", "t");
  block.append_op("elementwise_add").set_input("X", "t").set_input("Y", "b").set_output("Out", "u");
  block.append_op("relu").set_input("X", "u").set_output("Out", "y");
  return program;
}

class OptimizeTest : public testing::Test {
 protected:
  OptimizeTest() {
    scope_.local("w") = tensor_value({2, 2}, {1, -1, 2, -2});
    scope_.local("b") = tensor_value({2}, {10, 20});
    feeds_["x"] = tensor_value({1, 2}, {3, 4});
  }
  std::unique_ptr<PreparedProgram> prepare(bool optimize) {
    auto prepared = Executor(standard_runtime(), {.optimize = optimize}).prepare(*program_, scope_);
    EXPECT_TRUE(prepared.ok()) << prepared.status().to_string();
    return std::move(prepared).value();
  }

  std::unique_ptr<Program> program_ = layer();
  Scope scope_;
  NamedValues feeds_;
  std::vector<Value> results_;
};

TEST_F(OptimizeTest, RunsARewrittenProgramUnlessToldOtherwise) {
  const auto prepared = prepare(true);
  EXPECT_THAT(op_types(prepared->program()), ElementsAre("fc"));
  ASSERT_TRUE(prepared->run(feeds_, {"y"}, results_).ok());
  EXPECT_THAT(floats(results_[0]), ElementsAre(21, 9));
  EXPECT_THAT(op_types(*program_), ElementsAre("mul", "elementwise_add", "relu"));

  const auto plain = prepare(false);
  EXPECT_THAT(op_types(plain->program()), ElementsAre("mul", "elementwise_add", "relu"));
  ASSERT_TRUE(plain->run(feeds_, {"y"}, results_).ok());
  EXPECT_THAT(floats(results_[0]), ElementsAre(21, 9));
}

TEST_F(OptimizeTest, BringsBackAVarThatIsFetched) {
  const auto prepared = prepare(true);
  for (int run = 0; run < 2; ++run) {
    ASSERT_TRUE(prepared->run(feeds_, {"y"}, results_).ok());
    ASSERT_TRUE(prepared->run(feeds_, {"u", "y"}, results_).ok());
    EXPECT_THAT(floats(results_[0]), ElementsAre(21, 9));
    EXPECT_THAT(op_types(prepared->program()), ElementsAre("fc", "relu"));
  }
  ASSERT_TRUE(prepared->run(feeds_, {"t"}, results_).ok());
  EXPECT_THAT(floats(results_[0]), ElementsAre(11, -11));
  EXPECT_EQ(prepared->run(feeds_, {"z"}, results_).code(), StatusCode::kNotFound);
}

TEST_F(OptimizeTest, HasOneListForInferenceAndOneForTraining) {
  const auto passes = [&] {
    std::vector<std::string> names;
    for (const auto& step : optimization_pipeline(*program_, {"y"}).steps) {
      names.push_back(step.pass);
      EXPECT_EQ(step.options,
                (std::vector<transpiler::PipelineOption>{{"keep", std::vector<std::string>{"y"}}}));
    }
    return names;
  };
  EXPECT_THAT(passes(), testing::Contains("fuse-fc"));
  program_->root().append_op("scale").set_input("X", "w").set_output("Out", "w");
  EXPECT_THAT(passes(), testing::Contains("fuse-fc"));
}

}  // namespace
}  // namespace millrace::executor

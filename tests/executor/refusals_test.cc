// What would run with another result than the program says is refused.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "executor/executor.h"
#include "executor/standard_runtime.h"
#include "framework/text_form/parse.h"
#include "ops/backward/append_backward.h"
#include "tests/executor/values.h"

namespace millrace::executor {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// y = 2 x + 1
std::unique_ptr<Program> a_scale() {
  auto program = Program::create();
  Block& block = program->root();
  for (const char* const name : {"x", "y"})
    block.declare(name, VarSpec::tensor(DType::kFloat32, {-1, 2}));
  block.append_op("scale")
      .set_input("X", "x")
      .set_output("Out", "y")
      .set_float("scale", 2)
      .set_float("bias", 1);
  return program;
}

class RefusalsTest : public ::testing::Test {
 protected:
  std::unique_ptr<PreparedProgram> prepare(const Program& program, bool optimize = true) {
    auto prepared = Executor(runtime_, {.optimize = optimize}).prepare(program, scope_);
    EXPECT_TRUE(prepared.ok()) << prepared.status().to_string();
    return std::move(prepared).value();
  }
  Status refusal(const Program& program, const ExecutorOptions& options = {}) {
    return Executor(runtime_, options).prepare(program, scope_).status();
  }

  std::shared_ptr<const Runtime> runtime_ = standard_runtime();
  Scope scope_;
};

// The original's oneDNN passes put activations into attributes of other ops.
TEST_F(RefusalsTest, RefusesFunctionsInAttributesThatItDoesNotApply) {
  const auto program = a_scale();
  Op& op = *program->root().ops().begin();
  op.set_string("fuse_activation", "").set_bool("fuse_residual_connection", false);
  prepare(*program);
  op.set_string("fuse_activation", "relu");
  for (const bool optimize : {false, true}) {
    const Status status = refusal(*program, {.optimize = optimize});
    EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
    EXPECT_THAT(status.to_string(),
                HasSubstr("op 0 (scale): attribute 'fuse_activation' asks for the function"));
  }
}

TEST_F(RefusalsTest, RefusesFactorsOfQuantisedOperands) {
  const auto program = a_scale();
  program->root().ops().begin()->set_float("fused_output_scale", 1);
  prepare(*program);
  program->root().ops().begin()->set_float("fused_output_scale", 0.5);
  const Status status = refusal(*program);
  EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
  EXPECT_THAT(status.to_string(),
              HasSubstr("op 0 (scale): attribute 'fused_output_scale' asks for a factor"));
}

// Kernels would read the default of the attribute.
TEST_F(RefusalsTest, RefusesAttributesWithTheValueOfAVar) {
  const auto program = a_scale();
  for (const AttrValue& value : {AttrValue::of_var("x"), AttrValue::of_vars({"x"})}) {
    program->root().ops().begin()->set_attr("scale", value);
    for (const bool optimize : {false, true}) {
      const Status status = refusal(*program, {.optimize = optimize});
      EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
      EXPECT_THAT(status.to_string(),
                  HasSubstr("op 0 (scale): attribute 'scale' has the value of a var"));
    }
  }
}

TEST_F(RefusalsTest, RefusesToRunOnNoThread) {
  EXPECT_EQ(refusal(*a_scale(), {.threads = 0}).message(), "threads: expected at least 1, found 0");
}

// Without its bias, layer_norm would compute something else without an error.
TEST_F(RefusalsTest, RefusesAParameterWithoutAValueInAnOptionalSlot) {
  auto program = Program::create();
  Block& block = program->root();
  block.declare("x", VarSpec::tensor(DType::kFloat32, {-1, 2}));
  block.declare("y", VarSpec::tensor(DType::kFloat32, {-1, 2}));
  VarSpec bias = VarSpec::tensor(DType::kFloat32, {2});
  bias.persistable = true;
  block.declare("b", bias);
  block.append_op("layer_norm")
      .set_input("X", "x")
      .set_input("Bias", "b")
      .set_output("Y", "y")
      .set_int("begin_norm_axis", 1);
  for (const bool optimize : {true, false}) {
    scope_.erase("b");
    auto prepared = prepare(*program, optimize);
    NamedValues feeds;
    feeds["x"] = tensor_value({1, 2}, {1, 3});
    std::vector<Value> results;
    const Status status = prepared->run(feeds, {"y"}, results);
    EXPECT_EQ(status.code(), StatusCode::kExecution);
    EXPECT_THAT(status.to_string(),
                HasSubstr("(layer_norm), Bias[0] 'b': the input holds no value"));
    ASSERT_TRUE(scope_.local("b")
                    .as<Tensor>()
                    .copy_from(*tensor_value({2}, {10, 20}).get_if<Tensor>())
                    .ok());
    ASSERT_TRUE(prepared->run(feeds, {"y"}, results).ok());
  }
}

// Without its factor, scale would take that of its attribute.
TEST_F(RefusalsTest, RefusesATemporaryWithoutAValueInAnOptionalSlot) {
  const auto program = a_scale();
  program->root().declare("factor", VarSpec::tensor(DType::kFloat32, {1}));
  program->root().ops().begin()->set_input("ScaleTensor", "factor");
  for (const bool optimize : {true, false}) {
    auto prepared = prepare(*program, optimize);
    NamedValues feeds;
    feeds["x"] = tensor_value({1, 2}, {1, 2});
    std::vector<Value> results;
    EXPECT_THAT(prepared->run(feeds, {"y"}, results).to_string(),
                HasSubstr("(scale), ScaleTensor[0] 'factor': the input holds no value"));
    feeds["factor"] = tensor_value({1}, {5});
    ASSERT_TRUE(prepared->run(feeds, {"y"}, results).ok());
    EXPECT_THAT(floats(results[0]), ElementsAre(6, 11));
  }
}

// A condition of another type or size would count as true.
TEST_F(RefusalsTest, RefusesAConditionOfAnAllReduceThatIsNoBool) {
  const auto program = Program::create();
  for (const char* const name : {"x", "y", "c"})
    program->root().declare(name, VarSpec::tensor(DType::kFloat32, {1}));
  program->root()
      .append_op("c_allreduce_sum")
      .set_input("X", "x")
      .set_input("Cond", "c")
      .set_output("Out", "y");
  NamedValues feeds;
  feeds["x"] = tensor_value({1}, {1});
  feeds["c"] = tensor_value({1}, {0});
  std::vector<Value> results;
  EXPECT_THAT(prepare(*program)->run(feeds, {"y"}, results).to_string(),
              HasSubstr("Cond must be one bool, found f32 [1]"));
}

// A pass lets both operands share the gradient of the sum. A value with other dims than declared,
// as a startup program may make it, would need a sum over rows.
TEST_F(RefusalsTest, OperandsOfSumsThatAreSmallerThanDeclared) {
  auto program = parse_program(R"(# millrace program 1
block 0 {
  param p: f32(3, 2)
  param w: f32(2, 2)
  var x: f32(3, 2)
  var h: f32(3, 2)
  var a: f32(3, 2)
  var c: f32(3, 2)
  var z: f32(3, 2)
  var loss: f32(1)
  mul X=x Y=w -> Out=h
  tanh X=h -> Out=a
  tanh X=p -> Out=c
  elementwise_add X=a Y=c -> Out=z
  mean X=z -> Out=loss
}
)",
                               "sum");
  ASSERT_TRUE(program.ok()) << program.status().to_string();
  ops::BackwardRequest request;
  request.loss = "loss";
  ASSERT_TRUE(ops::append_backward(*runtime_->ops, **program, request).ok());
  (*program)->root().append_op("scale").set_input("X", "w").set_output("Out", "w");  // trains
  NamedValues feeds;
  feeds["x"] = tensor_value({3, 2}, {1, 2, 3, 4, 5, 6});
  scope_.local("w") = tensor_value({2, 2}, {1, 2, 3, 4});
  std::vector<Value> results;
  const auto run = [&](const Dims& dims, bool optimize) {
    scope_.local("p") = tensor_value(
        {dims.begin(), dims.end()},
        std::vector<float>(dims.size() == 2 ? static_cast<size_t>(dims[0] * dims[1]) : 2));
    return prepare(**program, optimize)->run(feeds, {"p@GRAD"}, results);
  };
  EXPECT_TRUE(run({3, 2}, true).ok());
  for (const Dims& dims : {Dims{1, 2}, Dims{2}}) {
    EXPECT_TRUE(run(dims, false).ok());
    EXPECT_EQ(results[0].get_if<Tensor>()->dims(), llvm::ArrayRef<int64_t>(dims));
    EXPECT_THAT(run(dims, true).to_string(), HasSubstr("is broadcast to the other operand"));
  }
}

}  // namespace
}  // namespace millrace::executor

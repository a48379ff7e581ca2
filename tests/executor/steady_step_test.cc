#include <gtest/gtest.h>

#include "executor/executor.h"
#include "executor/standard_runtime.h"
#include "tests/executor/count_allocations.h"

// A step with known shapes allocates nothing. Newly created tensors are detected as well, by
// counting the owners of their memory.

namespace millrace::executor {
namespace {

constexpr int64_t kSteadyStepRows = 8;
constexpr int64_t kSteadyStepColumns = 6;

Value filled_steady_step(Dims dims, float value) {
  Value made;
  auto& tensor = made.as<Tensor>();
  EXPECT_TRUE(tensor.resize(DType::kFloat32, dims).ok());
  std::fill_n(tensor.data<float>(), tensor.numel(), value);
  return made;
}

void declare(Block& block, const char* name, Dims dims, bool persistable = false) {
  VarSpec spec = VarSpec::tensor(DType::kFloat32, dims);
  spec.persistable = persistable;
  block.declare(name, spec);
}

// Training without matrix products, which a library computes: y = softmax(relu(x + w)); w and a
// second parameter are updated with its gradient.
std::unique_ptr<Program> program_steady_step() {
  auto made = Program::create();
  Block& block = made->root();
  for (const char* const name : {"x", "s", "r", "y", "y@GRAD", "r@GRAD", "s@GRAD"})
    declare(block, name, {-1, kSteadyStepColumns});
  for (const char* const name : {"w", "w_velocity", "v", "v_velocity"})
    declare(block, name, {kSteadyStepColumns}, true);
  declare(block, "w@GRAD", {kSteadyStepColumns});
  declare(block, "lr", {1}, true);
  declare(block, "loss", {1});
  block.append_op("elementwise_add").set_input("X", "x").set_input("Y", "w").set_output("Out", "s");
  block.append_op("relu").set_input("X", "s").set_output("Out", "r");
  block.append_op("softmax").set_input("X", "r").set_output("Out", "y");
  block.append_op("mean").set_input("X", "y").set_output("Out", "loss");
  block.append_op("scale").set_input("X", "y").set_output("Out", "y@GRAD");
  block.append_op("softmax_grad")
      .set_input("Out", "y")
      .set_input("Out@GRAD", "y@GRAD")
      .set_output("X@GRAD", "r@GRAD");
  block.append_op("relu_grad")
      .set_input("Out", "r")
      .set_input("Out@GRAD", "r@GRAD")
      .set_output("X@GRAD", "s@GRAD");
  block.append_op("elementwise_add_grad")
      .set_input("X", "x")
      .set_input("Y", "w")
      .set_input("Out@GRAD", "s@GRAD")
      .set_output("Y@GRAD", "w@GRAD");
  for (const std::string param : {"w", "v"}) {
    block.append_op("momentum")
        .set_input("Param", param)
        .set_input("Grad", "w@GRAD")
        .set_input("Velocity", param + "_velocity")
        .set_input("LearningRate", "lr")
        .set_output("ParamOut", param)
        .set_output("VelocityOut", param + "_velocity")
        .set_float("mu", 0.9F);
  }
  return made;
}

TEST(SteadyStep, AllocatesNothing) {
  for (const bool optimize : {true, false}) {
    const auto text = program_steady_step();
    Scope scope;
    for (const std::string param : {"w", "v"}) {
      scope.local(param) = filled_steady_step({kSteadyStepColumns}, 0.5F);
      scope.local(param + "_velocity") = filled_steady_step({kSteadyStepColumns}, 0);
    }
    scope.local("lr") = filled_steady_step({1}, 0.1F);
    NamedValues feeds;
    feeds["x"] = filled_steady_step({kSteadyStepRows, kSteadyStepColumns}, 1);
    auto prepared =
        Executor(standard_runtime(), {.threads = 1, .optimize = optimize}).prepare(*text, scope);
    ASSERT_TRUE(prepared.ok()) << prepared.status().to_string();
    EXPECT_EQ(prepared.value()->program().root().back().type(),
              optimize ? "merged_momentum" : "momentum");
    const std::vector<std::string> fetches{"loss"};
    std::vector<Value> results;
    for (int step = 0; step < 3; ++step) {
      const Status status = prepared.value()->run(feeds, fetches, results);
      ASSERT_TRUE(status.ok()) << status.to_string();
    }
    const int64_t before = allocations();
    ASSERT_GT(before, 0);
    bool good = true;
    for (int step = 0; step < 100; ++step)
      good = good && prepared.value()->run(feeds, fetches, results).ok();
    EXPECT_EQ(allocations() - before, 0) << "optimize " << optimize;
    EXPECT_TRUE(good);
  }
}

// Two branches long enough to run concurrently.
TEST(SteadyStep, AllocatesNothingSideBySide) {
  constexpr int64_t kMany = 60000;
  auto made = Program::create();
  Block& block = made->root();
  for (const char* const name : {"x", "a", "b", "c", "d", "y"})
    declare(block, name, {-1, kSteadyStepColumns});
  block.append_op("relu").set_input("X", "x").set_output("Out", "a");
  block.append_op("softmax").set_input("X", "a").set_output("Out", "b");
  block.append_op("tanh").set_input("X", "x").set_output("Out", "c");
  block.append_op("softmax").set_input("X", "c").set_output("Out", "d");
  block.append_op("elementwise_add").set_input("X", "b").set_input("Y", "d").set_output("Out", "y");
  Scope scope;
  NamedValues feeds;
  feeds["x"] = filled_steady_step({kMany, kSteadyStepColumns}, 1);
  auto prepared =
      Executor(standard_runtime(), {.threads = 2, .inter_op = true}).prepare(*made, scope);
  ASSERT_TRUE(prepared.ok()) << prepared.status().to_string();
  const std::vector<std::string> fetches{"y"};
  std::vector<Value> results;
  for (int step = 0; step < 4; ++step)
    ASSERT_TRUE(prepared.value()->run(feeds, fetches, results).ok());
  EXPECT_NE(prepared.value()->plan_text().find("[side by side 0]"), std::string::npos)
      << prepared.value()->plan_text();
  const int64_t before = allocations();
  bool good = true;
  for (int step = 0; step < 20; ++step)
    good = good && prepared.value()->run(feeds, fetches, results).ok();
  EXPECT_EQ(allocations() - before, 0);
  EXPECT_TRUE(good);
}

}  // namespace
}  // namespace millrace::executor

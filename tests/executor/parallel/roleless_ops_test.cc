// Ops around updates that have no role of the optimizer: several devices and micro-batches find the
// phase of an op by its role.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "executor/standard_runtime.h"
#include "tests/executor/parallel/small_job.h"

namespace millrace::executor {
namespace {

using ::testing::HasSubstr;

Value whole_number(int64_t number) {
  Value value;
  auto& tensor = value.as<Tensor>();
  EXPECT_TRUE(tensor.resize(DType::kInt64, {1}).ok());
  *tensor.data<int64_t>() = number;
  return value;
}

// Adds a counter of steps and an average of w, as the original makes them: without a role.
void add_average(Program& program, Scope& scope) {
  Block& root = program.root();
  const auto declare = [&](const char* name, DType dtype, const Dims& dims) {
    VarSpec spec = VarSpec::tensor(dtype, dims);
    spec.persistable = true;
    root.declare(name, spec);
  };
  declare("steps", DType::kFloat32, {1});
  scope.local("steps") = tensor_value({1}, {0});
  root.append_op("increment").set_input("X", "steps").set_output("Out", "steps");
  Op& average = root.append_op("average_accumulates").set_input("param", "w");
  for (const char* const slot : {"sum_1", "sum_2", "sum_3"}) {
    declare(slot, DType::kFloat32, {3, 1});
    scope.local(slot) = tensor_value({3, 1}, {0, 0, 0});
    average.set_input(std::string("in_") + slot, slot).set_output(std::string("out_") + slot, slot);
  }
  for (const char* const slot : {"num_accumulates", "old_num_accumulates", "num_updates"}) {
    declare(slot, DType::kInt64, {1});
    scope.local(slot) = whole_number(0);
    average.set_input(std::string("in_") + slot, slot).set_output(std::string("out_") + slot, slot);
  }
  average.set_float("average_window", 0.5F);
  average.set_attr("min_average_window", AttrValue::of_long(100));
  average.set_attr("max_average_window", AttrValue::of_long(100));
}

// w after each step is added to sum_1; the counters count steps.
TEST(RolelessOps, CountStepsNotMicroBatches) {
  std::vector<std::vector<float>> sums;
  for (const int parts : {1, 3}) {
    const auto program = linear_regression();
    Scope scope;
    scope.local("w") = tensor_value({3, 1}, {0.3F, -0.2F, 0.1F});
    scope.local("b") = tensor_value({1}, {0.05F});
    scope.local("lr") = tensor_value({1}, {0.1F});
    add_average(*program, scope);
    ParallelOptions options = devices(2);
    options.build_strategy.micro_batches = parts;
    const auto made = ParallelExecutor::create(standard_runtime(), *program, scope, options);
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    std::vector<Value> results;
    for (int step = 0; step < 4; ++step)
      ASSERT_TRUE((*made)->run(ParallelFeeds::split(batch(12, step)), {"loss"}, results).ok());
    const Scope& device = (*made)->local_scope(1);
    EXPECT_EQ(floats(*device.find("steps")), std::vector<float>{4}) << parts;
    EXPECT_EQ(*device.find("num_updates")->as<Tensor>().data<int64_t>(), 4) << parts;
    sums.push_back(floats(*device.find("sum_1")));
  }
  for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(sums[0][i], sums[1][i], 1e-5F) << i;
}

TEST(RolelessOps, ThatReadUpdatedParametersAreRefusedWithMicroBatches) {
  auto program = linear_regression();
  program->root().declare("v", VarSpec::tensor(DType::kFloat32, {3, 1}));
  program->root().append_op("scale").set_input("X", "w").set_output("Out", "v");
  Job job(devices(1));
  ParallelOptions options = devices(2);
  options.build_strategy.micro_batches = 2;
  const auto made = ParallelExecutor::create(standard_runtime(), *program, job.scope, options);
  EXPECT_THAT(made.status().to_string(), HasSubstr("the op reads 'w' after its update"));
}

// A gradient that a program scales itself: with the strategy reduce, only one device has its sum.
TEST(RolelessOps, ThatReadGradientsGetTheirSums) {
  const auto scaled = [] {
    auto program = linear_regression();
    Block& root = program->root();
    root.declare("half", VarSpec::tensor(DType::kFloat32, {3, 1}));
    Op* const update = root.writers_of("w").front();
    Op& scale = root.insert_before(update, "scale");
    scale.set_input("X", "w@GRAD").set_output("Out", "half").set_float("scale", 0.5F);
    update->set_input("Grad", "half");
    update->set_strings("op_role_var", {"w", "half"});
    return program;
  };
  Job one(devices(1), scaled());
  one.train(4, 12);
  ParallelOptions options = devices(2);
  options.build_strategy.reduce_strategy = ReduceStrategy::kReduce;
  Job job(options, scaled());
  job.train(4, 12);
  for (int device = 0; device < 2; ++device) {
    const auto got = floats(*job.executor->local_scope(device).find("w"));
    const auto want = floats(*one.executor->local_scope(0).find("w"));
    for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(got[i], want[i], 1e-6F) << device;
  }
}

}  // namespace
}  // namespace millrace::executor

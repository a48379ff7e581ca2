// Ops that write a var which they also read compute what they compute with another output var.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "executor/executor.h"
#include "executor/standard_runtime.h"
#include "framework/text_form/parse.h"
#include "tests/executor/values.h"

namespace millrace::executor {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::FloatNear;

// The elements of vars after a run of the ops, by name.
std::vector<std::vector<float>> results_of(const std::string& ops, const NamedValues& feeds,
                                           const std::vector<std::string>& fetches) {
  auto program = parse_program("block 0 {\n" + ops + "}\n", "test");
  EXPECT_TRUE(program.ok()) << program.status().to_string();
  Scope scope;
  auto prepared = Executor(standard_runtime(), {.optimize = false}).prepare(**program, scope);
  EXPECT_TRUE(prepared.ok()) << prepared.status().to_string();
  std::vector<Value> values;
  for (int run = 0; run < 2; ++run) {
    const Status status = (*prepared)->run(feeds, fetches, values);
    EXPECT_TRUE(status.ok()) << status.to_string();
  }
  std::vector<std::vector<float>> results;
  for (const Value& value : values) results.push_back(floats(value));
  return results;
}

// scatter may work in the memory of X, but not in that of Updates.
TEST(InPlace, AnotherInputIsReadBeforeItIsOverwritten) {
  NamedValues feeds;
  feeds["x"] = tensor_value({2, 2}, {0, 0, 0, 0});
  feeds["u"] = tensor_value({2, 2}, {1, 2, 3, 4});
  Tensor& ids = feeds["i"].as<Tensor>();
  ASSERT_TRUE(ids.resize(DType::kInt64, {2}).ok());
  ids.data<int64_t>()[0] = 1;
  ids.data<int64_t>()[1] = 0;
  const std::string vars = "  var x: f32(2, 2)\n  var u: f32(2, 2)\n  var i: i64(2)\n";
  EXPECT_THAT(results_of(vars + "  scatter X=x Ids=i Updates=u -> Out=u\n", feeds, {"u"})[0],
              ElementsAre(3, 4, 1, 2));
}

// A var that is several inputs and the output of an op with other dims.
TEST(InPlace, SeveralInputsAreOneVar) {
  NamedValues feeds;
  feeds["a"] = tensor_value({2, 1}, {1, 2});
  const std::string var = "  var a: f32(-1, -1)\n";
  EXPECT_THAT(results_of(var + "  concat X=a, a -> Out=a {axis: 1}\n", feeds, {"a"})[0],
              ElementsAre(1, 1, 2, 2));
  EXPECT_THAT(results_of(var + "  matmul_v2 X=a Y=a -> Out=a {trans_y: true}\n", feeds, {"a"})[0],
              ElementsAre(1, 2, 2, 4));
}

// Intermediate results are written while inputs are still read.
TEST(InPlace, AnIntermediateResultIsAnInput) {
  NamedValues feeds;
  feeds["x"] = tensor_value({2, 1}, {1, 3});
  for (const auto& [name, value] : {std::pair{"s", 5.0F}, {"b", 0.0F}, {"m", 0.0F}, {"v", 1.0F}})
    feeds[name] = tensor_value({1}, {value});
  const auto norm = [&](const std::string& mean) {
    std::string ops = "  var x: f32(2, 1)\n  var y: f32(2, 1)\n";
    for (const char* const name : {"s", "b", "m", "v", "mean", "deviation"})
      ops += std::string("  var ") + name + ": f32(1)\n";
    ops +=
        "  batch_norm X=x Scale=s Bias=b Mean=m Variance=v -> Y=y MeanOut=m VarianceOut=v "
        "SavedMean=" +
        mean + " SavedVariance=deviation {epsilon: 0.00001, is_test: false}\n";
    return results_of(ops, feeds, {"y", mean});
  };
  const auto apart = norm("mean");
  EXPECT_THAT(apart[0], ElementsAre(FloatNear(-5, 1e-3), FloatNear(5, 1e-3)));
  EXPECT_THAT(apart[1], ElementsAre(2));
  EXPECT_THAT(norm("s"), ElementsAreArray(apart));
}

}  // namespace
}  // namespace millrace::executor

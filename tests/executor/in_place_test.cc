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
using ::testing::HasSubstr;

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

struct InPlaceCase {
  std::string op;        // with "OUT" for the output var
  std::string in_place;  // the input that is the output, too
};

// Kernels that write an output while they read their inputs, if the op declares no pair.
TEST(InPlace, OpsThatCannotWorkInPlaceReadTheirInputsFirst) {
  NamedValues feeds;
  feeds["x"] = tensor_value({1, 4, 1, 1}, {1, 2, 3, 4});
  feeds["v"] = tensor_value({2, 3}, {1, 2, 3, 4, 5, 6});
  feeds["w"] = tensor_value({2, 3}, {3, 1, 2, 9, 7, 5});
  feeds["r"] = tensor_value({3, 1}, {1, 2, 4}, Lod({{0, 3}}));
  feeds["f"] = tensor_value({2, 1}, {1, 10});
  const std::string vars =
      "  var x: f32(1, 4, 1, 1)\n  var v: f32(2, 3)\n  var w: f32(2, 3)\n  var r: f32(3, 1) lod=1\n"
      "  var f: f32(2, 1)\n  var o: f32(-1) lod=1\n  var y: f32(-1, -1, -1, -1)\n";
  const InPlaceCase cases[] = {
      {"shuffle_channel X=x -> Out=OUT {group: 2}", "x"},
      {"lrn X=x -> Out=y MidOut=OUT {n: 3, k: 1.0, alpha: 1.0, beta: 1.0}", "x"},
      {"temporal_shift X=x -> Out=OUT {seg_num: 1, shift_ratio: 0.25}", "x"},
      {"cross X=v Y=w -> Out=OUT {dim: 1}", "v"},
      {"cross X=v Y=w -> Out=OUT {dim: 1}", "w"},
      {"row_conv X=r Filter=f -> Out=OUT", "r"},
  };
  for (const InPlaceCase& one : cases) {
    const auto with_output = [&](const std::string& name) {
      std::string op = one.op;
      op.replace(op.find("OUT"), 3, name);
      return results_of(vars + "  " + op + "\n", feeds, {name})[0];
    };
    EXPECT_THAT(with_output(one.in_place), ElementsAreArray(with_output("o"))) << one.op;
  }
}

// Each of two slots may work in the memory of its own input, not in that of the other one.
TEST(InPlace, UpdatesExchangeTheirVars) {
  NamedValues feeds;
  for (const auto& [name, value] :
       {std::pair{"p", 1.0F}, {"q", 10.0F}, {"g", 1.0F}, {"h", 2.0F}, {"rate", 1.0F}})
    feeds[name] = tensor_value({1}, {value});
  std::string vars;
  for (const char* const name : {"p", "q", "g", "h", "rate"})
    vars += std::string("  var ") + name + ": f32(1)\n";
  EXPECT_THAT(
      results_of(vars + "  merged_sgd Param=p, q Grad=g, h LearningRate=rate -> ParamOut=q, p\n",
                 feeds, {"p", "q"}),
      ElementsAre(ElementsAre(8), ElementsAre(0)));
}

TEST(InPlace, TwoOutputsInOneVarAreRefused) {
  auto program = parse_program(
      "block 0 {\n  var x: f32(3, 1)\n  var y: f32(-1, 1)\n"
      "  split X=x -> Out=y, y {axis: 0, sections: [2, 1]}\n}\n",
      "test");
  ASSERT_TRUE(program.ok()) << program.status().to_string();
  Scope scope;
  const auto prepared = Executor(standard_runtime(), {.optimize = false}).prepare(**program, scope);
  EXPECT_EQ(prepared.status().code(), StatusCode::kInvalidProgram);
  EXPECT_THAT(prepared.status().to_string(), HasSubstr("op 0 (split): the op writes 'y' twice"));
}

}  // namespace
}  // namespace millrace::executor

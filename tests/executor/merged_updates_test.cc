// Small updates that run as one op: same bits after a step, and errors name the original op.
#include <gmock/gmock.h>
#include <llvm/ADT/STLExtras.h>

#include "executor/executor.h"
#include "executor/optimize.h"
#include "executor/standard_runtime.h"
#include "framework/text_form/parse.h"
#include "tests/executor/op_types.h"
#include "tests/executor/values.h"

namespace millrace::executor {
namespace {

// Three small updates and one of another type.
constexpr const char* kUpdates = R"(# millrace program 1

block 0 {
  var x: f32(3)
  var g: f32(3)
  var h: f32(3)
  persist rate: f32(1)
  param a: f32(3)
  param b: f32(3)
  param c: f32(3)
  param d: f32(3)

  scale X=x -> Out=g {scale: 0.3}
  scale X=g -> Out=h {scale: 0.7}
  sgd Param=a Grad=g LearningRate=rate -> ParamOut=a
  sgd Param=b Grad=h LearningRate=rate -> ParamOut=b
  proximal_gd Param=d Grad=h LearningRate=rate -> ParamOut=d
  sgd Param=c Grad=g LearningRate=rate -> ParamOut=c
}
)";

TEST(MergedUpdates, AStepHasTheSameBits) {
  const auto program = parse_program(kUpdates, "updates", {});
  ASSERT_TRUE(program.ok()) << program.status().to_string();
  std::vector<std::vector<float>> seen;
  for (const bool optimize : {false, true}) {
    Scope scope;
    for (const char* const name : {"a", "b", "c", "d"})
      scope.local(name) = tensor_value({3}, {0.1F, 0.2F, 0.3F});
    scope.local("rate") = tensor_value({1}, {0.01F});
    auto prepared = Executor(standard_runtime(), {.optimize = optimize}).prepare(**program, scope);
    ASSERT_TRUE(prepared.ok()) << prepared.status().to_string();
    const std::vector<std::string> types = op_types((*prepared)->program());
    EXPECT_EQ(llvm::count(types, "merged_sgd"), optimize ? 1 : 0);
    EXPECT_EQ(llvm::count(types, "sgd"), optimize ? 0 : 3);
    NamedValues feeds;
    std::vector<Value> results;
    for (int step = 0; step < 3; ++step) {
      feeds["x"] = tensor_value({3}, {1.0F + static_cast<float>(step), -2, 0.1F});
      ASSERT_TRUE((*prepared)->run(feeds, {"a", "b", "c", "d", "g"}, results).ok());
      for (const Value& value : results) seen.push_back(floats(value));
    }
  }
  ASSERT_EQ(seen.size(), 30);
  for (size_t i = 0; i < 15; ++i) EXPECT_EQ(seen[i], seen[i + 15]) << i;
  EXPECT_NE(seen[0], seen[5]);
}

TEST(MergedUpdates, AnErrorNamesTheParameterAndAnOpOfTheOriginalProgram) {
  const auto program = parse_program(kUpdates, "updates", {});
  ASSERT_TRUE(program.ok()) << program.status().to_string();
  Scope scope;
  for (const char* const name : {"a", "b", "c", "d"})
    scope.local(name) = tensor_value({3}, {1, 2, 3});
  scope.local("b") = tensor_value({4}, {1, 2, 3, 4});
  scope.local("rate") = tensor_value({1}, {0.01F});
  auto prepared = Executor(standard_runtime(), {}).prepare(**program, scope);
  ASSERT_TRUE(prepared.ok()) << prepared.status().to_string();
  NamedValues feeds;
  feeds["x"] = tensor_value({3}, {1, 2, 3});
  std::vector<Value> results;
  const Status status = (*prepared)->run(feeds, {"g"}, results);
  EXPECT_EQ(status.location().op_type, "sgd") << status.to_string();
  EXPECT_EQ(status.location().var, "b") << status.to_string();
  EXPECT_THAT(status.to_string(), ::testing::HasSubstr("runs as part of a merged_sgd"));
}

TEST(MergedUpdates, OnlyIfAsked) {
  const auto program = parse_program(kUpdates, "updates", {});
  ASSERT_TRUE(program.ok()) << program.status().to_string();
  for (const bool merge : {false, true}) {
    const auto steps = optimization_pipeline(**program, {}, {.merge_updates = merge}).steps;
    EXPECT_EQ(llvm::count_if(steps, [](const auto& step) { return step.pass == "merge-updates"; }),
              merge ? 1 : 0);
  }
}

}  // namespace
}  // namespace millrace::executor

// Plans as --print-plan shows them: order, shapes, offsets in the arena, which var reuses whose
// memory. The kernels here do nothing, so that only the plan is tested.
#include <gtest/gtest.h>

#include "executor/executor.h"
#include "framework/text_form/parse.h"

namespace millrace::executor {
namespace {

StatusOr<kernels::Kernel> nothing(const kernels::KernelSetup& /*op*/) {
  return kernels::Kernel([](const kernels::KernelContext& /*ctx*/) { return Ok(); });
}

// The plan after a run with x [4, 8].
std::string plan_of(const char* block, const std::vector<std::string>& fetch) {
  auto runtime = std::make_shared<Runtime>();
  runtime->ops = ops::standard_registry();
  auto none = std::make_unique<kernels::KernelRegistry>();
  for (const char* const type : {"mul", "mul_grad", "relu", "relu_grad", "elementwise_add", "scale",
                                 "mean", "mean_grad", "fill_constant", "sgd", "concat"})
    none->add(type, nothing);
  runtime->kernels = std::move(none);
  const auto program = parse_program(std::string("# millrace program 1\n") + block, "net", {});
  EXPECT_TRUE(program.ok()) << program.status().to_string();
  Scope scope;
  const auto matrix = [](std::vector<int64_t> dims) {
    Value value;
    EXPECT_TRUE(value.as<Tensor>().resize(DType::kFloat32, dims).ok());
    return value;
  };
  scope.local("w") = matrix({8, 16});
  scope.local("rate") = matrix({1});
  auto prepared = Executor(runtime, {.optimize = false}).prepare(**program, scope);
  EXPECT_TRUE(prepared.ok()) << prepared.status().to_string();
  NamedValues feeds;
  feeds["x"] = matrix({4, 8});
  std::vector<Value> results;
  const Status status = (*prepared)->run(feeds, fetch, results);
  EXPECT_TRUE(status.ok()) << status.to_string();
  return (*prepared)->plan_text();
}

TEST(PlanText, AChainTakesOverTheMemoryOfItsInput) {
  EXPECT_EQ(plan_of(R"(
block 0 {
  var x: f32(-1, 8)
  param w: f32(8, 16)
  var a: f32(-1, 16)
  var b: f32(-1, 16)
  var c: f32(-1, 16)
  var y: f32(-1, 16)

  mul X=x Y=w -> Out=a
  relu X=a -> Out=b
  scale X=b -> Out=c
  relu X=c -> Out=y
})",
                    {"y"}),
            "block 0: 4 steps\n"
            "     0  mul                           a: f32 [4, 16] at 0\n"
            "     1  relu                          b: f32 [4, 16] at 0\n"
            "     2  scale                         c: f32 [4, 16] at 0\n"
            "     3  relu                          y: f32 [4, 16]\n"
            "memory of temporaries: 256 bytes; live at once: 256 bytes\n");
}

TEST(PlanText, WhatHasEndedGivesItsPlaceToOthers) {
  EXPECT_EQ(plan_of(R"(
block 0 {
  var x: f32(-1, 8)
  param w: f32(8, 16)
  var a: f32(-1, 16)
  var b: f32(-1, 16)
  var c: f32(-1, 32)
  var d: f32(1)
  var e: f32(-1, 16)
  var y: f32(-1, 32)

  mul X=x Y=w -> Out=a
  relu X=a -> Out=b
  concat X=a, b -> Out=c {axis: 1}
  mean X=c -> Out=d
  mul X=x Y=w -> Out=e
  concat X=e, e -> Out=y {axis: 1}
})",
                    {"y", "d"}),
            "block 0: 6 steps\n"
            "     0  mul                           a: f32 [4, 16] at 0\n"
            "     1  relu                          b: f32 [4, 16] at 256\n"
            "     2  concat                        c: f32 [4, 32] at 512\n"
            "     3  mean                          d: f32 []\n"
            "     4  mul                           e: f32 [4, 16] at 0\n"
            "     5  concat                        y: f32 [4, 32]\n"
            "memory of temporaries: 1024 bytes; live at once: 1024 bytes\n");
}

TEST(PlanText, AStepOfTrainingUsesTheMemoryOfWhatItNoLongerNeeds) {
  EXPECT_EQ(plan_of(R"(
block 0 {
  var x: f32(-1, 8)
  param w: f32(8, 16)
  persist rate: f32(1)
  var a: f32(-1, 16)
  var b: f32(-1, 16)
  var loss: f32(1)
  var loss@GRAD: f32(1)
  var b@GRAD: f32(-1, 16)
  var a@GRAD: f32(-1, 16)
  var w@GRAD: f32(8, 16)

  mul X=x Y=w -> Out=a
  relu X=a -> Out=b
  mean X=b -> Out=loss
  fill_constant -> Out=loss@GRAD {shape: [1l], value: 1.0}
  mean_grad X=b Out@GRAD=loss@GRAD -> X@GRAD=b@GRAD
  relu_grad Out=b Out@GRAD=b@GRAD -> X@GRAD=a@GRAD
  mul_grad X=x Y=w Out@GRAD=a@GRAD -> Y@GRAD=w@GRAD
  sgd Param=w Grad=w@GRAD LearningRate=rate -> ParamOut=w
})",
                    {"loss"}),
            "block 0: 8 steps\n"
            "     0  mul                           a: f32 [4, 16] at 0\n"
            "     1  relu                          b: f32 [4, 16] at 0\n"
            "     2  mean                          loss: f32 []\n"
            "     3  fill_constant                 loss@GRAD: f32 [1] at 256\n"
            "     4  mean_grad                     b@GRAD: f32 [4, 16] at 320\n"
            "     5  relu_grad                     a@GRAD: f32 [4, 16] at 576\n"
            "     6  mul_grad                      w@GRAD: f32 [8, 16] at 0\n"
            "     7  sgd                           w: f32 [8, 16]\n"
            "memory of temporaries: 832 bytes; live at once: 768 bytes\n");
}

}  // namespace
}  // namespace millrace::executor

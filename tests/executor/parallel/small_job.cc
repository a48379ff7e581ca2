#include "tests/executor/parallel/small_job.h"

#include <gtest/gtest.h>

#include "executor/standard_runtime.h"
#include "framework/tensor/layout.h"
#include "framework/text_form/parse.h"

namespace millrace::executor {
namespace {

constexpr const char* kForward = R"(# millrace
block 0 {
  param w: f32(3, 1)
  param b: f32(1)
  persist lr: f32(1)
  var x: f32(-1, 3)
  var t: f32(-1, 1)
  var m: f32(-1, 1)
  var y: f32(-1, 1)
  var d: f32(-1, 1)
  var s: f32(-1, 1)
  var loss: f32(1)
  var loss@GRAD: f32(1)
  var s@GRAD: f32(-1, 1)
  var d@GRAD: f32(-1, 1)
  var y@GRAD: f32(-1, 1)
  var m@GRAD: f32(-1, 1)
  var b@GRAD: f32(1)
  var w@GRAD: f32(3, 1)
  mul X=x Y=w -> Out=m {op_role: 0}
  elementwise_add X=m Y=b -> Out=y {axis: 1, op_role: 0}
)";

constexpr const char* kTraining = R"(
  elementwise_sub X=y Y=t -> Out=d {op_role: 0}
  square X=d -> Out=s {op_role: 0}
  mean X=s -> Out=loss {op_role: 256}
  fill_constant -> Out=loss@GRAD {shape: [1], value: 1.0, dtype: 5, op_role: 257}
  mean_grad X=s Out@GRAD=loss@GRAD -> X@GRAD=s@GRAD {op_role: 1}
  square_grad X=d Out@GRAD=s@GRAD -> X@GRAD=d@GRAD {op_role: 1}
  elementwise_sub_grad X=y Y=t Out@GRAD=d@GRAD -> X@GRAD=y@GRAD {op_role: 1}
  elementwise_add_grad X=m Y=b Out@GRAD=y@GRAD -> X@GRAD=m@GRAD Y@GRAD=b@GRAD {axis: 1, op_role: 1, op_role_var: ["b", "b@GRAD"]}
  mul_grad X=x Y=w Out@GRAD=m@GRAD -> Y@GRAD=w@GRAD {op_role: 1, op_role_var: ["w", "w@GRAD"]}
  sgd Param=b Grad=b@GRAD LearningRate=lr -> ParamOut=b {op_role: 2, op_role_var: ["b", "b@GRAD"]}
  sgd Param=w Grad=w@GRAD LearningRate=lr -> ParamOut=w {op_role: 2, op_role_var: ["w", "w@GRAD"]}
}
)";

}  // namespace

std::unique_ptr<Program> program_of(const std::string& text) {
  auto program = parse_program(text, "test");
  EXPECT_TRUE(program.ok()) << program.status().to_string();
  return std::move(program).value();
}

std::unique_ptr<Program> linear_regression() {
  return program_of(std::string(kForward) + kTraining);
}

std::unique_ptr<Program> linear_inference() {
  return program_of(std::string(kForward) + "}\n");
}

NamedValues batch(int64_t rows, int seed) {
  std::vector<float> x;
  std::vector<float> t;
  for (int64_t r = 0; r < rows; ++r) {
    float sum = 0.5F;
    for (int c = 0; c < 3; ++c) {
      const auto k = static_cast<int>((r * 7 + c * 5 + seed * 11) % 13);
      x.push_back(static_cast<float>(k - 6) / 7.0F);
      sum += x.back() * static_cast<float>(c + 1);
    }
    t.push_back(sum);
  }
  NamedValues feeds;
  feeds["x"] = tensor_value({rows, 3}, x);
  feeds["t"] = tensor_value({rows, 1}, t);
  return feeds;
}

Job::Job(const ParallelOptions& options, std::unique_ptr<Program> program) {
  scope.local("w") = tensor_value({3, 1}, {0.3F, -0.2F, 0.1F});
  scope.local("b") = tensor_value({1}, {0.05F});
  scope.local("lr") = tensor_value({1}, {0.1F});
  if (program == nullptr) program = linear_regression();
  auto made = ParallelExecutor::create(standard_runtime(), *program, scope, options);
  EXPECT_TRUE(made.ok()) << made.status().to_string();
  if (made.ok()) executor = *std::move(made);
}

std::vector<std::vector<float>> Job::train(int steps, int64_t rows) {
  std::vector<std::vector<float>> losses;
  std::vector<Value> results;
  for (int step = 0; step < steps; ++step) {
    const Status status = executor->run(ParallelFeeds::split(batch(rows, step)), {"loss"}, results);
    EXPECT_TRUE(status.ok()) << status.to_string();
    if (!status.ok()) return losses;
    losses.push_back(floats(results[0]));
  }
  return losses;
}

ParallelOptions devices(int count) {
  ParallelOptions options;
  options.devices = count;
  options.loss_name = "loss";
  return options;
}

}  // namespace millrace::executor

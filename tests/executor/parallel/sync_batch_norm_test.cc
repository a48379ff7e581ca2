#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "executor/standard_runtime.h"
#include "tests/executor/parallel/small_job.h"

namespace millrace::executor {
namespace {

// Rows of x are scaled by w, normalized, weighted by a target each and averaged.
constexpr const char* kNormalised = R"(# millrace
block 0 {
  param w: f32(3, 2)
  param g: f32(2)
  param b: f32(2)
  persist mean: f32(2)
  persist var: f32(2)
  persist lr: f32(1)
  var x: f32(-1, 3)
  var t: f32(-1, 1)
  var h: f32(-1, 2)
  var y: f32(-1, 2)
  var p: f32(-1, 2)
  var sm: f32(2)
  var sv: f32(2)
  var loss: f32(1)
  var loss@GRAD: f32(1)
  var p@GRAD: f32(-1, 2)
  var y@GRAD: f32(-1, 2)
  var h@GRAD: f32(-1, 2)
  var w@GRAD: f32(3, 2)
  var g@GRAD: f32(2)
  var b@GRAD: f32(2)
  mul X=x Y=w -> Out=h {op_role: 0}
  batch_norm X=h Scale=g Bias=b Mean=mean Variance=var -> Y=y MeanOut=mean VarianceOut=var SavedMean=sm SavedVariance=sv {op_role: 0}
  elementwise_mul X=y Y=t -> Out=p {axis: 0, op_role: 0}
  mean X=p -> Out=loss {op_role: 256}
  fill_constant -> Out=loss@GRAD {shape: [1], value: 1.0, dtype: 5, op_role: 257}
  mean_grad X=p Out@GRAD=loss@GRAD -> X@GRAD=p@GRAD {op_role: 1}
  elementwise_mul_grad X=y Y=t Out@GRAD=p@GRAD -> X@GRAD=y@GRAD {axis: 0, op_role: 1}
  batch_norm_grad X=h Scale=g Bias=b SavedMean=sm SavedVariance=sv Y@GRAD=y@GRAD -> X@GRAD=h@GRAD Scale@GRAD=g@GRAD Bias@GRAD=b@GRAD {op_role: 1, op_role_var: ["g", "g@GRAD", "b", "b@GRAD"]}
  mul_grad X=x Y=w Out@GRAD=h@GRAD -> Y@GRAD=w@GRAD {op_role: 1, op_role_var: ["w", "w@GRAD"]}
  sgd Param=g Grad=g@GRAD LearningRate=lr -> ParamOut=g {op_role: 2, op_role_var: ["g", "g@GRAD"]}
  sgd Param=b Grad=b@GRAD LearningRate=lr -> ParamOut=b {op_role: 2, op_role_var: ["b", "b@GRAD"]}
  sgd Param=w Grad=w@GRAD LearningRate=lr -> ParamOut=w {op_role: 2, op_role_var: ["w", "w@GRAD"]}
}
)";

class SyncBatchNormTest : public ::testing::Test {
 protected:
  // Trained values after some steps on the given number of devices.
  std::map<std::string, std::vector<float>> train(int count, bool sync, int64_t rows) {
    Scope scope;
    scope.local("w") = tensor_value({3, 2}, {0.3F, -0.2F, 0.1F, 0.5F, 0.4F, -0.6F});
    scope.local("g") = tensor_value({2}, {1, 0.5F});
    scope.local("b") = tensor_value({2}, {0, 0.1F});
    scope.local("mean") = tensor_value({2}, {0, 0});
    scope.local("var") = tensor_value({2}, {1, 1});
    scope.local("lr") = tensor_value({1}, {0.1F});
    ParallelOptions options = devices(count);
    options.build_strategy.sync_batch_norm = sync;
    options.build_strategy.gradient_scale_strategy = GradientScale::kWeighted;
    auto made =
        ParallelExecutor::create(standard_runtime(), *program_of(kNormalised), scope, options);
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    std::vector<Value> results;
    for (int step = 0; step < 4; ++step) {
      const Status status = (*made)->run(ParallelFeeds::split(batch(rows, step)), {}, results);
      EXPECT_TRUE(status.ok()) << status.to_string();
    }
    std::map<std::string, std::vector<float>> values;
    for (const char* const name : {"w", "g", "b", "mean", "var"})
      values[name] = floats(*(*made)->local_scope(count - 1).find(name));
    return values;
  }
};

TEST_F(SyncBatchNormTest, TrainsAsOneDeviceWithTheWholeBatchDoes) {
  for (const int64_t rows : {8, 11}) {
    const auto one = train(1, false, rows);
    for (const int count : {2, 4}) {
      const auto synced = train(count, true, rows);
      for (const auto& [name, expected] : one) {
        for (size_t i = 0; i < expected.size(); ++i)
          EXPECT_NEAR(synced.at(name)[i], expected[i], 2e-6F) << name << " on " << count;
      }
    }
    EXPECT_NE(train(2, false, rows).at("mean"), one.at("mean")) << "devices apart do differ";
  }
}

TEST_F(SyncBatchNormTest, IsPlainOnOneDevice) {
  EXPECT_EQ(train(1, true, 8), train(1, false, 8));
}

}  // namespace
}  // namespace millrace::executor

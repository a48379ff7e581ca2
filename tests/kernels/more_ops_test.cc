// Ops that the reference corpus lacks and that belong to no other test of a family.
#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/kernels/run_op.h"

namespace millrace::kernels {
namespace {

using ::testing::DoubleNear;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pointwise;
using Values = std::vector<double>;

auto near_more_ops(const Values& values) {
  return Pointwise(DoubleNear(1e-9), values);
}

RunOp prroi_pool(Values rois) {
  RunOp op("prroi_pool");
  op.in("X", {1, 2, 4, 5}, waves(40), kF64);
  const auto count = static_cast<int64_t>(rois.size()) / 4;
  op.in("ROIs", {count, 4}, std::move(rois), kF64, Lod({{0, count}}));
  op.attr("pooled_height", 2).attr("pooled_width", 3).attr("spatial_scale", 0.5F).out("Out");
  return op;
}

TEST(PrroiPool, IntegratesTheInterpolatedImage) {
  RunOp op("prroi_pool");
  // the image increases by 1 per pixel along a row, so the mean of a cell is the value at its
  // center
  op.in("X", {1, 1, 3, 4}, {0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3}, kF64);
  op.in("ROIs", {2, 4}, {0.5, 0.5, 2.5, 1.5, 1, 1, 1, 2}, kF64, Lod({{0, 2}}));
  op.attr("pooled_height", 1).attr("pooled_width", 2).attr("spatial_scale", 1.0F).out("Out");
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(op.values("Out0"), near_more_ops({1, 2, 0, 0}));
}

TEST(PrroiPool, GradientsAgreeWithFiniteDifferences) {
  EXPECT_LT(prroi_pool({1.1, 0.7, 7.3, 6.2, 2.9, 2.3, 5.2, 9.1}).gradient_error({"X"}, "Out0"),
            1e-6);
  EXPECT_LT(prroi_pool({1.1, 0.7, 7.3, 6.2, 2.9, 2.3, 5.2, 9.1}).gradient_error({"ROIs"}, "Out0"),
            1e-5);
}

TEST(CoalesceTensor, MakesPartsOfOneBuffer) {
  for (const bool aligned : {false, true}) {
    RunOp op("coalesce_tensor");
    op.in("Input", {3}, {1, 2, 3}).in("Input", {2, 1}, {4, 5});
    op.attr("copy_data", true).attr("use_align", aligned).attr("align_size", 16);
    op.out("Output", 2).out("FusedOutput");
    ASSERT_EQ(op.run_text(), "ok");
    EXPECT_THAT(op.values("Output0"), ElementsAre(1, 2, 3));
    EXPECT_THAT(op.values("Output1"), ElementsAre(4, 5));
    EXPECT_THAT(dims(op.value("Output1")), ElementsAre(2, 1));
    if (aligned) {
      EXPECT_THAT(op.values("FusedOutput0"), ElementsAre(1, 2, 3, 0, 4, 5, 0, 0));
    } else {
      EXPECT_THAT(op.values("FusedOutput0"), ElementsAre(1, 2, 3, 4, 5));
    }
  }
}

// Layout of the original: multiples of align_size, counted in elements of the given size.
TEST(CoalesceTensor, CountsElementsOfAGivenSize) {
  const auto elements = [](int32_t align, int32_t size) {
    RunOp op("coalesce_tensor");
    op.in("Input", {3}, {1, 2, 3}).in("Input", {2}, {4, 5}).attr("copy_data", true);
    op.attr("align_size", align).attr("user_defined_size_of_dtype", size);
    op.out("Output", 2).out("FusedOutput");
    EXPECT_EQ(op.run_text(), "ok");
    EXPECT_THAT(op.values("Output1"), ElementsAre(4, 5));
    return op.values("FusedOutput0").size();
  };
  EXPECT_EQ(elements(16, -1), 4U + 4U);
  EXPECT_EQ(elements(16, 2), 8U + 8U);
  EXPECT_EQ(elements(6, -1), 3U + 3U);  // 12 bytes each
  RunOp op("coalesce_tensor");
  op.in("Input", {3}, {1, 2, 3}).attr("user_defined_size_of_dtype", 0);
  op.out("Output").out("FusedOutput");
  EXPECT_THAT(op.run_text(), HasSubstr("'user_defined_size_of_dtype' is 0, expected -1 or above"));
}

TEST(Rectifiers, KeepNaN) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const char* const type :
       {"thresholded_relu", "hard_shrink", "softshrink", "celu", "brelu", "hard_sigmoid"}) {
    RunOp op(type);
    op.in("X", {3}, {nan, -0.125, nan}).out("Out");
    ASSERT_EQ(op.run_text(), "ok") << type;
    const std::vector<double> values = op.values("Out0");
    EXPECT_TRUE(std::isnan(values[0]) && !std::isnan(values[1]) && std::isnan(values[2])) << type;
  }
}

// The same in all ops into which passes put it, whatever their sizes and types.
TEST(Rectifiers, ReluMakesZeroOfNaN) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto expect_zero = [](RunOp& op, const char* out) {
    ASSERT_EQ(op.run_text(), "ok") << out;
    const std::vector<double> values = op.values(out);
    EXPECT_THAT(values, Each(::testing::AnyOf(0, 1))) << out;
    EXPECT_THAT(values, ::testing::Contains(0));
  };
  for (const DType dtype : {DType::kFloat32, kF64}) {
    RunOp relu("relu");
    expect_zero(relu.in("X", {4}, {nan, -1, 1, nan}, dtype).out("Out"), "Out0");
    for (const int64_t columns : {1, 40}) {
      RunOp fc("fc");
      fc.in("Input", {2, 1}, {nan, 1}, dtype).in("W", {1, columns}, {1}, dtype).out("Out");
      expect_zero(fc.attr("activation_type", "relu"), "Out0");
    }
  }
  for (const int64_t images : {2, 16}) {
    RunOp conv("fused_conv2d");
    std::vector<double> x(static_cast<size_t>(images), 1);
    x.back() = nan;
    conv.in("Input", {images, 1, 1, 1}, x).in("Filter", {1, 1, 1, 1}, {1}).out("Output");
    expect_zero(conv.attr("activation", "relu"), "Output0");
  }
  RunOp norm("batch_norm");
  norm.in("X", {2, 1, 1, 1}, {nan, 1}).in("Scale", {1}, {1}).in("Bias", {1}, {0});
  norm.in("Mean", {1}, {0}).in("Variance", {1}, {1}).attr("epsilon", 0.0F).attr("is_test", true);
  norm.out("Y").out_in_place("MeanOut", "Mean").out_in_place("VarianceOut", "Variance");
  expect_zero(norm.out("SavedMean").out("SavedVariance").attr("fuse_with_relu", true), "Y0");
}

TEST(CoalesceTensor, FillsAndChecks) {
  RunOp op("coalesce_tensor");
  op.in("Input", {3}, {1}).attr("set_constant", true).attr("constant", 7.0F);
  op.out("Output").out("FusedOutput");
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(op.values("Output0"), Each(7));
  RunOp copied("coalesce_tensor");
  copied.in("Input", {3}, {1, 2, 3}).attr("set_constant", true).attr("copy_data", true);
  ASSERT_EQ(copied.out("Output").out("FusedOutput").run_text(), "ok");
  EXPECT_THAT(copied.values("Output0"), ElementsAre(1, 2, 3));
  RunOp wrong("coalesce_tensor");
  wrong.in("Input", {3}, {1}, kF64).out("Output").out("FusedOutput");
  EXPECT_THAT(wrong.run_text(), HasSubstr("Input[0] is f64 [3], expected elements of f32"));
}

// Reading the var is an error then.
TEST(FakeInit, LeavesAVarWithoutAValue) {
  RunOp op("fake_init");
  op.attr("shape", std::vector<int64_t>{2, 3}).attr("dtype", 5).out("Out");
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_FALSE(op.value("Out0").initialized());
}

TEST(RnnMemoryHelper, CopiesAndHandsTheGradientBack) {
  RunOp op("rnn_memory_helper");
  op.in("X", {2}, {1, 2}).out("Out").with_grad({"X"}).feed("Out0@GRAD", {2}, {3, 4});
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(op.values("Out0"), ElementsAre(1, 2));
  EXPECT_THAT(op.values("X0@GRAD"), ElementsAre(3, 4));
}

// With one process, its batch is the whole batch.
TEST(SyncBatchNorm, IsBatchNormOnOneDevice) {
  std::vector<Values> results;
  for (const char* const type : {"batch_norm", "sync_batch_norm"}) {
    RunOp op(type);
    op.in("X", {3, 2, 2, 2}, waves(24)).in("Scale", {2}, {1, 2}).in("Bias", {2}, {0.5, -1});
    op.in("Mean", {2}, {0}).in("Variance", {2}, {1}).out("Y");
    op.out_in_place("MeanOut", "Mean").out_in_place("VarianceOut", "Variance");
    op.out("SavedMean").out("SavedVariance");
    ASSERT_EQ(op.run_text(), "ok");
    results.push_back(op.values("Y0"));
    results.push_back(op.values("Mean0"));
  }
  EXPECT_EQ(results[0], results[2]);
  EXPECT_EQ(results[1], results[3]);
}

}  // namespace
}  // namespace millrace::kernels

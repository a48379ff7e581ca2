// Kernels of ops/feature: ops that the reference corpus lacks, with values worked out by hand,
// gradients compared with finite differences, and messages.
#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/kernels/run_op.h"

namespace millrace::kernels {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Strings = std::vector<std::string>;
using Values = std::vector<double>;

RunOp batch_fc() {
  RunOp op("batch_fc");
  op.in("Input", {2, 1, 2}, {1, 2, 3, 4}, kF64).in("W", {2, 2, 1}, {1, 1, 2, 0}, kF64);
  op.in("Bias", {2, 1}, {10, 20}, kF64).out("Out");
  return op;
}

TEST(BatchFc, HasAProductForEachSlot) {
  RunOp op = batch_fc();
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(op.values("Out0"), ElementsAre(13, 26));
  EXPECT_LT(batch_fc().gradient_error({"Input", "W", "Bias"}, "Out0"), 1e-6);
}

RunOp bilinear() {
  RunOp op("bilinear_tensor_product");
  op.in("X", {3, 2}, waves(6), kF64).in("Y", {3, 4}, waves(12, 1), kF64);
  op.in("Weight", {5, 2, 4}, waves(40, 2), kF64).in("Bias", {1, 5}, waves(5, 3), kF64).out("Out");
  return op;
}

TEST(BilinearTensorProduct, HasAFormForEachColumn) {
  RunOp op("bilinear_tensor_product");
  op.in("X", {1, 2}, {1, 2}).in("Y", {1, 2}, {3, 4});
  op.in("Weight", {2, 2, 2}, {1, 0, 0, 1, 0, 1, 0, 0}).in("Bias", {1, 2}, {5, 6}).out("Out");
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(op.values("Out0"), ElementsAre(16, 10));
  EXPECT_LT(bilinear().gradient_error({"X", "Y", "Weight", "Bias"}, "Out0"), 1e-6);
}

TEST(Fc, LeavesOutThePaddingOfW) {
  for (const bool relu : {false, true}) {
    Values w(6 * 5, 9);
    w[0] = 1;
    w[5] = -3;
    RunOp op("fc");
    op.in("Input", {1, 2}, {1, 2}).in("W", {6, 5}, w).in("Bias", {1}, {1}).out("Out");
    op.attr("padding_weights", true).attr("activation_type", relu ? "relu" : "");
    ASSERT_EQ(op.run_text(), "ok");
    EXPECT_THAT(op.values("Out0"), ElementsAre(relu ? 0 : -4));
  }
}

RunOp filter(Values filter_tags) {
  RunOp op("filter_by_instag");
  op.in("Ins", {4, 1}, {1, 2, 3, 4}, DType::kFloat32, Lod({{0, 1, 3, 4}}));
  op.in("Ins_tag", {4, 1}, {5, 6, 7, 8}, kI64, Lod({{0, 1, 2, 4}}));
  const auto count = static_cast<int64_t>(filter_tags.size());
  op.in("Filter_tag", {count}, std::move(filter_tags), kI64).attr("out_val_if_empty", int64_t{9});
  op.out("Out").out("LossWeight").out("IndexMap");
  return op;
}

TEST(FilterByInstag, KeepsInstancesThatMeetTheFilter) {
  RunOp op = filter({8, 6});
  op.with_grad({"Ins"}).feed("Out0@GRAD", {3, 1}, {10, 20, 30});
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(op.values("Out0"), ElementsAre(2, 3, 4));
  EXPECT_TRUE(op.tensor("Out0").lod() == Lod({{0, 2, 3}}));
  EXPECT_THAT(op.values("LossWeight0"), ElementsAre(1, 1));
  EXPECT_THAT(op.values("IndexMap0"), ElementsAre(0, 1, 2, 2, 3, 1));
  EXPECT_THAT(op.values("Ins0@GRAD"), ElementsAre(0, 10, 20, 30));
}

TEST(FilterByInstag, GivesOneRowWithoutWeightIfNothingIsKept) {
  RunOp op = filter({1});
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(op.values("Out0"), ElementsAre(9));
  EXPECT_THAT(op.values("LossWeight0"), ElementsAre(0));
}

TEST(FusedElementwise, GradientsAgreeWithFiniteDifferences) {
  for (const char* const unary : {"relu", "scale", "tanh", "sigmoid", "gelu"}) {
    for (const char* const binary : {"elementwise_add", "elementwise_mul"}) {
      for (const bool outside : {false, true}) {
        RunOp op("fused_elemwise_activation");
        op.in("X", {2, 3, 2}, waves(12, 0.4), kF64).in("Y", {3}, waves(3, 1), kF64);
        op.attr("functor_list", outside ? Strings{binary, unary} : Strings{unary, binary});
        op.attr("axis", 1).attr("scale", 3.0F).out("Out").out("IntermediateOut");
        EXPECT_LT(op.gradient_error({"X", "Y"}, "Out0"), 1e-5)
            << unary << ' ' << binary << ' ' << outside;
      }
    }
  }
}

TEST(FusedElementwise, WhatIsNotSavedForTheGradientHasItsValueAllTheSame) {
  RunOp op("fused_elemwise_activation");
  op.in("X", {1, 2}, {1, -2}, kF64).in("Y", {2}, {2, -5}, kF64);
  op.attr("functor_list", Strings{"scale", "elementwise_mul"}).attr("scale", 3.0F);
  op.out("Out").out("IntermediateOut");
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(op.values("IntermediateOut0"), ElementsAre(2, 10));
}

TEST(FusedElementwise, GivesTheGradientOfTheInnerResult) {
  for (const bool outside : {true, false}) {
    RunOp op("fused_elemwise_activation");
    op.in("X", {2, 2}, {1, -2, 3, 4}, kF64).in("Y", {2}, {2, -5}, kF64);
    op.attr("functor_list",
            outside ? Strings{"elementwise_mul", "scale"} : Strings{"scale", "elementwise_mul"});
    op.attr("scale", 3.0F).attr("save_intermediate_out", true).out("Out").out("IntermediateOut");
    op.with_grad({"X", "Y"}).feed("Out0@GRAD", {2, 2}, {1, 10, 100, 1000}, kF64);
    ASSERT_EQ(op.run_text(), "ok");
    // X * (3 Y): the sums of X times Out@GRAD; 3 (X * Y): three times Out@GRAD
    if (outside) {
      EXPECT_THAT(op.values("IntermediateOut0@GRAD"), ElementsAre(301, 3980));
    } else {
      EXPECT_THAT(op.values("IntermediateOut0@GRAD"), ElementsAre(3, 30, 300, 3000));
    }
  }
}

TEST(FusedElementwise, NamesWhatItDoesNotKnow) {
  RunOp op("fused_elemwise_activation");
  op.in("X", {1}, {1}).in("Y", {1}, {1}).out("Out");
  op.attr("functor_list", Strings{"elementwise_add", "cosine"});
  EXPECT_THAT(op.run_text(), HasSubstr("'functor_list' names 'cosine', expected relu"));
}

TEST(Cvm, TakesLogarithmsOfTheCounts) {
  RunOp op("cvm");
  op.in("X", {1, 3}, {std::exp(2.0) - 1, std::exp(1.0) - 1, 7}, kF64)
      .in("CVM", {1, 2}, {4, 5}, kF64);
  op.out("Y").with_grad({"X"}).feed("Y0@GRAD", {1, 3}, {1, 2, 3}, kF64);
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_NEAR(op.values("Y0")[0], 2, 1e-9);
  EXPECT_NEAR(op.values("Y0")[1], -1, 1e-9);
  EXPECT_EQ(op.values("Y0")[2], 7);
  EXPECT_THAT(op.values("X0@GRAD"), ElementsAre(4, 5, 3));
}

TEST(Hash, DependsOnTheSeedAndStaysBelowTheModulus) {
  RunOp op("hash");
  op.in("X", {2, 2}, {1, 2, 1, 2}, DType::kInt32).attr("num_hash", 3).attr("mod_by", int64_t{1000});
  op.out("Out");
  ASSERT_EQ(op.run_text(), "ok");
  const Values hashes = op.values("Out0");
  ASSERT_EQ(hashes.size(), 6U);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(hashes[i], hashes[i + 3]);
    EXPECT_LT(hashes[i], 1000);
  }
  EXPECT_NE(hashes[0], hashes[1]);
}

TEST(AverageAccumulates, TheShortestWindowIsAtMostTheLongest) {
  RunOp op("average_accumulates");
  for (const char* const slot : {"param", "in_sum_1", "in_sum_2", "in_sum_3"})
    op.in(slot, {1}, {1});
  for (const char* const slot : {"in_num_accumulates", "in_old_num_accumulates", "in_num_updates"})
    op.in(slot, {1}, {1}, kI64);
  for (const char* const slot : {"out_sum_1", "out_sum_2", "out_sum_3", "out_num_accumulates",
                                 "out_old_num_accumulates", "out_num_updates"})
    op.out(slot);
  op.attr("max_average_window", int64_t{8});
  EXPECT_THAT(op.run_text(), HasSubstr("'min_average_window' is 10000, expected at most"));
}

// Without its state, the scale would be that of this batch.
TEST(QuantizeLinear, RefusesAStateOfAnotherType) {
  RunOp op("quantize_linear");
  op.in("X", {2}, {1, 2}, kF64).in("Scale", {1}, {1}, kF64).in("ZeroPoint", {1}, {0}, kF64);
  op.in("InState", {1}, {1}).in("InAccum", {1}, {1});
  op.attr("is_test", false).attr("quant_axis", -1);
  op.out("Y").out("OutScale").out("OutState").out("OutAccum");
  EXPECT_THAT(op.run_text(), HasSubstr("InState and InAccum must be one number each"));
}

// The original's kernels do not read it.
TEST(QuantizeLinear, RefusesAZeroPoint) {
  for (const char* const type : {"quantize_linear", "dequantize_linear"}) {
    for (const double zero : {0.0, 3.0}) {
      RunOp op(type);
      op.in("X", {2}, {1, 2}).in("Scale", {1}, {1}).in("ZeroPoint", {1}, {zero}, kI32);
      op.attr("quant_axis", -1).out("Y");
      EXPECT_THAT(op.run_text(), HasSubstr(zero == 0 ? "ok" : "ZeroPoint must be 0"));
    }
  }
}

// They counted as 0.
TEST(FakeQuantize, RefusesStatesOfOtherTypes) {
  for (const char* const slot : {"InScale", "InState", "InAccum"}) {
    RunOp op("fake_quantize_dequantize_moving_average_abs_max");
    op.in("X", {2}, {1, 2});
    for (const std::string name : {"InScale", "InState", "InAccum"})
      op.in(name.c_str(), {1}, {1}, name == slot ? kI64 : DType::kFloat32);
    op.attr("is_test", slot == std::string("InScale"));
    op.out("Out").out("OutScale").out("OutState").out("OutAccum");
    EXPECT_THAT(op.run_text(), HasSubstr(std::string(slot) + " must be one f32 or f64"));
  }
  RunOp op("stright_throuth_estimator_grad");
  EXPECT_THAT(op.out("X@GRAD").run_text(), HasSubstr("Out@GRAD"));
}

// They were memory that nothing had written.
TEST(FakeQuantize, StatesThatDoNotChangeAreHandedOn) {
  for (const char* const type :
       {"moving_average_abs_max_scale", "fake_quantize_dequantize_moving_average_abs_max"}) {
    RunOp op(type);
    op.in("X", {2}, {1, 2}).in("InState", {1}, {1.5}).in("InAccum", {1}, {3});
    if (type[0] == 'f') op.in("InScale", {1}, {2});
    op.attr("is_test", true);
    op.out("Out").out_in_place("OutState", "InState").out_in_place("OutAccum", "InAccum");
    if (type[0] == 'f') op.out("OutScale");
    ASSERT_EQ(op.run_text(), "ok") << type;
    EXPECT_EQ(op.values("InState0"), std::vector<double>{1.5}) << type;
    EXPECT_EQ(op.values("InAccum0"), std::vector<double>{3}) << type;
  }
}

}  // namespace
}  // namespace millrace::kernels

#include <gtest/gtest.h>

#include "tests/ops/one_op.h"

namespace millrace::ops {
namespace {

TEST(BeamOps, HaveRowsThatAreKnownWhenTheyRun) {
  EXPECT_EQ(OneOp("beam_search")
                .in("pre_ids", {4, 1}, kI64, 2)
                .in("pre_scores", {4, 1})
                .in("scores", {4, 7})
                .out("selected_ids")
                .out("selected_scores")
                .out("parent_idx")
                .attr("beam_size", 2)
                .attr("end_id", 0)
                .infer(),
            "selected_ids0 i64[-1, 1] lod2; selected_scores0 f32[-1, 1] lod2; parent_idx0 i32[-1]");
  EXPECT_EQ(OneOp("beam_search")
                .in("pre_ids", {4, 1}, kI64)
                .in("pre_scores", {3, 1})
                .in("scores", {4, 7})
                .out("selected_ids")
                .infer(),
            "error: pre_ids and pre_scores must have the same number of elements, found [4, 1] and "
            "[3, 1]");
}

TEST(Interp, OlderOpsKnowLinesAndVolumes) {
  EXPECT_EQ(x_out("linear_interp", {2, 3, 5}).attr("out_w", 8).infer(), "Out0 f32[2, 3, 8]");
  EXPECT_EQ(x_out("trilinear_interp", {2, 3, 4, 5, 6}).attr("scale", 2.0F).infer(),
            "Out0 f32[2, 3, 8, 10, 12]");
  EXPECT_EQ(x_out("bicubic_interp", {2, 4, 5, 3})
                .attr("out_h", 8)
                .attr("out_w", 9)
                .attr("data_layout", "NHWC")
                .infer(),
            "Out0 f32[2, 8, 9, 3]");
}

TEST(Squares, AreRequired) {
  EXPECT_EQ(OneOp("inverse").in("Input", {2, 3, 3}).out("Output").infer(), "Output0 f32[2, 3, 3]");
  EXPECT_EQ(OneOp("inverse").in("Input", {2, 3, 4}).out("Output").infer(),
            "error: 'Input' must hold square matrices, found [2, 3, 4]");
  EXPECT_EQ(OneOp("inverse").in("Input", {3, 3}).out("Output").grad(),
            "inverse_grad(Output=Output0; Output@GRAD=Output0@GRAD -> Input@GRAD=Input0@GRAD)");
  EXPECT_EQ(x_out("cholesky", {3, 3}).grad(),
            "cholesky_grad(Out=Out0; Out@GRAD=Out0@GRAD -> X@GRAD=X0@GRAD)");
}

TEST(Diagonals, LoseOrAddADim) {
  EXPECT_EQ(
      OneOp("trace").in("Input", {2, 3, 4}).out("Out").attr("axis1", -1).attr("axis2", 0).infer(),
      "Out0 f32[3]");
  EXPECT_EQ(OneOp("trace").in("Input", {2, 3}).out("Out").attr("axis2", 0).infer(),
            "error: attributes 'axis1' and 'axis2' are both dim 0, expected two dims");
  EXPECT_EQ(
      OneOp("diag_embed").in("Input", {2, 3}).out("Out").attr("offset", -2).attr("dim1", 0).infer(),
      "Out0 f32[5, 2, 5]");
}

TEST(WholeTensors, GiveOneValueOrCounts) {
  EXPECT_EQ(OneOp("equal_all").in("X", {2}).in("Y", {3}).out("Out").infer(), "Out0 bool[]");
  EXPECT_EQ(OneOp("allclose").in("Input", {2}).in("Other", {2}).out("Out").infer(), "Out0 bool[]");
  EXPECT_EQ(x_out("histogram", {2, 3}).attr("bins", int64_t{7}).infer(), "Out0 i64[7]");
  EXPECT_EQ(x_out("histogram", {2}).attr("min", 3).attr("max", 1).infer(),
            "error: attribute 'min' is 3, which is above 'max' 1");
  EXPECT_EQ(OneOp("segment_pool")
                .in("X", {5, 2})
                .in("SegmentIds", {5}, kI64)
                .out("Out")
                .out("SummedIds")
                .attr("pooltype", "MEAN")
                .infer(),
            "Out0 f32[-1, 2]; SummedIds0 f32[-1, 1]");
  EXPECT_EQ(OneOp("segment_pool").in("X", {5, 2}).in("SegmentIds", {4}, kI64).out("Out").infer(),
            "error: SegmentIds must have an id for each row of X [5, 2], found [4]");
}

TEST(Samples, HaveShapesOfTheirInputs) {
  EXPECT_EQ(OneOp("seed").out("Out").infer(), "Out0 i32[1]");
  EXPECT_EQ(x_out("bernoulli", {2, 3}).infer(), "Out0 f32[2, 3]");
  EXPECT_EQ(OneOp("empty").out("Out").attr("shape", std::vector<int64_t>{2, 3}).infer(),
            "Out0 f32[2, 3]");
  EXPECT_EQ(
      OneOp("shuffle_batch").in("X", {2, 3, 4}).out("Out").out("ShuffleIdx").out("SeedOut").infer(),
      "Out0 f32[2, 3, 4]; ShuffleIdx0 i64[6]; SeedOut0 i64[1]");
  OneOp logits("sample_logits");
  logits.in("Logits", {4, 9}).in("Labels", {4, 2}, kI64).out("SampledLogits").out("SampledLabels");
  EXPECT_EQ(logits.attr("num_samples", 5).infer(),
            "SampledLogits0 f32[4, 7]; SampledLabels0 i64[4, 2]");
  EXPECT_EQ(logits.attr("use_customized_samples", true).infer(),
            "error: attribute 'use_customized_samples' is true, but CustomizedSamples or "
            "CustomizedProbabilities is missing");
}

TEST(StoredValues, BecomeFloats) {
  EXPECT_EQ(
      OneOp("dequantize_log").in("X", {2, 3}, DType::kInt8).in("Dict", {128}).out("Out").infer(),
      "Out0 f32[2, 3]");
  EXPECT_EQ(
      OneOp("lookup_table_dequant").in("W", {9, 5}).in("Ids", {4, 1}, kI64).out("Out").infer(),
      "Out0 f32[4, 12]");
  EXPECT_EQ(OneOp("lookup_table_dequant").in("W", {9, 5}).in("Ids", {4}, kI64).out("Out").infer(),
            "error: 'Ids' has shape [4], expected a last dim of 1");
}

TEST(Ranking, CountsPairs) {
  OneOp op("positive_negative_pair");
  op.in("Score", {4, 1}).in("Label", {4, 1}).in("QueryID", {4, 1}, kI64);
  op.out("PositivePair").out("NegativePair").out("NeutralPair");
  EXPECT_EQ(op.infer(), "PositivePair0 f32[1]; NegativePair0 f32[1]; NeutralPair0 f32[1]");
  EXPECT_EQ(op.in("AccumulatePositivePair", {1}).infer(),
            "error: only 1 of the three Accumulate inputs are given");
}

TEST(Focus, ChecksSlicesAndChannels) {
  EXPECT_EQ(x_out("similarity_focus", {2, 3, 4, 5}).attr("axis", 1).ints("indexes", {0, 3}).infer(),
            "error: attribute 'indexes' has 3, expected less than dim 1 of X [2, 3, 4, 5]");
  OneOp slice("bilateral_slice");
  slice.in("X", {2, 3, 5, 6}).in("Grid", {2, 8, 4, 3, 2}).in("Guide", {2, 5, 6}).out("Out");
  EXPECT_EQ(slice.infer(),
            "error: Grid [2, 8, 4, 3, 2] must have a multiple of 3 channels for X [2, 3, 5, 6]");
  EXPECT_EQ(slice.attr("has_offset", true).infer(), "Out0 f32[2, 2, 5, 6]");
}

}  // namespace
}  // namespace millrace::ops

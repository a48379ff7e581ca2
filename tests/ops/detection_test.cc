#include <gtest/gtest.h>

#include "tests/ops/one_op.h"

namespace millrace::ops {
namespace {

TEST(Priors, CountBoxes) {
  OneOp prior("prior_box");
  prior.in("Input", {1, 8, 3, 4}).in("Image", {1, 3, 30, 40}).out("Boxes").out("Variances");
  prior.attr("min_sizes", std::vector<float>{16, 24});
  prior.attr("max_sizes", std::vector<float>{32, 48});
  prior.attr("aspect_ratios", std::vector<float>{1, 2, 0.5F});
  // Ratio 0.5 is already included as the inverse of 2.
  EXPECT_EQ(prior.infer(), "Boxes0 f32[3, 4, 8, 4]; Variances0 f32[3, 4, 8, 4]");
  prior.attr("max_sizes", std::vector<float>{32});
  EXPECT_EQ(prior.infer(),
            "error: attribute 'max_sizes' must have as many entries as 'min_sizes' (2), found 1");

  OneOp density("density_prior_box");
  density.in("Input", {1, 8, 3, -1}).in("Image", {1, 3, 30, 40}).out("Boxes");
  density.attr("fixed_sizes", std::vector<float>{4, 8}).ints("densities", {1, 2});
  density.attr("fixed_ratios", std::vector<float>{1, 2});
  EXPECT_EQ(density.infer(), "Boxes0 f32[3, -1, 10, 4]");
  density.attr("flatten_to_2d", true);
  EXPECT_EQ(density.infer(), "Boxes0 f32[-1, 4]");

  OneOp anchors("anchor_generator");
  anchors.in("Input", {1, 8, 3, 4}).out("Anchors");
  anchors.attr("anchor_sizes", std::vector<float>{16, 32});
  anchors.attr("aspect_ratios", std::vector<float>{0.5F, 1, 2});
  anchors.attr("variances", std::vector<float>{0.1F, 0.1F, 0.2F, 0.2F});
  EXPECT_EQ(anchors.infer(), "Anchors0 f32[3, 4, 6, 4]");
}

TEST(Matching, HasARowForEachImage) {
  EXPECT_EQ(OneOp("bipartite_match")
                .in("DistMat", {-1, 10}, kF32, 1)
                .out("ColToRowMatchIndices")
                .out("ColToRowMatchDist")
                .infer(),
            "ColToRowMatchIndices0 i32[-1, 10]; ColToRowMatchDist0 f32[-1, 10]");
  EXPECT_EQ(OneOp("target_assign")
                .in("X", {-1, 1, 4}, kF32, 1)
                .in("MatchIndices", {2, 10}, kI32)
                .out("Out")
                .out("OutWeight")
                .infer(),
            "Out0 f32[2, 10, 4]; OutWeight0 f32[2, 10, 1]");
  EXPECT_EQ(OneOp("mine_hard_examples")
                .in("ClsLoss", {2, 10})
                .in("MatchIndices", {2, 10}, kI32)
                .in("MatchDist", {2, 9})
                .out("NegIndices")
                .infer(),
            "error: MatchIndices and MatchDist must have the same shape, found [2, 10] and [2, 9]");
  for (const char* const slot : {"ClsLoss", "LocLoss"}) {
    OneOp op("mine_hard_examples");
    if (slot != std::string("ClsLoss")) op.in("ClsLoss", {2, 10});
    op.in("MatchIndices", {2, 10}, kI32).in("MatchDist", {2, 10}).in(slot, {1, 20});
    EXPECT_EQ(op.out("NegIndices").infer(), std::string("error: MatchIndices and ") + slot +
                                                " must have the same shape, found [2, 10] and "
                                                "[1, 20]");
  }
}

TEST(Boxes, AreComparedAndCoded) {
  EXPECT_EQ(OneOp("iou_similarity").in("X", {-1, 4}, kF32, 1).in("Y", {7, 4}).out("Out").infer(),
            "Out0 f32[-1, 7] lod1");
  OneOp encode("box_coder");
  encode.in("PriorBox", {7, 4}).in("TargetBox", {3, 4}).out("OutputBox");
  EXPECT_EQ(encode.infer(), "OutputBox0 f32[3, 7, 4]");
  OneOp decode("box_coder");
  decode.in("PriorBox", {7, 4}).in("TargetBox", {3, 6, 4}).out("OutputBox");
  decode.attr("code_type", "decode_center_size");
  EXPECT_EQ(decode.infer(),
            "error: dim 1 of TargetBox [3, 6, 4] must be the number of boxes of PriorBox [7, 4]");
  EXPECT_EQ(OneOp("box_clip").in("Input", {-1, 4}, kF32, 1).out("Output").infer(),
            "Output0 f32[-1, 4] lod1");
  EXPECT_EQ(OneOp("polygon_box_transform").in("Input", {1, 7, 2, 2}).out("Output").infer(),
            "error: Input must have an even number of channels, found [1, 7, 2, 2]");
}

TEST(Proposals, HaveOneLodLevel) {
  const auto proposals = [](const char* type) {
    OneOp op(type);
    op.in("Scores", {1, 3, 4, 4}).in("BboxDeltas", {1, 12, 4, 4}).in("Anchors", {4, 4, 3, 4});
    return op.out("RpnRois").out("RpnRoiProbs").out("RpnRoisNum").infer();
  };
  EXPECT_EQ(proposals("generate_proposals"),
            "RpnRois0 f32[-1, 4] lod1; RpnRoiProbs0 f32[-1, 1] lod1; RpnRoisNum0 i32[-1]");
  EXPECT_EQ(proposals("generate_proposals_v2"),
            "RpnRois0 f32[-1, 4]; RpnRoiProbs0 f32[-1, 1]; RpnRoisNum0 i32[-1]");
  EXPECT_EQ(OneOp("collect_fpn_proposals").in("MultiLevelRois", {-1, 4}).out("FpnRois").infer(),
            "FpnRois0 f32[-1, 4] lod1");
  OneOp distribute("distribute_fpn_proposals");
  distribute.in("FpnRois", {9, 4}).out("MultiFpnRois", 2).out("RestoreIndex");
  distribute.attr("min_level", 2).attr("max_level", 3);
  EXPECT_EQ(distribute.infer(),
            "MultiFpnRois0 f32[-1, 4] lod1; MultiFpnRois1 f32[-1, 4] lod1; "
            "RestoreIndex0 i32[9, 1]");
  distribute.attr("max_level", 4);
  EXPECT_EQ(distribute.infer(),
            "error: MultiFpnRois must have a var for each level from 2 to 4, found 2");
}

TEST(Nms, LeavesTheCountOpen) {
  EXPECT_EQ(
      OneOp("multiclass_nms").in("BBoxes", {2, 9, 4}).in("Scores", {2, 3, 9}).out("Out").infer(),
      "Out0 f32[-1, 6] lod1");
  EXPECT_EQ(OneOp("multiclass_nms3")
                .in("BBoxes", {2, 9, 4})
                .in("Scores", {2, 3, 9})
                .out("Out")
                .out("Index")
                .out("NmsRoisNum")
                .infer(),
            "Out0 f32[-1, 6]; Index0 i32[-1, 1]; NmsRoisNum0 i32[-1]");
  EXPECT_EQ(OneOp("matrix_nms").in("BBoxes", {9, 4}).in("Scores", {2, 3, 9}).out("Out").infer(),
            "error: BBoxes must have rank 3, found [9, 4]");
}

TEST(Yolo, ChecksTheChannels) {
  OneOp box("yolo_box");
  box.in("X", {2, 14, 3, 4}).in("ImgSize", {2, 2}, kI32).out("Boxes").out("Scores");
  box.ints("anchors", {10, 13, 16, 30}).attr("class_num", 2);
  EXPECT_EQ(box.infer(), "Boxes0 f32[2, 24, 4]; Scores0 f32[2, 24, 2]");
  box.attr("iou_aware", true);
  EXPECT_EQ(box.infer(),
            "error: X must have 16 channels, 8 for each of 2 anchors, found [2, 14, 3, 4]");
  box.ints("anchors", {10, 13, 16});
  EXPECT_EQ(box.infer(),
            "error: attribute 'anchors' must hold pairs of width and height, found 3 numbers");

  OneOp loss("yolov3_loss");
  loss.in("X", {2, 14, 3, 4}).in("GTBox", {2, 6, 4}).in("GTLabel", {2, 6}, kI32);
  loss.out("Loss").out("ObjectnessMask").out("GTMatchMask");
  loss.ints("anchors", {10, 13, 16, 30}).ints("anchor_mask", {0, 1}).attr("class_num", 2);
  EXPECT_EQ(loss.infer(), "Loss0 f32[2]; ObjectnessMask0 f32[2, 2, 3, 4]; GTMatchMask0 i32[2, 6]");
}

TEST(DetectorTargets, HaveRowsThatOnlyTheRunKnows) {
  for (const char* const type : {"rpn_target_assign", "retinanet_target_assign"}) {
    OneOp op(type);
    op.in("Anchor", {40, 4}).in("GtBoxes", {-1, 4}, kF32, 1).in("IsCrowd", {-1, 1}, kI32, 1);
    op.in("ImInfo", {-1, 3}).out("LocationIndex").out("ScoreIndex").out("TargetBBox");
    op.out("TargetLabel").out("BBoxInsideWeight");
    EXPECT_EQ(op.infer(),
              "LocationIndex0 i32[-1] lod1; ScoreIndex0 i32[-1] lod1; TargetBBox0 f32[-1, 4] lod1; "
              "TargetLabel0 i32[-1, 1] lod1; BBoxInsideWeight0 f32[-1, 4] lod1");
  }
  OneOp wrong("rpn_target_assign");
  wrong.in("Anchor", {40, 5}).out("LocationIndex");
  EXPECT_EQ(wrong.infer(), "error: Anchor must be [rows, 4], found [40, 5]");

  OneOp proposals("generate_proposal_labels");
  proposals.in("RpnRois", {-1, 4}, kF32, 1).out("BboxTargets").out("MaxOverlapWithGT");
  proposals.attr("class_nums", 3);
  EXPECT_EQ(proposals.infer(), "BboxTargets0 f32[-1, 12] lod1; MaxOverlapWithGT0 f32[-1] lod1");

  OneOp masks("generate_mask_labels");
  masks.in("Rois", {-1, 4}, kF32, 1).in("GtSegms", {-1, 2}, kF32, 3).out("MaskInt32");
  masks.attr("num_classes", 3).attr("resolution", 7);
  EXPECT_EQ(masks.infer(), "MaskInt320 i32[-1, 147] lod1");
}

TEST(DetectorResults, AreRowsOfSix) {
  OneOp retinanet("retinanet_detection_output");
  retinanet.in("BBoxes", {2, 9, 4}).in("BBoxes", {2, 4, 4}).in("Scores", {2, 9, 5});
  retinanet.in("Scores", {2, 4, 5}).in("Anchors", {9, 4}).out("Out");
  EXPECT_EQ(
      retinanet.infer(),
      "error: BBoxes, Scores and Anchors must have the same number of vars, found 2, 2 and 1");
  retinanet.in("Anchors", {4, 4});
  EXPECT_EQ(retinanet.infer(), "Out0 f32[-1, 6] lod1");
  OneOp nms("locality_aware_nms");
  nms.in("BBoxes", {1, 10, 8}).in("Scores", {1, 1, 10}).out("Out");
  EXPECT_EQ(nms.infer(), "Out0 f32[-1, 10] lod1");
}

TEST(BoxDecoder, HasABoxForEachClass) {
  OneOp op("box_decoder_and_assign");
  op.in("PriorBox", {-1, 4}, kF32, 1).in("TargetBox", {-1, 12}).in("BoxScore", {-1, 3});
  op.out("DecodeBox").out("OutputAssignBox");
  EXPECT_EQ(op.infer(), "DecodeBox0 f32[-1, 12]; OutputAssignBox0 f32[-1, 4] lod1");
  OneOp wrong("box_decoder_and_assign");
  wrong.in("PriorBox", {-1, 4}).in("TargetBox", {-1, 12}).in("BoxScore", {-1, 4}).out("DecodeBox");
  EXPECT_EQ(wrong.infer(),
            "error: TargetBox [-1, 12] must have 4 columns for each class of BoxScore [-1, 4]");
}

TEST(DetectionMap, CountsByClass) {
  OneOp op("detection_map");
  op.in("DetectRes", {-1, 6}, kF32, 1).in("Label", {-1, 5}, kF32, 1).attr("class_num", 4);
  op.out("AccumPosCount").out("AccumTruePos").out("AccumFalsePos").out("MAP");
  EXPECT_EQ(op.infer(),
            "AccumPosCount0 i32[4, 1]; AccumTruePos0 f32[-1, 2] lod1; AccumFalsePos0 f32[-1, 2] "
            "lod1; MAP0 f32[1]");
  op.in("PosCount", {4, 1}, kI32);
  EXPECT_EQ(op.infer(), "error: PosCount, TruePos and FalsePos must be given together");
}

}  // namespace
}  // namespace millrace::ops

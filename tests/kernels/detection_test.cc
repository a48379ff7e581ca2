// Ops for training detectors and reading their results. Expected values are worked out by hand; the
// programs of tests/data/ops compare with the original.
#include <algorithm>
#include <cmath>
#include <set>

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

// Two images: two boxes in the first, one in the second, each of 10 x 10 pixels.
RunOp anchors_of(const char* type, Values crowd = {0, 0, 0}) {
  RunOp op(type);
  op.in("Anchor", {5, 4}, {0, 0, 9, 9, 1, 0, 10, 9, 20, 20, 29, 29, 40, 40, 49, 49, -8, 0, 1, 9})
      .in("GtBoxes", {3, 4}, {0, 0, 9, 9, 20, 22, 29, 31, 42, 40, 51, 49}, DType::kFloat32,
          Lod({{0, 2, 3}}))
      .in("IsCrowd", {3, 1}, std::move(crowd), kI32, Lod({{0, 2, 3}}))
      .in("ImInfo", {2, 3}, {60, 60, 1, 60, 60, 1})
      .out("LocationIndex")
      .out("ScoreIndex")
      .out("TargetBBox")
      .out("TargetLabel")
      .out("BBoxInsideWeight");
  return op;
}

RunOp rpn(int batch, float fraction) {
  RunOp op = anchors_of("rpn_target_assign");
  op.attr("rpn_batch_size_per_im", batch).attr("rpn_fg_fraction", fraction);
  op.attr("rpn_straddle_thresh", 0.0F);
  op.attr("use_random", false);
  return op;
}

TEST(RpnTargetAssign, TakesAnchorsByTheirOverlap) {
  RunOp op = rpn(256, 0.5F);
  ASSERT_EQ(op.run_text(), "ok");
  // Anchor 2 overlaps its box by only 80 / 120, but no other overlaps it more; anchor 4 exceeds the
  // image.
  EXPECT_THAT(op.values("LocationIndex0"), ElementsAre(0, 1, 2, 8));
  EXPECT_THAT(op.values("ScoreIndex0"), ElementsAre(0, 1, 2, 3, 8, 5, 6, 7));
  EXPECT_THAT(op.values("TargetLabel0"), ElementsAre(1, 1, 1, 0, 1, 0, 0, 0));
  EXPECT_THAT(op.values("BBoxInsideWeight0"), Each(1));
  EXPECT_EQ(op.tensor("TargetBBox0").lod(), Lod({{0, 3, 4}}));
  EXPECT_EQ(op.tensor("TargetLabel0").lod(), Lod({{0, 4, 8}}));
  EXPECT_THAT(
      op.values("TargetBBox0"),
      Pointwise(DoubleNear(1e-6), Values{0, 0, 0, 0, -0.1, 0, 0, 0, 0, 0.2, 0, 0, 0.2, 0, 0, 0}));
}

TEST(RpnTargetAssign, TheFirstOnesCountWhereThereAreTooMany) {
  RunOp op = rpn(2, 0.5F);
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(op.values("ScoreIndex0"), ElementsAre(0, 3, 8, 5));
}

TEST(RpnTargetAssign, AnAnchorThatOverlapsLittleFillsItsPlaceOnly) {
  RunOp op = rpn(256, 0.5F);
  op.attr("rpn_negative_overlap", 0.7F);
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(op.values("LocationIndex0"), ElementsAre(0, 0, 1, 8));
  EXPECT_THAT(op.values("TargetLabel0"), ElementsAre(1, 1, 0, 0, 0, 0, 0, 0));
  EXPECT_THAT(op.values("BBoxInsideWeight0"),
              ElementsAre(0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0));
}

// 40 anchors without overlap, of which 19 are selected.
TEST(RpnTargetAssign, ARandomChoiceIsTheSameInEveryProcess) {
  const auto chosen = [](bool random) {
    Values anchors;
    for (int i = 0; i < 41; ++i) {
      const double left = i == 0 ? 0 : 100 + 10 * i;
      anchors.insert(anchors.end(), {left, 0, left + 9, 9});
    }
    RunOp op("rpn_target_assign");
    op.in("Anchor", {41, 4}, anchors)
        .in("GtBoxes", {1, 4}, {0, 0, 9, 9}, DType::kFloat32, Lod({{0, 1}}))
        .in("IsCrowd", {1, 1}, {0}, kI32)
        .in("ImInfo", {1, 3}, {900, 900, 1});
    op.out("LocationIndex").out("ScoreIndex").out("TargetBBox").out("TargetLabel");
    op.attr("rpn_batch_size_per_im", 20).attr("rpn_fg_fraction", 0.5F);
    op.attr("rpn_straddle_thresh", 0.0F);
    EXPECT_EQ(op.attr("use_random", random).run_text(), "ok");
    return op.values("ScoreIndex0");
  };
  const Values first = chosen(true);
  EXPECT_EQ(first.size(), 20);
  EXPECT_EQ(first[0], 0);
  EXPECT_EQ(std::set<double>(first.begin(), first.end()).size(), 20);
  EXPECT_NE(first, chosen(false));
  EXPECT_EQ(first, chosen(true));
}

TEST(RpnTargetAssign, AnImageWithoutObjectsIsBackground) {
  RunOp op = anchors_of("rpn_target_assign", {0, 0, 1});
  op.attr("use_random", false).attr("rpn_straddle_thresh", 0.0F);
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(op.values("ScoreIndex0"), ElementsAre(0, 1, 2, 3, 5, 6, 7, 8));
  EXPECT_EQ(op.tensor("LocationIndex0").lod(), Lod({{0, 3, 3}}));
}

TEST(RpnTargetAssign, RefusesAnotherNumberOfImages) {
  RunOp wrong("rpn_target_assign");
  wrong.in("Anchor", {1, 4}, {0, 0, 9, 9})
      .in("GtBoxes", {1, 4}, {0, 0, 9, 9}, DType::kFloat32, Lod({{0, 1}}))
      .in("IsCrowd", {1, 1}, {0}, kI32)
      .in("ImInfo", {2, 3}, {1})
      .out("LocationIndex")
      .out("ScoreIndex")
      .out("TargetBBox")
      .out("TargetLabel")
      .attr("rpn_straddle_thresh", 0.0F);
  EXPECT_THAT(wrong.run_text(), HasSubstr("GtBoxes must have a LoD of 2 images, found 1"));
}

TEST(RetinanetTargetAssign, TakesClassesAndAllAnchors) {
  RunOp op = anchors_of("retinanet_target_assign");
  op.in("GtLabels", {3, 1}, {4, 5, 6}, kI32, Lod({{0, 2, 3}})).out("ForegroundNumber");
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(op.values("ScoreIndex0"), ElementsAre(0, 1, 2, 3, 4, 8, 5, 6, 7, 9));
  EXPECT_THAT(op.values("TargetLabel0"), ElementsAre(4, 4, 5, 0, 0, 6, 0, 0, 0, 0));
  EXPECT_THAT(op.values("ForegroundNumber0"), ElementsAre(4, 2));
  EXPECT_EQ(op.tensor("ForegroundNumber0").lod(), Lod({{0, 1, 2}}));
}

RunOp proposals(int batch) {
  RunOp op("generate_proposal_labels");
  const Lod two({{0, 2}});
  op.in("RpnRois", {4, 4}, {2, 0, 20, 18, 80, 80, 90, 90, 0, 0, 18, 18, 40, 42, 58, 60},
        DType::kFloat32, Lod({{0, 4}}))
      .in("GtClasses", {2, 1}, {2, 1}, kI32, two)
      .in("IsCrowd", {2, 1}, {0, 1}, kI32, two)
      .in("GtBoxes", {2, 4}, {0, 0, 9, 9, 20, 20, 29, 29}, DType::kFloat32, two)
      .in("ImInfo", {1, 3}, {100, 100, 2})
      .out("Rois")
      .out("LabelsInt32")
      .out("BboxTargets")
      .out("BboxInsideWeights")
      .out("BboxOutsideWeights")
      .out("MaxOverlapWithGT")
      .attr("batch_size_per_im", batch)
      .attr("fg_fraction", 0.5F)
      .attr("fg_thresh", 0.5F)
      .attr("bg_thresh_hi", 0.5F)
      .attr("bg_thresh_lo", 0.0F)
      .attr("bbox_reg_weights", std::vector<float>{0.1F, 0.1F, 0.2F, 0.2F})
      .attr("class_nums", 3)
      .attr("use_random", false);
  return op;
}

// Box 1 is a crowd and not a region. The regions refer to an image of twice the size.
TEST(GenerateProposalLabels, PutsTrueBoxesAndForegroundFirst) {
  RunOp op = proposals(8);
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(op.values("LabelsInt320"), ElementsAre(2, 2, 2, 1, 0));
  EXPECT_THAT(op.values("Rois0"), ElementsAre(0, 0, 18, 18, 2, 0, 20, 18, 0, 0, 18, 18, 40, 42, 58,
                                              60, 80, 80, 90, 90));
  const double most = 9.0 / 11;
  EXPECT_THAT(op.values("MaxOverlapWithGT0"),
              Pointwise(DoubleNear(1e-6), Values{1.0, most, 1.0, most, 0.0}));
  Values targets(60, 0);
  targets[12 + 8] = -1;
  targets[36 + 5] = -1;
  EXPECT_THAT(op.values("BboxTargets0"), Pointwise(DoubleNear(1e-5), targets));
  Values weights(60, 0);
  for (const size_t at : {8, 20, 32, 40}) std::fill_n(weights.begin() + at, 4, 1);
  EXPECT_EQ(op.values("BboxInsideWeights0"), weights);
  EXPECT_EQ(op.values("BboxOutsideWeights0"), weights);
  EXPECT_EQ(op.tensor("Rois0").lod(), Lod({{0, 5}}));
}

TEST(GenerateProposalLabels, TheFirstOnesCountWhereThereAreTooMany) {
  RunOp op = proposals(2);
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(op.values("Rois0"), ElementsAre(0, 0, 18, 18, 80, 80, 90, 90));
}

TEST(GenerateProposalLabels, TheStageBeforeGivesEachTrueBoxOnce) {
  RunOp op = proposals(2);
  op.in("MaxOverlap", {4}, {0.8, 0, 1, 0.8}).attr("is_cascade_rcnn", true);
  op.attr("is_cls_agnostic", true);
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(op.values("LabelsInt320"), ElementsAre(2, 2, 1, 0));
  EXPECT_EQ(op.values("BboxInsideWeights0")[4], 1);
  RunOp without = proposals(2);
  without.attr("is_cascade_rcnn", true);
  EXPECT_THAT(without.run_text(), HasSubstr("input MaxOverlap holds no tensor"));
}

TEST(GenerateProposalLabels, RefusesAClassBeyondTheirNumber) {
  RunOp op = proposals(8);
  op.attr("class_nums", 2);
  EXPECT_THAT(op.run_text(), HasSubstr("class 2, expected less than 'class_nums' 2"));
}

TEST(GenerateMaskLabels, DrawsThePolygonsOfTheBestObject) {
  RunOp op("generate_mask_labels");
  op.in("ImInfo", {1, 3}, {20, 20, 2})
      .in("GtClasses", {2, 1}, {1, 2}, kI32, Lod({{0, 2}}))
      .in("IsCrowd", {2, 1}, {0}, kI32, Lod({{0, 2}}))
      .in("GtSegms", {12, 2},
          {0, 0, 2, 0, 2, 4, 0, 4, 3, 0, 4, 0, 4, 4, 3, 4, 6, 6, 9, 6, 9, 9, 6, 9}, DType::kFloat32,
          Lod({{0, 2}, {0, 2, 3}, {0, 4, 8, 12}}))
      .in("Rois", {2, 4}, {10, 10, 18, 18, 0, 0, 8, 8}, DType::kFloat32, Lod({{0, 2}}))
      .in("LabelsInt32", {2, 1}, {0, 1}, kI32, Lod({{0, 2}}))
      .out("MaskRois")
      .out("RoiHasMaskInt32")
      .out("MaskInt32")
      .attr("num_classes", 2)
      .attr("resolution", 4);
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(op.values("MaskRois0"), ElementsAre(0, 0, 8, 8));
  EXPECT_THAT(op.values("RoiHasMaskInt320"), ElementsAre(1));
  Values wanted(16, -1);
  for (int row = 0; row < 4; ++row) wanted.insert(wanted.end(), {1, 1, 0, 1});
  EXPECT_EQ(op.values("MaskInt320"), wanted);
  EXPECT_EQ(op.tensor("MaskInt320").lod(), Lod({{0, 1}}));
}

// A coordinate below 0 is rounded away from 0, like one above: the left end of the edge is at -7 in
// the grid five times as fine, and the first column begins at its third line.
TEST(GenerateMaskLabels, RoundsBothWaysAwayFromZero) {
  RunOp op("generate_mask_labels");
  op.in("ImInfo", {1, 3}, {20, 20, 1})
      .in("GtClasses", {1, 1}, {1}, kI32, Lod({{0, 1}}))
      .in("IsCrowd", {1, 1}, {0}, kI32, Lod({{0, 1}}))
      .in("GtSegms", {3, 2}, {-1.3053699, 4.8696823, -2.2196836, 7.5839934, 2.2134938, 8.26375},
          DType::kFloat32, Lod({{0, 1}, {0, 1}, {0, 3}}))
      .in("Rois", {1, 4}, {0, 0, 8, 8}, DType::kFloat32, Lod({{0, 1}}))
      .in("LabelsInt32", {1, 1}, {1}, kI32, Lod({{0, 1}}))
      .out("MaskRois")
      .out("RoiHasMaskInt32")
      .out("MaskInt32")
      .attr("num_classes", 2)
      .attr("resolution", 8);
  ASSERT_EQ(op.run_text(), "ok");
  Values wanted(128, -1);
  std::fill_n(wanted.begin() + 64, 64, 0);
  wanted[64 + 56] = wanted[64 + 57] = 1;
  EXPECT_EQ(op.values("MaskInt320"), wanted);
}

TEST(GenerateMaskLabels, RefusesWhatItCannotDraw) {
  const auto draw = [](double far, double label) {
    RunOp op("generate_mask_labels");
    op.in("ImInfo", {1, 3}, {20, 20, 1})
        .in("GtClasses", {1, 1}, {label}, kI32, Lod({{0, 1}}))
        .in("IsCrowd", {1, 1}, {0}, kI32, Lod({{0, 1}}))
        .in("GtSegms", {3, 2}, {0, 0, far, 1, 2, 3}, DType::kFloat32, Lod({{0, 1}, {0, 1}, {0, 3}}))
        .in("Rois", {1, 4}, {0, 0, 8, 8}, DType::kFloat32, Lod({{0, 1}}))
        .in("LabelsInt32", {1, 1}, {1}, kI32, Lod({{0, 1}}));
    op.out("MaskRois").out("RoiHasMaskInt32").out("MaskInt32");
    return op.attr("num_classes", 2).attr("resolution", 8).run_text();
  };
  EXPECT_THAT(draw(1e9, 1), HasSubstr("is too far from box"));
  EXPECT_THAT(draw(std::nan(""), 1), HasSubstr("is too far from box"));
  EXPECT_THAT(draw(5, 0), HasSubstr("region of class 1, but no object with an outline"));
}

TEST(RetinanetDetectionOutput, DecodesClipsAndThinsOut) {
  RunOp op("retinanet_detection_output");
  op.in("BBoxes", {1, 2, 4}, {0, 0, 0, 0, 0.1, 0, 0, 0})
      .in("BBoxes", {1, 1, 4}, {0})
      .in("Scores", {1, 2, 2}, {0.9, 0.04, 0.8, 0.6})
      .in("Scores", {1, 1, 2}, {0.01, 0})
      .in("Anchors", {2, 4}, {0, 0, 19, 19, 0, 0, 19, 19})
      .in("Anchors", {1, 4}, {20, 20, 99, 99})
      .in("ImInfo", {1, 3}, {60, 80, 2})
      .out("Out");
  op.attr("score_threshold", 0.05F).attr("nms_top_k", 10).attr("nms_threshold", 0.3F);
  op.attr("nms_eta", 1.0F).attr("keep_top_k", 10);
  ASSERT_EQ(op.run_text(), "ok");
  // The last level returns the boxes it has; its box is clipped at 39 and 29.
  EXPECT_THAT(op.values("Out0"), Pointwise(DoubleNear(1e-5), Values{1, 0.9, 0, 0, 9.5, 9.5, 2, 0.6,
                                                                    1, 0, 10.5, 9.5,  //
                                                                    1, 0.01, 10, 10, 39, 29}));
  EXPECT_EQ(op.tensor("Out0").lod(), Lod({{0, 3}}));
  op.attr("keep_top_k", 1);
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_EQ(op.values("Out0").size(), 6);
}

TEST(RetinanetDetectionOutput, FindsNothing) {
  RunOp op("retinanet_detection_output");
  op.in("BBoxes", {1, 1, 4}, {0}).in("Scores", {1, 1, 1}, {0}).in("Anchors", {1, 4}, {0});
  op.in("ImInfo", {1, 3}, {9, 9, 1}).out("Out");
  op.attr("score_threshold", 0.0F).attr("nms_top_k", 1).attr("nms_threshold", 0.3F);
  op.attr("nms_eta", 1.0F).attr("keep_top_k", 1);
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(dims(op.value("Out0")), ElementsAre(0, 6));
  EXPECT_EQ(op.tensor("Out0").lod(), Lod({{0, 0}}));
}

TEST(LocalityAwareNms, NeighboursThatOverlapAreOne) {
  RunOp op("locality_aware_nms");
  op.in("BBoxes", {1, 3, 4}, {0, 0, 10, 10, 0, 0, 10, 12, 50, 50, 60, 60})
      .in("Scores", {1, 1, 3}, {0.25, 0.75, 0.5})
      .out("Out");
  op.attr("score_threshold", 0.1F).attr("nms_top_k", -1).attr("keep_top_k", -1);
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(op.values("Out0"), ElementsAre(0, 1, 0, 0, 10, 11.5, 0, 0.5, 50, 50, 60, 60));
  EXPECT_EQ(op.tensor("Out0").lod(), Lod({{0, 2}}));
  op.attr("score_threshold", 2.0F);
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(op.values("Out0"), ElementsAre(-1));
}

RunOp average_precision(const char* type, bool difficult) {
  RunOp op("detection_map");
  // class, difficult, box; the second object of class 1 is difficult
  op.in("Label", {3, 6}, {1, 0, 0, 0, 0.4, 0.4, 1, 1, 0.5, 0.5, 0.9, 0.9, 2, 0, 0, 0, 0.2, 0.2},
        DType::kFloat32, Lod({{0, 2, 3}}))
      .in("DetectRes", {4, 6},
          {1, 0.3, 0, 0, 0.4, 0.4, 1, 0.9, 0.5, 0.5, 0.9, 0.9, 1, 0.6, 0, 0.6, 0.3, 0.9,  //
           2, 0.5, 0, 0, 0.2, 0.2},
          DType::kFloat32, Lod({{0, 3, 4}}))
      .out("AccumPosCount")
      .out("AccumTruePos")
      .out("AccumFalsePos")
      .out("MAP")
      .attr("class_num", 3)
      .attr("ap_type", type)
      .attr("evaluate_difficult", difficult);
  return op;
}

TEST(DetectionMap, IsTheMeanOverClasses) {
  RunOp op = average_precision("integral", true);
  ASSERT_EQ(op.run_text(), "ok");
  // class 1: hit, miss, hit of two objects: 1 * 1/2 + 2/3 * 1/2
  EXPECT_THAT(op.values("MAP0"), ElementsAre(DoubleNear((5.0 / 6 + 1) / 2, 1e-6)));
  EXPECT_THAT(op.values("AccumPosCount0"), ElementsAre(0, 2, 1));
  EXPECT_EQ(op.tensor("AccumTruePos0").lod(), Lod({{0, 0, 3, 4}}));
  EXPECT_THAT(op.values("AccumFalsePos0"),
              Pointwise(DoubleNear(1e-6), Values{0.9, 0, 0.6, 1, 0.3, 0, 0.5, 0}));
  RunOp easy = average_precision("11point", false);
  ASSERT_EQ(easy.run_text(), "ok");
  // class 1: miss, hit of one object: 1/2 at every recall
  EXPECT_THAT(easy.values("MAP0"), ElementsAre(DoubleNear(0.75, 1e-6)));
}

TEST(DetectionMap, GoesOnFromWhatWasCounted) {
  RunOp op = average_precision("integral", true);
  op.in("HasState", {1}, {1}, kI32).in("PosCount", {3, 1}, {0, 2, 0}, kI32);
  op.in("TruePos", {1, 2}, {0.95, 1}, DType::kFloat32, Lod({{0, 0, 1, 1}}));
  op.in("FalsePos", {1, 2}, {0.95, 0}, DType::kFloat32, Lod({{0, 0, 1, 1}}));
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(op.values("AccumPosCount0"), ElementsAre(0, 4, 1));
  // class 1: hit, hit, miss, hit of four objects
  EXPECT_THAT(op.values("MAP0"), ElementsAre(DoubleNear((0.5 + 0.25 * 0.75 + 1) / 2, 1e-6)));
}

TEST(BoxDecoderAndAssign, TakesTheBoxOfTheBestClass) {
  RunOp op("box_decoder_and_assign");
  op.in("PriorBox", {2, 4}, {0, 0, 9, 9, 10, 10, 29, 29}, DType::kFloat32, Lod({{0, 2}}))
      .in("PriorBoxVar", {4}, {0.1, 0.1, 0.2, 0.2})
      .in("TargetBox", {2, 8}, {0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 100, 0})
      .in("BoxScore", {2, 2}, {0.9, 0.1, 0, -1})
      .out("DecodeBox")
      .out("OutputAssignBox")
      .attr("box_clip", 0.0F);
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(op.values("OutputAssignBox0"), ElementsAre(2, 0, 11, 9, 10, 10, 29, 29));
  EXPECT_THAT(op.values("DecodeBox0"),
              ElementsAre(0, 0, 9, 9, 2, 0, 11, 9, 10, 10, 29, 29, 10, 10, 29, 29));
  EXPECT_EQ(op.tensor("OutputAssignBox0").lod(), Lod({{0, 2}}));
}

TEST(DensityPriorBox, MovesOnlyOuterEdgesWithoutClip) {
  for (const bool clip : {false, true}) {
    for (const auto& [offset, kept] : {std::pair(2.0F, 1.875), std::pair(-1.0F, -0.875)}) {
      RunOp op("density_prior_box");
      op.in("Input", {1, 1, 1, 1}, {0}).in("Image", {1, 1, 8, 8}, Values(64, 0));
      op.attr("fixed_sizes", std::vector<float>{2}).attr("fixed_ratios", std::vector<float>{1});
      op.attr("densities", std::vector<int32_t>{1}).attr("offset", offset).attr("clip", clip);
      op.out("Boxes").out("Variances");
      ASSERT_EQ(op.run_text(), "ok");
      const double near = clip ? std::clamp(kept, 0.0, 1.0) : kept;
      const Values boxes = kept > 1 ? Values{near, near, 1, 1} : Values{0, 0, near, near};
      EXPECT_EQ(op.values("Boxes0"), boxes);
    }
  }
}

TEST(SigmoidFocalLoss, WeighsWhatIsKnownLess) {
  RunOp op("sigmoid_focal_loss");
  op.in("X", {3, 2}, {0, 0, 100, -100, 1, 2}, kF64)
      .in("Label", {3, 1}, {1, 1, -1}, kI32)
      .in("FgNum", {1}, {2}, kI32)
      .out("Out");
  ASSERT_EQ(op.run_text(), "ok");
  const double at_half = std::log(2.0) / 4 / 2;
  EXPECT_THAT(op.values("Out0"), Pointwise(DoubleNear(1e-12), Values{0.25 * at_half, 0.75 * at_half,
                                                                     0.0, 0.0, 0.0, 0.0}));
}

TEST(SigmoidFocalLoss, GradientsAgreeWithFiniteDifferences) {
  RunOp op("sigmoid_focal_loss");
  op.in("X", {4, 3}, noise(12), kF64).in("Label", {4, 1}, {0, 1, 3, -1}, kI32);
  op.in("FgNum", {1}, {0}, kI32).out("Out").attr("gamma", 1.5F).attr("alpha", 0.4F);
  EXPECT_LT(op.gradient_error({"X"}, "Out0"), 1e-6);
}

}  // namespace
}  // namespace millrace::kernels

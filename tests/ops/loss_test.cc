#include <gtest/gtest.h>

#include "framework/op_attrs.h"
#include "tests/ops/op_fixture.h"

namespace millrace::ops {
namespace {

TEST(CrossEntropy, HardAndSoftLabels) {
  EXPECT_EQ(infer("cross_entropy", "X=f32[-1,5]@1 Label=i64[-1,1]@1", "Y"), "Y=f32[-1,1]@1");
  EXPECT_EQ(infer("cross_entropy", "X=f32[4,5] Label=i64[4]", "Y"), "Y=f32[4]");
  EXPECT_EQ(infer("cross_entropy", "X=f32[2,3,5] Label=f32[2,3,5]", "Y",
                  {{"soft_label", make_attr(true)}}),
            "Y=f32[2,3,1]");
  EXPECT_EQ(infer("cross_entropy", "X=f32[4,5] Label=i64[4,5]", "Y"),
            "Label must have shape [4, 1] for X [4, 5] and hard labels, found [4, 5]");
  EXPECT_EQ(infer("bpr_loss", "X=f32[4,5] Label=i64[4,1]", "Y"), "Y=f32[4,1]");
  EXPECT_EQ(grad("cross_entropy", "X Label", "Y", {}, "Label"),
            "cross_entropy_grad(Label X Y@GRAD -> X@GRAD)");
}

TEST(CrossEntropy, SecondFormCarriesTheShape) {
  EXPECT_EQ(infer("cross_entropy2", "X=f32[4,5] Label=i64[4,1]", "Y XShape MatchX"),
            "Y=f32[4,1] XShape=f32[4,5,0] MatchX=f32[4,1]");
  EXPECT_EQ(grad("cross_entropy2", "X Label", "Y XShape MatchX", {}, "Label"),
            "cross_entropy_grad2(Label MatchX XShape Y@GRAD -> X@GRAD)");
  EXPECT_EQ(infer("cross_entropy_grad2",
                  "Label=i64[4,1] MatchX=f32[4,1] XShape=f32[4,5,0] Y@GRAD=f32[4,1]", "X@GRAD"),
            "X@GRAD=f32[4,5]");
}

TEST(SoftmaxWithCrossEntropy, AlongAnAxis) {
  EXPECT_EQ(infer("softmax_with_cross_entropy", "Logits=f32[2,3,4] Label=i64[2,1,4]",
                  "Softmax Loss", {{"axis", make_attr(1)}}),
            "Softmax=f32[2,3,4] Loss=f32[2,1,4]");
  EXPECT_EQ(infer("softmax_with_cross_entropy", "Logits=f32[2,3,4] Label=i64[2,3]", "Loss"),
            "Loss=f32[2,3,1]");
  EXPECT_EQ(infer("softmax_with_cross_entropy", "Logits=f32[2,3,4] Label=i64[3,2]", "Loss"),
            "Label must have shape [2, 3, 1] for Logits [2, 3, 4], axis 2 and hard labels, found "
            "[3, 2]");
  EXPECT_EQ(infer("softmax_with_cross_entropy", "Logits=f32[4,5] Label=i64[4,2]", "Loss"),
            "Label must have shape [4, 1] for Logits [4, 5], axis 1 and hard labels, found [4, 2]");
  EXPECT_EQ(grad("softmax_with_cross_entropy", "Logits Label", "Softmax Loss", {}, "Label"),
            "softmax_with_cross_entropy_grad(Label Loss@GRAD Softmax -> Logits@GRAD)");
  EXPECT_EQ(infer("softmax_with_cross_entropy_grad",
                  "Label=i64[4,1] Loss@GRAD=f32[4,1] Softmax=f32[4,5]", "Logits@GRAD"),
            "Logits@GRAD=f32[4,5]");
}

TEST(ElementwiseLosses, ShapeOfThePrediction) {
  EXPECT_EQ(infer("log_loss", "Predicted=f32[-1,1] Labels=f32[-1,1]", "Loss"), "Loss=f32[-1,1]");
  EXPECT_EQ(infer("huber_loss", "X=f32[4,1] Y=f32[4,1]", "Out Residual"),
            "Out=f32[4,1] Residual=f32[4,1]");
  EXPECT_EQ(infer("bce_loss", "X=f32[4,1] Label=f32[5,1]", "Out"),
            "X and Label must have the same number of elements, found [4, 1] and [5, 1]");
  EXPECT_EQ(infer("bce_loss", "X=f32[4,1] Label=f32[4]", "Out"), "Out=f32[4,1]");
  EXPECT_EQ(infer("bce_loss", "X=f32[4,3] Label=f32[2,6]", "Out"),
            "X and Label must have the same dims other than 1, found [4, 3] and [2, 6]");
  EXPECT_EQ(infer("huber_loss", "X=f32[4,3] Y=f32[3,4]", "Out"),
            "X and Y must have the same dims other than 1, found [4, 3] and [3, 4]");
  EXPECT_EQ(grad("huber_loss", "X Y", "Out Residual"),
            "huber_loss_grad(Out@GRAD Residual -> X@GRAD Y@GRAD)");
  EXPECT_EQ(infer("huber_loss_grad", "Residual=f32[4,1] Out@GRAD=f32[4,1]", "X@GRAD Y@GRAD"),
            "X@GRAD=f32[4,1] Y@GRAD=f32[4,1]");
}

TEST(RowLosses, OneValueARow) {
  EXPECT_EQ(infer("smooth_l1_loss", "X=f32[-1,4] Y=f32[-1,4]", "Diff Out"),
            "Diff=f32[-1,4] Out=f32[-1,1]");
  EXPECT_EQ(infer("smooth_l1_loss", "X=f32[3,4] Y=f32[3,4] InsideWeight=f32[3,4]", "Out"),
            "InsideWeight and OutsideWeight must be given together, found one of them");
  EXPECT_EQ(grad("smooth_l1_loss", "X Y", "Diff Out"),
            "smooth_l1_loss_grad(Diff Out@GRAD -> X@GRAD Y@GRAD)");
  EXPECT_EQ(infer("squared_l2_distance", "X=f32[3,4] Y=f32[1,4]", "sub_result Out"),
            "sub_result=f32[3,4] Out=f32[3,1]");
  EXPECT_EQ(infer("squared_l2_distance", "X=f32[3,4] Y=f32[3,5]", "Out"),
            "Y must have the rows of X or one, and as many columns, found [3, 4] and [3, 5]");
  EXPECT_EQ(
      infer("center_loss", "X=f32[3,4] Label=i64[3,1] Centers=f32[10,4] CenterUpdateRate=f32[1]",
            "SampleCenterDiff Loss CentersOut"),
      "SampleCenterDiff=f32[3,4] Loss=f32[3,1] CentersOut=f32[10,4]");
}

TEST(RankLosses, CompareScores) {
  EXPECT_EQ(infer("rank_loss", "Label=f32[4,1] Left=f32[4,1] Right=f32[4,1]", "Out"),
            "Out=f32[4,1]");
  EXPECT_EQ(grad("margin_rank_loss", "Label X1 X2", "Activated Out", {}, "Label"),
            "margin_rank_loss_grad(Activated Label Out@GRAD -> X1@GRAD X2@GRAD)");
  EXPECT_EQ(infer("margin_rank_loss", "Label=f32[4,1] X1=f32[4,1] X2=f32[3,1]", "Out"),
            "X1 and X2 must have the same number of elements, found [4, 1] and [3, 1]");
}

TEST(ReducedLosses, RankZeroUnlessAskedForEach) {
  const AttrList each = {{"reduction", make_attr("none")}};
  EXPECT_EQ(infer("kldiv_loss", "X=f32[4,3] Target=f32[4,3]", "Loss"), "Loss=f32[]");
  EXPECT_EQ(infer("kldiv_loss", "X=f32[4,3] Target=f32[4,3]", "Loss", each), "Loss=f32[4,3]");
  EXPECT_EQ(infer("nll_loss", "X=f32[2,3,8] Label=i64[2,8]", "Out Total_weight", each),
            "Out=f32[2,8] Total_weight=f32[]");
  EXPECT_EQ(infer("nll_loss", "X=f32[2,3] Label=i64[2] Weight=f32[4]", "Out"),
            "Weight must have 3 elements, found [4]");
  EXPECT_EQ(infer("label_smooth", "X=f32[4,5] PriorDist=f32[1,4]", "Out"),
            "PriorDist must have 5 elements, found [1, 4]");
}

TEST(Metrics, ShapesAndTypes) {
  EXPECT_EQ(infer("accuracy", "Out=f32[-1,5] Indices=i64[-1,5] Label=i64[-1,1]",
                  "Accuracy Correct Total"),
            "Accuracy=f32[] Correct=i32[] Total=i32[]");
  EXPECT_EQ(infer("accuracy", "Out=f32[4,5] Indices=i64[4,5] Label=i64[3,1]", "Accuracy"),
            "Indices and Label must have the same number of rows, found [4, 5] and [3, 1]");
  EXPECT_EQ(
      infer("auc", "Predict=f32[8,2] Label=i64[8,1] StatPos=i64[1,16385] StatNeg=i64[1,16385]",
            "AUC StatPosOut StatNegOut"),
      "AUC=f64[] StatPosOut=i64[16385] StatNegOut=i64[16385]");
  EXPECT_EQ(infer("mean_iou", "Predictions=i32[4] Labels=i32[4]", "OutMeanIou OutWrong OutCorrect",
                  {{"num_classes", make_attr(3)}}),
            "OutMeanIou=f32[1] OutWrong=i32[3] OutCorrect=i32[3]");
  EXPECT_EQ(infer("precision_recall", "MaxProbs=f32[5,1] Indices=i32[5,1] Labels=i32[5,1]",
                  "BatchMetrics AccumMetrics AccumStatesInfo", {{"class_number", make_attr(3)}}),
            "BatchMetrics=f64[6] AccumMetrics=f64[6] AccumStatesInfo=f32[3,4]");
}

TEST(SigmoidFocalLoss, HasALabelForEachRow) {
  EXPECT_EQ(infer("sigmoid_focal_loss", "X=f32[4,5]@1 Label=i32[4,1] FgNum=i32[1]", "Out"),
            "Out=f32[4,5]@1");
  EXPECT_EQ(infer("sigmoid_focal_loss", "X=f32[4,5] Label=i32[3,1] FgNum=i32[1]", "Out"),
            "Label must have 4 elements, found [3, 1]");
  EXPECT_EQ(grad("sigmoid_focal_loss", "X Label FgNum", "Out", {}, "Label FgNum"),
            "sigmoid_focal_loss_grad(FgNum Label Out@GRAD X -> X@GRAD)");
}

}  // namespace
}  // namespace millrace::ops

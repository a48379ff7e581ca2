#include <gtest/gtest.h>

#include "framework/op_attrs.h"
#include "tests/ops/op_fixture.h"

namespace millrace::ops {
namespace {

TEST(Sequence, RowsAreKnownAtRunTimeOnly) {
  EXPECT_EQ(infer("sequence_pool", "X=f32[9,4]@2", "Out MaxIndex"), "Out=f32[-1,4]@1 MaxIndex=?");
  EXPECT_EQ(
      infer("sequence_pool", "X=f32[-1,4]@1", "Out MaxIndex", {{"pooltype", make_attr("MAX")}}),
      "Out=f32[-1,4] MaxIndex=i32[-1,4]");
  EXPECT_EQ(infer("sequence_pool", "X=?", "Out"), "Out=?");
  EXPECT_EQ(infer("sequence_expand", "X=f32[2,4] Y=f32[6,1]@1", "Out"), "Out=f32[-1,4]@1");
  EXPECT_EQ(infer("sequence_expand_as", "X=f32[2,4] Y=f32[6,1]@1", "Out"), "Out=f32[-1,4]@1");
  EXPECT_EQ(infer("sequence_slice", "X=f32[6,4]@1 Offset=i64[2,1] Length=i64[2,1]", "Out"),
            "Out=f32[-1,4]@1");
  EXPECT_EQ(infer("sequence_erase", "X=i32[6,1]@1", "Out",
                  {{"tokens", make_attr(std::vector<int32_t>{1})}}),
            "Out=i32[-1,1]@1");
  EXPECT_EQ(infer("sequence_unpad", "X=f32[2,5,4] Length=i64[2]", "Out"), "Out=f32[-1,4]@1");
  EXPECT_EQ(infer("sequence_unpad", "X=f32[2,5] Length=i64[2]", "Out"), "Out=f32[-1,1]@1");
}

TEST(Sequence, KeepsRows) {
  EXPECT_EQ(infer("sequence_reverse", "X=f32[-1,4]@1", "Y"), "Y=f32[-1,4]@1");
  EXPECT_EQ(infer("sequence_softmax", "X=f32[5,1]@1", "Out"), "Out=f32[5,1]@1");
  EXPECT_EQ(infer("sequence_concat", "X=f32[5,4]@1+f32[3,4]@1", "Out"), "Out=f32[8,4]@1");
  EXPECT_EQ(infer("sequence_concat", "X=f32[5,4]@1+f32[-1,4]@1", "Out"), "Out=f32[-1,4]@1");
  EXPECT_EQ(infer("sequence_scatter", "X=f32[2,9] Ids=i64[5,1]@1 Updates=f32[5,1]@1", "Out"),
            "Out=f32[2,9]");
  EXPECT_EQ(infer("sequence_scatter", "X=f32[2,9] Ids=i64[6,1]@1 Updates=f32[3,2]@1", "Out"),
            "Ids and Updates must have the same dims other than 1, found [6, 1] and [3, 2]");
  EXPECT_EQ(infer("lod_reset", "X=f32[6,4]", "Out",
                  {{"target_lod", make_attr(std::vector<int32_t>{0, 3, 6})}}),
            "Out=f32[6,4]@1");
  EXPECT_EQ(infer("lod_reset", "X=f32[6,4] Y=f32[6,1]@2", "Out"), "Out=f32[6,4]@2");
}

TEST(Sequence, Widths) {
  EXPECT_EQ(infer("sequence_conv", "X=f32[-1,4]@1 Filter=f32[12,7]", "Out",
                  {{"contextLength", make_attr(3)}}),
            "Out=f32[-1,7]@1");
  EXPECT_EQ(infer("sequence_enumerate", "X=i64[-1,1]@1", "Out", {{"win_size", make_attr(3)}}),
            "Out=i64[-1,3]@1");
  EXPECT_EQ(infer("sequence_reshape", "X=f32[6,4]@1", "Out", {{"new_dim", make_attr(8)}}),
            "Out=f32[3,8]@1");
  EXPECT_EQ(infer("sequence_pad", "X=f32[-1,4]@1 PadValue=f32[1]", "Out Length",
                  {{"padded_length", make_attr(9)}}),
            "Out=f32[-1,9,4] Length=i64[-1]");
  EXPECT_EQ(infer("sequence_mask", "X=i64[3]", "Y",
                  {{"maxlen", make_attr(5)}, {"out_dtype", make_attr(5)}}),
            "Y=f32[3,5]");
  EXPECT_EQ(infer("sequence_mask", "X=i64[3]", "Y"), "Y=i64[3,-1]");
  EXPECT_EQ(
      infer("sequence_topk_avg_pooling", "X=f32[-1,1]@1 ROW=f32[-1,1]@1 COLUMN=f32[-1,1]@1",
            "Out pos",
            {{"topks", make_attr(std::vector<int32_t>{1, 3})}, {"channel_num", make_attr(4)}}),
      "Out=f32[-1,8]@1 pos=?");
}

TEST(Sequence, ImpossibleShapes) {
  EXPECT_EQ(infer("sequence_concat", "X=f32[5,4]@1+f32[3,5]@1", "Out"),
            "'X' has shapes [5, 4] and [3, 5], expected the same dims after the first");
  EXPECT_EQ(infer("sequence_conv", "X=f32[-1,4]@1 Filter=f32[12,7]", "Out",
                  {{"contextLength", make_attr(2)}}),
            "'Filter' has shape [12, 7], expected 8 rows, attribute 'contextLength' 2 times the "
            "width of 'X' [-1, 4]");
  EXPECT_EQ(infer("sequence_reshape", "X=f32[3,4]@1", "Out", {{"new_dim", make_attr(5)}}),
            "attribute 'new_dim' is 5, which does not divide the 12 elements of 'X' [3, 4]");
  EXPECT_EQ(
      infer("sequence_expand", "X=f32[2,4] Y=f32[6,1]@1", "Out", {{"ref_level", make_attr(1)}}),
      "attribute 'ref_level' is 1, but 'Y' has 1 LoD levels");
  EXPECT_EQ(infer("sequence_enumerate", "X=i64[6,2]@1", "Out", {{"win_size", make_attr(3)}}),
            "'X' has shape [6, 2], expected [rows, 1]");
  EXPECT_EQ(infer("sequence_unpad", "X=f32[2,5,4] Length=i64[3]", "Out"),
            "'Length' has shape [3], expected 2 entries as 'X' [2, 5, 4] has rows");
  EXPECT_EQ(infer("lod_reset", "X=f32[6,4]", "Out"),
            "attribute 'target_lod' is empty, expected offsets because input 'Y' is absent");
}

TEST(Sequence, Gradients) {
  EXPECT_EQ(grad("sequence_pool", "X", "Out MaxIndex"), "sequence_pool_grad(Out@GRAD X -> X@GRAD)");
  EXPECT_EQ(grad("sequence_reverse", "X", "Y"), "sequence_reverse(X -> Y)");
  EXPECT_EQ(grad("sequence_conv", "X Filter", "Out"),
            "sequence_conv_grad(Filter Out@GRAD X -> Filter@GRAD X@GRAD)");
  EXPECT_EQ(grad("sequence_conv", "X PaddingData Filter", "Out",
                 {{"paddingTrainable", make_attr(true)}}, "X"),
            "sequence_conv_grad(Filter Out@GRAD X PaddingData -> Filter@GRAD PaddingData@GRAD) "
            "paddingTrainable=true");
  EXPECT_EQ(grad("sequence_scatter", "X Ids Updates", "Out", {}, "Ids"),
            "sequence_scatter_grad(Ids Out@GRAD Updates -> Updates@GRAD X@GRAD)");
  EXPECT_EQ(grad("sequence_mask", "X", "Y"), "op type 'sequence_mask' has no gradient rule");
  // declared without LoD, as the original does
  EXPECT_EQ(infer("sequence_softmax_grad", "X=f32[5,1]@1 Out@GRAD=f32[5,1]@1", "X@GRAD"),
            "X@GRAD=f32[5,1]");
  EXPECT_EQ(infer("sequence_pool_grad", "X=f32[5,4]@1 Out@GRAD=f32[-1,4]", "X@GRAD"),
            "X@GRAD=f32[5,4]@1");
}

TEST(Crf, Shapes) {
  EXPECT_EQ(infer("linear_chain_crf", "Emission=f32[-1,5]@1 Transition=f32[7,5] Label=i64[-1,1]@1",
                  "Alpha EmissionExps TransitionExps LogLikelihood"),
            "Alpha=f32[-1,5] EmissionExps=f32[-1,5] TransitionExps=f32[7,5] "
            "LogLikelihood=f32[-1,1]");
  EXPECT_EQ(infer("linear_chain_crf",
                  "Emission=f32[2,6,5] Transition=f32[7,5] Label=i64[2,6] Length=i64[2,1]",
                  "LogLikelihood"),
            "LogLikelihood=f32[2,1]");
  EXPECT_EQ(infer("linear_chain_crf", "Emission=f32[-1,5]@1 Transition=f32[6,5] Label=i64[-1,1]@1",
                  "LogLikelihood"),
            "'Transition' has shape [6, 5], expected [tags + 2, tags]");
  EXPECT_EQ(infer("crf_decoding", "Emission=f32[-1,5]@1 Transition=f32[7,5]", "ViterbiPath"),
            "ViterbiPath=i64[-1,1]@1");
  EXPECT_EQ(
      infer("crf_decoding", "Emission=f32[2,6,5] Transition=f32[7,5] Length=i64[2]", "ViterbiPath"),
      "ViterbiPath=i64[2,6]");
  EXPECT_EQ(
      infer("chunk_eval", "Inference=i64[-1,1]@1 Label=i64[-1,1]@1", "Precision NumInferChunks"),
      "Precision=f32[1] NumInferChunks=i64[1]");
  EXPECT_EQ(infer("chunk_eval", "Inference=i64[6,2] Label=i64[4,3] SeqLength=i64[6]", "Precision"),
            "Inference and Label must have the same dims other than 1, found [6, 2] and [4, 3]");
  EXPECT_EQ(grad("linear_chain_crf", "Emission Transition Label",
                 "Alpha EmissionExps TransitionExps LogLikelihood", {}, "Label"),
            "linear_chain_crf_grad(Alpha Emission EmissionExps Label LogLikelihood@GRAD Transition "
            "TransitionExps -> Emission@GRAD Transition@GRAD)");
}

TEST(Ctc, Shapes) {
  EXPECT_EQ(
      infer("warpctc", "Logits=f32[9,2,4] Label=i32[2,3] LogitsLength=i64[2] LabelLength=i64[2]",
            "Loss WarpCTCGrad"),
      "Loss=f32[2,1] WarpCTCGrad=f32[9,2,4]");
  EXPECT_EQ(infer("warpctc", "Logits=f32[9,4]@1 Label=i32[5,1]@1", "Loss"), "Loss=f32[-1,1]");
  EXPECT_EQ(
      infer("warpctc", "Logits=f32[9,4]@1 Label=i32[5,1]@1", "Loss", {{"blank", make_attr(4)}}),
      "attribute 'blank' is 4, expected a class in [0, 4)");
  EXPECT_EQ(infer("ctc_align", "Input=i32[9,1]@1", "Output"), "Output=i32[-1,1]@1");
  EXPECT_EQ(infer("ctc_align", "Input=i32[2,9] InputLength=i32[2,1]", "Output OutputLength"),
            "Output=i32[2,9] OutputLength=i32[2,1]");
  EXPECT_EQ(
      infer("edit_distance", "Hyps=i64[2,5] Refs=i64[2,4] HypsLength=i64[2] RefsLength=i64[2]",
            "Out SequenceNum"),
      "Out=f32[2,1] SequenceNum=i64[1]");
  EXPECT_EQ(grad("warpctc", "Logits Label", "Loss WarpCTCGrad", {}, "Label"),
            "warpctc_grad(Logits Loss@GRAD WarpCTCGrad -> Logits@GRAD)");
}

}  // namespace
}  // namespace millrace::ops

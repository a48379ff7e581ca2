// Schemas of fused, recurrent and recommendation ops.
#include <gtest/gtest.h>

#include "framework/op_attrs.h"
#include "tests/ops/op_fixture.h"

namespace millrace::ops {
namespace {

using Ints = std::vector<int32_t>;

TEST(FusedRnn, Shapes) {
  EXPECT_EQ(infer("fusion_lstm", "X=f32[-1,5]@1 WeightX=f32[5,12] WeightH=f32[3,12] Bias=f32[1,21]",
                  "Hidden Cell"),
            "Hidden=f32[-1,3]@1 Cell=f32[-1,3]@1");
  EXPECT_EQ(infer("fused_embedding_fc_lstm",
                  "Ids=i64[7,1]@1 Embeddings=f32[9,12] WeightH=f32[3,12] Bias=f32[1,12]",
                  "Hidden Cell", {{"use_peepholes", make_attr(false)}}),
            "Hidden=f32[7,3]@1 Cell=f32[7,3]@1");
  EXPECT_EQ(infer("fusion_gru", "X=f32[-1,5]@1 WeightX=f32[5,9] WeightH=f32[3,9]", "Hidden"),
            "Hidden=f32[-1,3]@1");
  EXPECT_EQ(infer("attention_lstm",
                  "X=f32[-1,5]@1 C0=f32[-1,3] AttentionWeight=f32[8,1] LSTMWeight=f32[8,12] "
                  "LSTMBias=f32[1,12]",
                  "Hidden Cell"),
            "Hidden=f32[-1,3]@1 Cell=f32[-1,3]@1");
}

TEST(FusedRnn, Errors) {
  EXPECT_EQ(infer("fusion_lstm", "X=f32[-1,5]@1 WeightX=f32[4,12] WeightH=f32[3,12] Bias=f32[1,21]",
                  "Hidden"),
            "'WeightX' has shape [4, 12], expected [5, 12]");
  EXPECT_EQ(infer("fusion_lstm",
                  "X=f32[-1,5]@1 WeightX=f32[5,12] WeightH=f32[3,12] Bias=f32[1,21] H0=f32[2,3]",
                  "Hidden"),
            "only one of 'H0' and 'C0' is given, expected both or none");
  EXPECT_EQ(infer("fusion_gru", "X=f32[-1,5]@1 WeightX=f32[5,9] WeightH=f32[3,8]", "Hidden"),
            "'WeightH' has shape [3, 8], expected [size, 3 * size]");
  EXPECT_EQ(infer("fused_embedding_fc_lstm",
                  "Ids=i64[7,2]@1 Embeddings=f32[9,12] WeightH=f32[3,12] Bias=f32[1,21]", "Hidden"),
            "'Ids' has shape [7, 2], expected [rows, 1]");
  EXPECT_EQ(infer("attention_lstm",
                  "X=f32[-1,5]@1 C0=f32[-1,3] AttentionWeight=f32[8,1] LSTMWeight=f32[8,12] "
                  "LSTMBias=f32[1,12] AttentionScalarBias=f32[1,1]",
                  "Hidden"),
            "'AttentionScalarBias' is given without 'AttentionScalar'");
}

TEST(FusedSequences, Shapes) {
  EXPECT_EQ(infer("fusion_seqpool_concat", "X=f32[-1,5]@1+f32[-1,2]@1", "Out"), "Out=f32[-1,7]@1");
  EXPECT_EQ(infer("fusion_seqpool_cvm_concat", "X=f32[-1,5]@1 CVM=f32[-1,2]", "Out"),
            "Out=f32[-1,5]@1");
  EXPECT_EQ(infer("fusion_seqpool_cvm_concat", "X=f32[-1,5]@1+f32[-1,2]@1 CVM=f32[-1,2]", "Out",
                  {{"use_cvm", make_attr(false)}}),
            "Out=f32[-1,3]@1");
  EXPECT_EQ(infer("fusion_seqconv_eltadd_relu", "X=f32[-1,3]@1 Filter=f32[6,4] Bias=f32[1,4]",
                  "Out", {{"contextLength", make_attr(2)}}),
            "Out=f32[-1,4]@1");
  EXPECT_EQ(infer("fusion_seqexpand_concat_fc",
                  "X=f32[-1,3]@1+f32[-1,2] FCWeight=f32[5,4] FCBias=f32[1,4]", "Out"),
            "Out=f32[-1,4]@1");
}

TEST(FusedSequences, Errors) {
  EXPECT_EQ(infer("fusion_seqpool_concat", "X=f32[-1,5]@1+f32[-1]@1", "Out"),
            "'X' 1 has shape [-1], expected [rows, width]");
  EXPECT_EQ(infer("fusion_seqpool_cvm_concat", "X=f32[-1,1]@1 CVM=f32[-1,2]", "Out"),
            "'X' 0 has shape [-1, 1], expected shows and clicks as columns 0 and 1");
  EXPECT_EQ(infer("fusion_seqconv_eltadd_relu", "X=f32[-1,3]@1 Filter=f32[5,4] Bias=f32[1,4]",
                  "Out", {{"contextLength", make_attr(2)}}),
            "'Filter' has shape [5, 4], expected 6 rows, attribute 'contextLength' 2 times the "
            "width of 'X' [-1, 3]");
  EXPECT_EQ(infer("fusion_seqexpand_concat_fc", "X=f32[-1,3]@1 FCWeight=f32[3,4]", "Out"),
            "'X' has 1 vars, expected sequences and at least one matrix");
  EXPECT_EQ(infer("fusion_seqexpand_concat_fc", "X=f32[-1,3]@1+f32[-1,2] FCWeight=f32[4,4]", "Out"),
            "'FCWeight' has shape [4, 4], expected 5 rows, the widths of 'X'");
}

TEST(FusedLayers, Shapes) {
  EXPECT_EQ(infer("fusion_repeated_fc_relu",
                  "X=f32[-1,5]@1 W=f32[5,3]+f32[3,2] Bias=f32[3]+f32[1,2]", "ReluOut Out"),
            "ReluOut=f32[-1,3] Out=f32[-1,2]@1");
  EXPECT_EQ(infer("fusion_squared_mat_sub", "X=f32[-1,4]@1 Y=f32[4,5]",
                  "SquaredX SquaredY SquaredXY Out"),
            "SquaredX=f32[-1,4] SquaredY=f32[4,5] SquaredXY=f32[-1,5] Out=f32[-1,5]");
  EXPECT_EQ(infer("multihead_matmul", "Input=f32[-1,7,6] W=f32[6,3,2,4] Bias=f32[3,2,4]", "Out",
                  {{"head_number", make_attr(2)}}),
            "Out=f32[-1,7,8]");
  EXPECT_EQ(infer("fused_fc_elementwise_layernorm",
                  "X=f32[-1,7,6] W=f32[6,4] Y=f32[-1,7,4] Scale=f32[4]", "Out Mean Variance",
                  {{"x_num_col_dims", make_attr(2)}, {"begin_norm_axis", make_attr(2)}}),
            "Out=f32[-1,7,4] Mean=f32[-1] Variance=f32[-1]");
}

TEST(FusedLayers, Errors) {
  EXPECT_EQ(
      infer("fusion_repeated_fc_relu", "X=f32[2,5] W=f32[5,3]+f32[4,2] Bias=f32[3]+f32[2]", "Out"),
      "'W' 1 has shape [4, 2], expected 3 rows");
  EXPECT_EQ(infer("fusion_repeated_fc_relu", "X=f32[2,5] W=f32[5,3]+f32[3,2] Bias=f32[3]", "Out"),
            "'Bias' has 1 vars, expected 2, one for each of 'W'");
  EXPECT_EQ(infer("fusion_squared_mat_sub", "X=f32[2,4] Y=f32[3,5]", "Out"),
            "'X' [2, 4] and 'Y' [3, 5] cannot be multiplied");
  EXPECT_EQ(infer("multihead_matmul", "Input=f32[-1,7,6] W=f32[6,2,8] Bias=f32[3,8]", "Out"),
            "'W' has shape [6, 2, 8], expected [6, 3, heads * width]");
  EXPECT_EQ(infer("multihead_matmul", "Input=f32[-1,7,6] W=f32[6,3,8] Bias=f32[3,8]", "Out",
                  {{"transpose_Q", make_attr(true)}}),
            "attributes 'transpose_Q', 'transpose_K' and 'transpose_V' are true, true and false, "
            "expected false, true and false");
  EXPECT_EQ(infer("fused_fc_elementwise_layernorm", "X=f32[3,6] W=f32[6,4] Y=f32[3,5]", "Out"),
            "'Y' has shape [3, 5], expected [3, 4]");
}

TEST(Matching, Shapes) {
  EXPECT_EQ(infer("tdm_child", "X=i64[-1,1]@1 TreeInfo=i32[9,5]", "Child LeafMask",
                  {{"child_nums", make_attr(2)}, {"dtype", make_attr(3)}}),
            "Child=i64[-1,1,2]@1 LeafMask=i64[-1,1,2]@1");
  EXPECT_EQ(infer("tdm_sampler", "X=i64[-1,1]@1 Travel=i64[4,2] Layer=i64[6,1]", "Out Labels Mask",
                  {{"neg_samples_num_list", make_attr(Ints{1, 2})},
                   {"layer_offset_lod", make_attr(Ints{0, 2, 6})}}),
            "Out=i32[-1,5] Labels=i32[-1,5] Mask=i32[-1,5]");
  EXPECT_EQ(infer("rank_attention", "X=f32[-1,2] RankOffset=i32[-1,7] RankParam=f32[18,4]",
                  "InputHelp Out InsRank"),
            "InputHelp=f32[-1,6] Out=f32[-1,4] InsRank=f32[-1,1]");
  EXPECT_EQ(infer("match_matrix_tensor", "X=f32[5,3]@1 Y=f32[-1,4]@1 W=f32[3,2,4]", "Out Tmp",
                  {{"dim_t", make_attr(2)}}),
            "Out=f32[-1,1]@1 Tmp=f32[40,1]");
  EXPECT_EQ(
      infer(
          "var_conv_2d", "X=f32[-1,1]@1 ROW=f32[-1,1]@1 COLUMN=f32[-1,1]@1 W=f32[2,6]", "Out Col",
          {{"OutputChannel", make_attr(2)}, {"KernelH", make_attr(3)}, {"KernelW", make_attr(2)}}),
      "Out=f32[-1,1]@1 Col=f32[-1,1]@1");
}

TEST(Matching, Errors) {
  EXPECT_EQ(
      infer("tdm_child", "X=i64[-1,1] TreeInfo=i32[9,4]", "Child", {{"child_nums", make_attr(2)}}),
      "'TreeInfo' has shape [9, 4], expected 5 columns: item, layer, parent and attribute "
      "'child_nums' children");
  EXPECT_EQ(infer("tdm_child", "X=i64[-1,1] TreeInfo=i32[9,5]", "Child",
                  {{"child_nums", make_attr(2)}, {"dtype", make_attr(5)}}),
            "attribute 'dtype' is f32, expected i32 or i64");
  EXPECT_EQ(infer("tdm_sampler", "X=i64[-1,1] Travel=i64[4,2] Layer=i64[6,1]", "Out",
                  {{"neg_samples_num_list", make_attr(Ints{2, 2})},
                   {"layer_offset_lod", make_attr(Ints{0, 2, 6})}}),
            "attribute 'neg_samples_num_list' has 2 for layer 0, expected less than the 2 nodes of "
            "the layer");
  EXPECT_EQ(infer("rank_attention", "X=f32[5,2] RankOffset=i32[5,6] RankParam=f32[18,4]", "Out"),
            "'RankOffset' has shape [5, 6], expected [5, 7], 1 + 2 * 'MaxRank' columns");
  EXPECT_EQ(infer("match_matrix_tensor", "X=f32[5,3]@1 Y=f32[-1,4]@1 W=f32[3,2,3]", "Out",
                  {{"dim_t", make_attr(2)}}),
            "'W' has shape [3, 2, 3], expected [3, 2, 4] for 'X' [5, 3] and 'Y' [-1, 4]");
  EXPECT_EQ(infer("var_conv_2d", "X=f32[-1,1]@1 ROW=f32[-1,1]@1 COLUMN=f32[-1,1]@1 W=f32[2,6]",
                  "Out", {{"KernelH", make_attr(3)}}),
            "'W' has shape [2, 6], expected [1, 3]");
}

TEST(Matching, Gradients) {
  EXPECT_EQ(grad("match_matrix_tensor", "X Y W", "Out Tmp"),
            "match_matrix_tensor_grad(Out@GRAD Tmp W X Y -> W@GRAD X@GRAD Y@GRAD)");
  EXPECT_EQ(grad("var_conv_2d", "X ROW COLUMN W", "Out Col"),
            "var_conv_2d_grad(COLUMN Col Out Out@GRAD ROW W X -> W@GRAD X@GRAD)");
  EXPECT_EQ(grad("rank_attention", "X RankOffset RankParam", "InputHelp Out InsRank"),
            "rank_attention_grad(InputHelp InsRank Out@GRAD RankOffset RankParam X -> "
            "RankParam@GRAD)");
}

// They are made for inference; the original has no gradients of them either.
TEST(FusedLayers, HaveNoGradients) {
  EXPECT_EQ(grad("fusion_lstm", "X WeightX WeightH Bias", "Hidden Cell"),
            "op type 'fusion_lstm' has no gradient rule");
  EXPECT_EQ(grad("multihead_matmul", "Input W Bias", "Out"),
            "op type 'multihead_matmul' has no gradient rule");
}

}  // namespace
}  // namespace millrace::ops

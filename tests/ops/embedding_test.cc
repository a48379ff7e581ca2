#include <gtest/gtest.h>

#include "framework/op_attrs.h"
#include "tests/ops/op_fixture.h"

namespace millrace::ops {
namespace {

TEST(Lookup, Shapes) {
  EXPECT_EQ(infer("lookup_table", "W=f32[90,12] Ids=i64[-1,1]@1", "Out"), "Out=f32[-1,12]@1");
  EXPECT_EQ(infer("lookup_table", "W=f64[90,12] Ids=i64[2,3,1]", "Out"), "Out=f64[2,3,12]");
  EXPECT_EQ(infer("lookup_table_v2", "W=f32[90,12] Ids=i64[2,3]", "Out"), "Out=f32[2,3,12]");
  EXPECT_EQ(infer("lookup_table_v2", "W=f32[90,12] Ids=?", "Out"), "Out=?");
  EXPECT_EQ(infer("lookup_table", "W=f32[90,12] Ids=i64[2,3]", "Out"),
            "'Ids' has shape [2, 3], expected a last dim of 1");
  EXPECT_EQ(infer("lookup_table", "W=f32[90] Ids=i64[2,1]", "Out"),
            "'W' has shape [90], expected rank 2");
}

TEST(Lookup, GradientByRowsIfSparse) {
  EXPECT_EQ(grad("lookup_table", "W Ids", "Out", {}, "Ids"),
            "lookup_table_grad(Ids Out@GRAD W -> W@GRAD)");
  const std::string inputs = "W=f32[90,12] Ids=i64[-1,1] Out@GRAD=f32[-1,12]";
  EXPECT_EQ(infer("lookup_table_grad", inputs, "W@GRAD"), "W@GRAD=f32[90,12]");
  for (const char* const type : {"lookup_table_grad", "lookup_table_v2_grad"}) {
    EXPECT_EQ(infer(type, inputs, "W@GRAD", {{"is_sparse", make_attr(true)}}),
              "W@GRAD=rows:f32[90,12]");
  }
}

TEST(SelectedRows, MergeAndValues) {
  EXPECT_EQ(infer("merge_selected_rows", "X=rows:f32[90,12]", "Out"), "Out=rows:f32[90,12]");
  EXPECT_EQ(infer("get_tensor_from_selected_rows", "X=rows:f32[90,12]", "Out"), "Out=f32[90,12]");
}

TEST(SampledLoss, Shapes) {
  const AttrList classes = {{"num_total_classes", make_attr(20)},
                            {"num_neg_samples", make_attr(5)}};
  EXPECT_EQ(infer("nce", "Input=f32[-1,8] Label=i64[-1,1] Weight=f32[20,8] Bias=f32[20,1]",
                  "Cost SampleLogits SampleLabels", classes),
            "Cost=f32[-1,1] SampleLogits=f32[-1,6] SampleLabels=i64[-1,6]");
  EXPECT_EQ(infer("nce", "Input=f32[-1,8] Label=i64[-1,1] Weight=f32[21,8]", "Cost", classes),
            "'Weight' has shape [21, 8], expected 20 rows as attribute 'num_total_classes'");
  EXPECT_EQ(infer("nce_grad", "Input=f32[4,8] Weight=f32[20,8] Bias=f32[20,1]",
                  "Input@GRAD Weight@GRAD Bias@GRAD", {{"is_sparse", make_attr(true)}}),
            "Input@GRAD=f32[4,8] Weight@GRAD=rows:f32[20,8] Bias@GRAD=f32[20,1]");
  EXPECT_EQ(infer("hierarchical_sigmoid", "X=f32[4,3] W=f32[5,3] Label=i64[4,1]", "Out PreOut",
                  {{"num_classes", make_attr(6)}}),
            "Out=f32[4,1] PreOut=f32[4,-1]");
  EXPECT_EQ(infer("hierarchical_sigmoid", "X=f32[4,3] W=f32[5,2] Label=i64[4,1]", "Out"),
            "'W' has shape [5, 2], expected [classes - 1, width] for 'X' [4, 3]");
  EXPECT_EQ(grad("hierarchical_sigmoid", "X W Label Bias", "Out PreOut", {}, "Label"),
            "hierarchical_sigmoid_grad(Bias Label Out@GRAD PreOut W X -> Bias@GRAD W@GRAD X@GRAD)");
}

TEST(Feature, Shapes) {
  EXPECT_EQ(infer("cvm", "X=f32[-1,9]@1 CVM=f32[-1,2]", "Y"), "Y=f32[-1,9]@1");
  EXPECT_EQ(infer("cvm", "X=f32[-1,9] CVM=f32[-1,2]", "Y", {{"use_cvm", make_attr(false)}}),
            "Y=f32[-1,7]");
  EXPECT_EQ(infer("cvm", "X=f32[-1,1] CVM=f32[-1,2]", "Y", {{"use_cvm", make_attr(false)}}),
            "'X' has shape [-1, 1], expected at least 2 columns, show and click");
  EXPECT_EQ(infer("hash", "X=i32[5,2]@1", "Out", {{"num_hash", make_attr(3)}}), "Out=i32[5,3,1]@1");
  EXPECT_EQ(infer("sampling_id", "X=f32[5,4]", "Out"), "Out=i64[5]");
  EXPECT_EQ(infer("sampling_id", "X=f32[5,4]", "Out", {{"min", make_attr(1.0F)}}),
            "attribute 'min' is 1, expected less than 'max' 1");
  EXPECT_EQ(infer("filter_by_instag", "Ins=f32[5,4]@1 Ins_tag=i64[7,1]@1 Filter_tag=i64[2]",
                  "Out LossWeight IndexMap"),
            "Out=f32[-1,4]@1 LossWeight=f32[-1,1] IndexMap=i64[-1,3]");
  EXPECT_EQ(infer("search_pyramid_hash", "X=i32[-1,1]@1 W=f32[500,1]", "Out",
                  {{"num_emb", make_attr(16)}}),
            "Out=f32[-1,16]@1");
  EXPECT_EQ(
      infer("average_accumulates",
            "param=f32[3] in_sum_1=f32[3] in_sum_2=f32[3] in_sum_3=f32[3] in_num_updates=i64[1]",
            "out_sum_1 out_num_updates"),
      "out_sum_1=f32[3] out_num_updates=i64[1]");
}

TEST(Feature, Products) {
  EXPECT_EQ(infer("fc", "Input=f32[-1,3,4] W=f32[12,5] Bias=f32[5]", "Out"), "Out=f32[-1,5]");
  EXPECT_EQ(infer("fc", "Input=f32[-1,3,4] W=f32[8,9]", "Out",
                  {{"in_num_col_dims", make_attr(2)}, {"padding_weights", make_attr(true)}}),
            "Out=f32[-1,3,5]");
  EXPECT_EQ(infer("fc", "Input=f32[-1,3,4] W=f32[11,5]", "Out"),
            "'W' has shape [11, 5], expected 12 rows for 'Input' [-1, 3, 4]");
  EXPECT_EQ(infer("fc", "Input=f32[-1,3] W=f32[3,5]", "Out", {{"in_num_col_dims", make_attr(2)}}),
            "attribute 'in_num_col_dims' is 2, expected less than the rank of 'Input' [-1, 3]");
  EXPECT_EQ(infer("batch_fc", "Input=f32[2,-1,3] W=f32[2,3,5] Bias=f32[2,5]", "Out"),
            "Out=f32[2,-1,5]");
  EXPECT_EQ(infer("bilinear_tensor_product", "X=f32[-1,3] Y=f32[-1,4] Weight=f32[5,3,4]", "Out"),
            "Out=f32[-1,5]");
  EXPECT_EQ(infer("bilinear_tensor_product", "X=f32[-1,3] Y=f32[-1,4] Weight=f32[5,4,3]", "Out"),
            "'Weight' has shape [5, 4, 3], expected [columns, 3, 4]");
  EXPECT_EQ(grad("bilinear_tensor_product", "X Y Weight Bias", "Out", {}, "Y"),
            "bilinear_tensor_product_grad(Out@GRAD Weight X Y -> Bias@GRAD Weight@GRAD X@GRAD)");
  EXPECT_EQ(flops("fc", "Input=f32[8,12] W=f32[12,5]"), 2.0 * 8 * 12 * 5);
}

TEST(Feature, FusedPair) {
  const auto functions = [](const char* outer, const char* inner) {
    return AttrList{{"functor_list", make_attr(std::vector<std::string>{outer, inner})}};
  };
  EXPECT_EQ(infer("fused_elemwise_activation", "X=f32[3,4] Y=f32[4]", "Out IntermediateOut",
                  functions("elementwise_add", "relu")),
            "Out=f32[3,4] IntermediateOut=f32[4]");
  EXPECT_EQ(infer("fused_elemwise_activation", "X=f32[3,4] Y=f32[4]", "Out IntermediateOut",
                  functions("relu", "elementwise_add")),
            "Out=f32[3,4] IntermediateOut=f32[3,4]");
  EXPECT_EQ(
      infer("fused_elemwise_activation", "X=f32[3,4] Y=f32[4]", "Out", functions("relu", "scale")),
      "attribute 'functor_list' is 'relu', 'scale', expected one elementwise op");
}

// The form of the original, so that either can read the other's programs.
TEST(FusedElementwise, TheGradientNamesTheGradientsOfTheFunctions) {
  const AttrList attrs{
      {"functor_list", make_attr(std::vector<std::string>{"relu", "elementwise_add"})}};
  EXPECT_EQ(grad("fused_elemwise_activation", "X Y", "Out IntermediateOut", attrs),
            "fused_elemwise_activation_grad(Out Out@GRAD X Y -> X@GRAD Y@GRAD) "
            "functor_list=[relu_grad,elementwise_add_grad]");
}

}  // namespace
}  // namespace millrace::ops

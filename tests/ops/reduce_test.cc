#include <gtest/gtest.h>

#include "framework/op_attrs.h"
#include "tests/ops/op_fixture.h"

namespace millrace::ops {
namespace {

AttrValue axes(std::vector<int32_t> list) {
  return AttrValue::of_ints(std::move(list));
}

TEST(Reduce, RemovesAxes) {
  EXPECT_EQ(infer("reduce_sum", "X=f32[-1,3,4]@1", "Out", {{"dim", axes({-1})}}),
            "Out=f32[-1,3]@1");
  EXPECT_EQ(infer("reduce_mean", "X=f32[2,3,4]", "Out",
                  {{"dim", axes({0, 2})}, {"keep_dim", make_attr(true)}}),
            "Out=f32[1,3,1]");
  EXPECT_EQ(infer("reduce_max", "X=f32[2,3]", "Out", {{"reduce_all", make_attr(true)}}),
            "Out=f32[]");
  EXPECT_EQ(infer("reduce_min", "X=f32[2,3]", "Out", {{"dim", axes({})}}), "Out=f32[]");
  EXPECT_EQ(infer("reduce_prod", "X=f32[]", "Out", {{"dim", axes({0})}}), "Out=f32[]");
  // dim as one INT, as in programs of old front ends
  EXPECT_EQ(infer("reduce_mean", "X=f32[2,3]", "Out", {{"dim", make_attr(1)}}), "Out=f32[2]");
  EXPECT_EQ(infer("reduce_sum", "X=?", "Out"), "Out=?");
}

TEST(Reduce, ElementTypes) {
  EXPECT_EQ(infer("reduce_any", "X=bool[2,3]", "Out"), "Out=bool[3]");
  EXPECT_EQ(infer("reduce_sum", "X=i32[2,3]", "Out"), "Out=i64[3]");
  EXPECT_EQ(infer("reduce_sum", "X=i32[2,3]", "Out", {{"out_dtype", make_attr(5)}}), "Out=f32[3]");
  EXPECT_EQ(infer("reduce_max", "X=i32[2,3]", "Out", {{"out_dtype", make_attr(99)}}),
            "attribute 'out_dtype' is 99, which is not an element type");
}

TEST(Reduce, AxesFromTensors) {
  EXPECT_EQ(infer("reduce_all", "X=bool[2,3,4] AxisTensor=i32[2]", "Out"), "Out=bool[-1]");
  EXPECT_EQ(infer("reduce_all", "X=bool[2,3] AxisTensorList=i32[1]", "Out",
                  {{"keep_dim", make_attr(true)}}),
            "Out=bool[-1,-1]");
}

TEST(Reduce, AxisOutOfRange) {
  EXPECT_EQ(infer("reduce_sum", "X=f32[2,3]", "Out", {{"dim", axes({5})}}),
            "attribute 'dim' has axis 5, which is outside of [-2, 2) for rank 2");
  EXPECT_EQ(infer("cumsum", "X=f32[2,3]", "Out", {{"axis", make_attr(2)}}),
            "attribute 'axis' has axis 2, which is outside of [-2, 2) for rank 2");
  EXPECT_EQ(infer("cumprod", "X=f32[2]", "Out", {{"dim", make_attr(-2)}}),
            "attribute 'dim' has axis -2, which is outside of [-1, 1) for rank 1");
}

TEST(Reduce, TotalsAndNorms) {
  EXPECT_EQ(infer("mean", "X=f32[-1,3]", "Out"), "Out=f32[]");
  EXPECT_EQ(infer("squared_l2_norm", "X=f32[4,3]", "Out"), "Out=f32[1]");
  EXPECT_EQ(infer("l1_norm", "X=f32[4,3]", "Out"), "Out=f32[]");
  EXPECT_EQ(infer("isfinite", "X=f32[4,3]", "Out"), "Out=bool[1]");
  EXPECT_EQ(infer("cumsum", "X=f32[4,3]", "Out", {{"flatten", make_attr(true)}}), "Out=f32[12]");
  EXPECT_EQ(infer("norm", "X=f32[-1,3]", "Out Norm", {{"axis", make_attr(1)}}),
            "Out=f32[-1,3] Norm=f32[-1,1]");
  EXPECT_EQ(infer("p_norm", "X=f32[4,3]", "Out", {{"keepdim", make_attr(true)}}), "Out=f32[4,1]");
  EXPECT_EQ(infer("logsumexp", "X=f32[4,3]", "Out", {{"axis", axes({1})}}), "Out=f32[4]");
  EXPECT_EQ(infer("frobenius_norm", "X=f32[2,3,4]", "Out", {{"dim", axes({1, 2})}}), "Out=f32[2]");
  EXPECT_EQ(infer("clip_by_norm", "X=rows:f32[9,4]", "Out", {{"max_norm", make_attr(1.0F)}}),
            "Out=rows:f32[9,4]");
}

TEST(Reduce, Gradients) {
  EXPECT_EQ(grad("reduce_sum", "X", "Out"), "reduce_sum_grad(Out@GRAD X -> X@GRAD)");
  EXPECT_EQ(grad("reduce_max", "X", "Out"), "reduce_max_grad(Out Out@GRAD X -> X@GRAD)");
  EXPECT_EQ(grad("mean", "X", "Out"), "mean_grad(Out@GRAD X -> X@GRAD)");
  EXPECT_EQ(grad("norm", "X", "Out Norm"), "norm_grad(Norm Out@GRAD X -> X@GRAD)");
  EXPECT_EQ(grad("cumprod", "X", "Out"), "cumprod_grad(Out Out@GRAD X -> X@GRAD)");
  EXPECT_EQ(infer("mean_grad", "X=f32[-1,3] Out@GRAD=f32[]", "X@GRAD"), "X@GRAD=f32[-1,3]");
}

}  // namespace
}  // namespace millrace::ops

#include <gtest/gtest.h>

#include "framework/op_attrs.h"
#include "tests/ops/op_fixture.h"

namespace millrace::ops {
namespace {

TEST(Mul, FoldsOperandsIntoMatrices) {
  EXPECT_EQ(infer("mul", "X=f32[-1,3]@1 Y=f32[3,4]", "Out"), "Out=f32[-1,4]@1");
  EXPECT_EQ(infer("mul", "X=f32[2,5,3,4] Y=f32[12,6]", "Out", {{"x_num_col_dims", make_attr(2)}}),
            "Out=f32[2,5,6]");
  EXPECT_EQ(infer("mul", "X=f32[-1,-1,7] Y=f32[21,6]", "Out"), "Out=f32[-1,6]");
  EXPECT_EQ(infer("mul", "X=? Y=f32[3,4]", "Out"), "Out=?");
  EXPECT_EQ(infer("mul", "X=f32[-1,3] Y=f32[5,4]", "Out"),
            "X [-1, 3] with x_num_col_dims 1 has 3 columns, but Y [5, 4] with y_num_col_dims 1 has "
            "5 rows");
  EXPECT_EQ(infer("mul", "X=f32[2,3] Y=f32[3,4]", "Out", {{"x_num_col_dims", make_attr(2)}}),
            "attribute 'x_num_col_dims' is 2, which is outside of [1, 2) for X [2, 3]");
  EXPECT_EQ(infer("mul", "X=f32[2,3] Y=f32[3]", "Out"),
            "attribute 'y_num_col_dims' is 1, which is outside of [1, 1) for Y [3]");
}

TEST(Matmul, TransposesAndBatches) {
  EXPECT_EQ(infer("matmul", "X=f32[8,2,3] Y=f32[8,4,3]", "Out", {{"transpose_Y", make_attr(true)}}),
            "Out=f32[8,2,4]");
  EXPECT_EQ(infer("matmul", "X=f32[-1,2,3] Y=f32[3,4]", "Out"), "Out=f32[-1,2,4]");
  EXPECT_EQ(infer("matmul", "X=f32[3] Y=f32[3]", "Out"), "Out=f32[]");
  // a transposed vector is a column
  EXPECT_EQ(infer("matmul", "X=f32[2] Y=f32[3]", "Out",
                  {{"transpose_X", make_attr(true)}, {"transpose_Y", make_attr(true)}}),
            "Out=f32[2,3]");
  EXPECT_EQ(infer("matmul", "X=f32[2,3] Y=f32[4,5]", "Out"),
            "X [2, 3] has matrices of 3 columns, but Y [4, 5] has matrices of 4 rows");
}

TEST(Matmul, SecondFormBroadcastsBatches) {
  EXPECT_EQ(infer("matmul_v2", "X=f32[2,1,3,4] Y=f32[3,4,5]", "Out"), "Out=f32[2,3,3,5]");
  EXPECT_EQ(infer("matmul_v2", "X=f32[4] Y=f32[7,4,5]", "Out"), "Out=f32[7,5]");
  EXPECT_EQ(infer("matmul_v2", "X=f32[2,4] Y=f32[4]", "Out", {{"trans_y", make_attr(true)}}),
            "Out=f32[2]");
  EXPECT_EQ(infer("matmul_v2", "X=f32[2,3,4] Y=f32[3,4,5]", "Out"),
            "batch dims of X [2, 3, 4] and Y [3, 4, 5] differ");
  EXPECT_EQ(infer("matmul_v2", "X=f32[] Y=f32[3]", "Out"),
            "X and Y must have a rank of at least 1, found [] and [3]");
}

TEST(Products, OfFixedRank) {
  EXPECT_EQ(infer("bmm", "X=f32[-1,2,3] Y=f32[8,3,4]", "Out"), "Out=f32[8,2,4]");
  EXPECT_EQ(infer("bmm", "X=f32[2,3] Y=f32[8,3,4]", "Out"), "X must have rank 3, found [2, 3]");
  EXPECT_EQ(infer("mv", "X=f32[2,3] Vec=f32[3]", "Out"), "Out=f32[2]");
  EXPECT_EQ(infer("mv", "X=f32[2,3] Vec=f32[4]", "Out"),
            "X [2, 3] has 3 columns, but Vec has 4 elements");
  EXPECT_EQ(infer("dot", "X=f32[2,3] Y=f32[2,3]", "Out"), "Out=f32[2]");
  EXPECT_EQ(infer("addmm", "Input=f32[4] X=f32[2,3] Y=f32[3,4]", "Out"), "Out=f32[2,4]");
  EXPECT_EQ(infer("cross", "X=f32[2,3] Y=f32[2,3]", "Out", {{"dim", make_attr(0)}}),
            "attribute 'dim' is 0, which must name a dim of size 3 of X [2, 3]");
  EXPECT_EQ(infer("kron", "X=f32[2,3] Y=f32[4]", "Out"), "Out=f32[2,12]");
  EXPECT_EQ(infer("dist", "X=f32[2,3] Y=f32[3]", "Out"), "Out=f32[]");
  EXPECT_EQ(infer("cos_sim", "X=f32[-1,8]@1 Y=f32[1,8]", "Out XNorm YNorm"),
            "Out=f32[-1,1]@1 XNorm=f32[-1,1] YNorm=f32[1,1]");
  EXPECT_EQ(infer("cos_sim", "X=f32[4,8] Y=f32[2,8]", "Out"),
            "Y must have the rows of X or one, and equal other dims, found [4, 8] and [2, 8]");
}

TEST(Products, Flops) {
  EXPECT_EQ(flops("mul", "X=f32[2,3] Y=f32[3,4]"), 48);
  EXPECT_EQ(flops("mul_grad", "X=f32[2,3] Y=f32[3,4] Out@GRAD=f32[2,4]"), 96);
  EXPECT_EQ(flops("matmul_v2", "X=f32[5,2,3] Y=f32[3,4]"), 240);
  EXPECT_EQ(flops("mul", "X=f32[-1,3] Y=f32[3,4]"), 24);
}

TEST(Sum, JoinsShapes) {
  EXPECT_EQ(infer("sum", "X=f32[-1,3]+f32[5,3]", "Out"), "Out=f32[5,3]");
  EXPECT_EQ(infer("sum", "X=f32[1]+f32[]", "Out"), "Out=f32[1]");
  EXPECT_EQ(infer("sum", "X=rows:f32[9,4]+rows:f32[9,4]", "Out"), "Out=rows:f32[9,4]");
  EXPECT_EQ(infer("sum", "X=rows:f32[]+f32[9,4]", "Out"), "Out=f32[9,4]");
  EXPECT_EQ(infer("sum", "X=f32[2,3]+f32[3]", "Out"),
            "inputs X must have the same shape, found [2, 3] and [3] (input 1)");
  EXPECT_EQ(grad("sum", "X*2", "Out"), "scale(X -> Out) scale=1; scale(X -> Out) scale=1");
  EXPECT_EQ(grad("sum", "X*2", "Out", {}, "X"), "scale(X -> Out) scale=1");
}

TEST(Cast, SwapsTypesInItsGradient) {
  const AttrList types = {{"in_dtype", make_attr(5)}, {"out_dtype", make_attr(3)}};
  EXPECT_EQ(infer("cast", "X=f32[-1]@1", "Out", types), "Out=i64[-1]@1");
  EXPECT_EQ(grad("cast", "X", "Out", types), "cast(X -> Out) in_dtype=3 out_dtype=5");
  EXPECT_EQ(infer("cast", "X=f32[2]", "Out", {{"out_dtype", make_attr(99)}}),
            "attribute 'out_dtype' is 99, which is not an element type");
}

TEST(Scale, IsItsOwnGradient) {
  EXPECT_EQ(grad("scale", "X", "Out", {{"scale", make_attr(2.0F)}, {"bias", make_attr(1.0F)}}),
            "scale(X -> Out) scale=2 bias=0 bias_after_scale=true");
  EXPECT_EQ(grad("scale", "X ScaleTensor", "Out", {}, "ScaleTensor"),
            "scale(ScaleTensor X -> Out) bias=0 bias_after_scale=true");
}

TEST(Clip, BoundsInOrder) {
  EXPECT_EQ(infer("clip", "X=f32[2]", "Out", {{"min", make_attr(1.0F)}, {"max", make_attr(0.0F)}}),
            "attribute 'min' is 1, which is above 'max' 0");
  EXPECT_EQ(grad("clip", "X Min", "Out", {}, "Min"), "clip_grad(Min Out@GRAD X -> X@GRAD)");
  EXPECT_EQ(grad("pow", "X", "Out"), "pow_grad(Out@GRAD X -> X@GRAD)");
}

}  // namespace
}  // namespace millrace::ops

#include <gtest/gtest.h>

#include "framework/op_attrs.h"
#include "tests/ops/op_fixture.h"

namespace millrace::ops {
namespace {

// Broadcasting of two operands: at the end, starting at an axis, with dims of 1 and unknown dims.
TEST(Elementwise, Broadcasts) {
  EXPECT_EQ(infer("elementwise_add", "X=f32[2,3,4] Y=f32[4]", "Out"), "Out=f32[2,3,4]");
  EXPECT_EQ(infer("elementwise_add", "X=f32[2,3,4] Y=f32[2,3]", "Out", {{"axis", make_attr(0)}}),
            "Out=f32[2,3,4]");
  EXPECT_EQ(infer("elementwise_sub", "X=f32[4] Y=f32[2,3,4]", "Out"), "Out=f32[2,3,4]");
  EXPECT_EQ(infer("elementwise_mul", "X=f32[2,1,4] Y=f32[3,1]", "Out"), "Out=f32[2,3,4]");
  EXPECT_EQ(infer("elementwise_div", "X=f32[-1,3]@1 Y=f32[-1,3]", "Out"), "Out=f32[-1,3]@1");
  EXPECT_EQ(infer("elementwise_max", "X=f32[-1,3] Y=f32[1,3]", "Out"), "Out=f32[-1,3]");
  EXPECT_EQ(infer("elementwise_min", "X=f32[-1,3] Y=f32[7,3]", "Out"), "Out=f32[7,3]");
  EXPECT_EQ(infer("elementwise_pow", "X=f32[] Y=f32[1]", "Out"), "Out=f32[1]");
  // fluid 1.x: trailing dims of 1 that exceed the rank of X
  EXPECT_EQ(infer("elementwise_mul", "X=f32[2,3,4] Y=f32[4,1]", "Out", {{"axis", make_attr(2)}}),
            "Out=f32[2,3,4]");
}

TEST(Elementwise, UnknownShapesPass) {
  EXPECT_EQ(infer("elementwise_add", "X=? Y=f32[4]", "Out"), "Out=?");
  EXPECT_EQ(infer("less_than", "X=f32[4] Y=?", "Out"), "Out=?");
  EXPECT_EQ(infer("elementwise_mul", "X=rows:f32[] Y=f32[1]", "Out"), "Out=rows:f32[]");
}

TEST(Elementwise, ImpossibleShapesAreErrors) {
  EXPECT_EQ(infer("elementwise_add", "X=f32[2,3] Y=f32[4]", "Out"),
            "X [2, 3] and Y [4] cannot be broadcast with axis 1");
  // Equal ranks are aligned dim by dim, for any axis.
  EXPECT_EQ(infer("elementwise_mul", "X=f32[2,3] Y=f32[3,1]", "Out", {{"axis", make_attr(1)}}),
            "X [2, 3] and Y [3, 1] cannot be broadcast with axis 1");
  EXPECT_EQ(infer("elementwise_add", "X=f32[-1,3] Y=f32[3]", "Out", {{"axis", make_attr(5)}}),
            "attribute 'axis' is 5, which is outside of [-1, 2] for X [-1, 3] and Y [3]");
  EXPECT_EQ(infer("minus", "X=f32[2,3] Y=f32[3]", "Out"),
            "X and Y must have the same shape, found [2, 3] and [3]");
}

TEST(Elementwise, ElementTypeOfResults) {
  EXPECT_EQ(infer("equal", "X=i64[2] Y=i64[1]", "Out"), "Out=bool[2]");
  EXPECT_EQ(infer("logical_and", "X=bool[2] Y=bool[2]", "Out"), "Out=bool[2]");
  EXPECT_EQ(infer("logical_not", "X=f32[2]@1", "Out"), "Out=bool[2]@1");
  EXPECT_EQ(infer("bitwise_xor", "X=i32[2] Y=i32[2]", "Out"), "Out=i32[2]");
}

TEST(Elementwise, Gradients) {
  EXPECT_EQ(grad("elementwise_add", "X Y", "Out"),
            "elementwise_add_grad(Out@GRAD X Y -> X@GRAD Y@GRAD)");
  EXPECT_EQ(grad("elementwise_div", "X Y", "Out", {}, "X"),
            "elementwise_div_grad(Out Out@GRAD X Y -> Y@GRAD)");
  EXPECT_EQ(grad("minus", "X Y", "Out"), "scale(X -> Out) scale=1; scale(X -> Out) scale=-1");
  EXPECT_EQ(grad("minus", "X Y", "Out", {}, "X"), "scale(X -> Out) scale=-1");
  EXPECT_EQ(grad("less_than", "X Y", "Out"), "op type 'less_than' has no gradient rule");
  // Old programs do not pass X.
  EXPECT_EQ(infer("elementwise_add_grad", "Y=f32[3] Out@GRAD=f32[2,3]", "X@GRAD Y@GRAD"),
            "X@GRAD=f32[2,3] Y@GRAD=f32[3]");
}

}  // namespace
}  // namespace millrace::ops

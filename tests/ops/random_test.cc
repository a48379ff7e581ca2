#include <gtest/gtest.h>

#include "framework/op_attrs.h"
#include "tests/ops/op_fixture.h"

namespace millrace::ops {
namespace {

AttrValue shape(std::vector<int64_t> dims) {
  return AttrValue::of_longs(std::move(dims));
}

TEST(Fill, ShapeFromAttributeOrTensors) {
  EXPECT_EQ(infer("fill_constant", "", "Out", {{"shape", shape({2, 3})}, {"dtype", make_attr(3)}}),
            "Out=i64[2,3]");
  EXPECT_EQ(infer("fill_constant", "", "Out", {{"shape", AttrValue::of_ints({4})}}), "Out=f32[4]");
  EXPECT_EQ(infer("fill_constant", "ShapeTensor=i32[3]", "Out", {{"shape", shape({1})}}),
            "Out=f32[-1,-1,-1]");
  EXPECT_EQ(
      infer("uniform_random", "ShapeTensorList=i32[1]+i32[1]", "Out", {{"shape", shape({-1, 8})}}),
      "Out=f32[-1,8]");
  EXPECT_EQ(infer("fill_constant", "ShapeTensor=i32[-1]", "Out"), "Out=?");
  EXPECT_EQ(infer("gaussian_random", "", "Out", {{"shape", shape({2, -3})}}),
            "attribute 'shape' has dim -3, expected a size or -1");
  EXPECT_EQ(infer("fill_constant", "", "Out", {{"dtype", make_attr(7)}}),
            "attribute 'dtype' is 7, which is not an element type");
  EXPECT_EQ(infer("fill", "", "Out",
                  {{"shape", AttrValue::of_ints({3})}, {"value", AttrValue::of_floats({1, 2})}}),
            "attribute 'value' has 2 values, but 'shape' [3] requires 3");
}

TEST(Fill, LikeAnotherTensor) {
  EXPECT_EQ(infer("fill_zeros_like", "X=f64[-1,3]@1", "Out"), "Out=f64[-1,3]@1");
  EXPECT_EQ(infer("fill_any_like", "X=f32[2]", "Out", {{"dtype", make_attr(3)}}), "Out=i64[2]");
  EXPECT_EQ(infer("fill_any_like", "X=f64[2]", "Out"), "Out=f64[2]");
  EXPECT_EQ(infer("fill_any_like", "X=f64[2]", "Out", {{"dtype", make_attr(8)}}),
            "attribute 'dtype' is 8, which is not an element type");
}

TEST(BatchSizeLike, TakesOneDim) {
  const AttrList attrs = {{"shape", AttrValue::of_ints({-1, 8})}};
  EXPECT_EQ(infer("fill_constant_batch_size_like", "Input=f32[5,3]", "Out", attrs), "Out=f32[5,8]");
  // The number of sequences is known only at run time; ops that draw numbers count rows.
  EXPECT_EQ(infer("fill_constant_batch_size_like", "Input=f32[5,3]@1", "Out", attrs),
            "Out=f32[-1,8]");
  EXPECT_EQ(infer("gaussian_random_batch_size_like", "Input=f32[5,3]@1", "Out", attrs),
            "Out=f32[5,8]");
  EXPECT_EQ(infer("uniform_random_batch_size_like", "Input=f32[5,3]", "Out",
                  {{"shape", AttrValue::of_ints({2, 8})},
                   {"input_dim_idx", make_attr(1)},
                   {"output_dim_idx", make_attr(1)}}),
            "Out=f32[2,3]");
  EXPECT_EQ(infer("fill_constant_batch_size_like", "Input=f32[5]", "Out",
                  {{"shape", AttrValue::of_ints({2})}, {"input_dim_idx", make_attr(1)}}),
            "attribute 'input_dim_idx' is 1, which is outside of [0, 1) for Input [5]");
}

TEST(Numbers, InSequenceAndAtRandom) {
  EXPECT_EQ(infer("range", "Start=i64[1] End=i64[1] Step=i64[1]", "Out"), "Out=i64[-1]");
  EXPECT_EQ(infer("range", "Start=i64[2] End=i64[1] Step=i64[1]", "Out"),
            "Start must have 1 element, found [2]");
  EXPECT_EQ(infer("linspace", "Start=f32[1] Stop=f32[1] Num=i32[1]", "Out"), "Out=f32[-1]");
  EXPECT_EQ(infer("randperm", "", "Out", {{"n", make_attr(7)}}), "Out=i64[7]");
  EXPECT_EQ(infer("randint", "", "Out", {{"low", make_attr(3)}, {"high", make_attr(3)}}),
            "attribute 'low' is 3, which is not below 'high' 3");
}

TEST(Dropout, KeepsItsMaskForBackward) {
  EXPECT_EQ(infer("dropout", "X=f32[-1,3]@1", "Out Mask"), "Out=f32[-1,3]@1 Mask=u8[-1,3]");
  EXPECT_EQ(grad("dropout", "X", "Out Mask"), "dropout_grad(Mask Out@GRAD -> X@GRAD)");
  EXPECT_EQ(infer("dropout_grad", "Mask=u8[2,3] Out@GRAD=f32[2,3]", "X@GRAD"), "X@GRAD=f32[2,3]");
}

}  // namespace
}  // namespace millrace::ops

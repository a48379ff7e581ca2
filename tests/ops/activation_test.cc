#include <gtest/gtest.h>

#include "framework/op_attrs.h"
#include "tests/ops/op_fixture.h"

namespace millrace::ops {
namespace {

TEST(Activation, KeepsTheMetaOfX) {
  for (const char* const type : {"relu", "gelu", "sigmoid", "exp", "floor", "sign", "softmax"})
    EXPECT_EQ(infer(type, "X=f64[-1,3]@1", "Out"), "Out=f64[-1,3]@1") << type;
  EXPECT_EQ(infer("tanh", "X=?", "Out"), "Out=?");
  EXPECT_EQ(infer("isnan_v2", "X=f32[2]", "Out"), "Out=bool[2]");
}

// The forward vars that the gradient reads determine what must stay in memory.
TEST(Activation, GradientsReadXOrOut) {
  EXPECT_EQ(grad("relu", "X", "Out"), "relu_grad(Out Out@GRAD -> X@GRAD)");
  EXPECT_EQ(grad("square", "X", "Out"), "square_grad(Out@GRAD X -> X@GRAD)");
  EXPECT_EQ(grad("elu", "X", "Out"), "elu_grad(Out Out@GRAD X -> X@GRAD)");
  EXPECT_EQ(grad("ceil", "X", "Out"), "ceil_grad(Out@GRAD -> X@GRAD)");
  EXPECT_EQ(grad("sign", "X", "Out"), "scale(X -> Out) scale=0");
  EXPECT_EQ(grad("relu", "X", "Out", {}, "X"), "");
  EXPECT_EQ(grad("isnan_v2", "X", "Out"), "op type 'isnan_v2' has no gradient rule");
  EXPECT_EQ(infer("relu_grad", "Out=f32[2,3] Out@GRAD=f32[2,3]", "X@GRAD"), "X@GRAD=f32[2,3]");
  EXPECT_EQ(infer("ceil_grad", "Out@GRAD=f32[2,3]", "X@GRAD"), "X@GRAD=f32[2,3]");
}

TEST(Activation, SoftmaxChecksItsAxis) {
  EXPECT_EQ(infer("softmax", "X=f32[2,3]", "Out", {{"axis", make_attr(2)}}),
            "attribute 'axis' has axis 2, which is outside of [-2, 2) for rank 2");
  EXPECT_EQ(infer("log_softmax", "X=f32[]", "Out", {{"axis", make_attr(-1)}}), "Out=f32[]");
}

TEST(Activation, PreluCountsItsSlopes) {
  const AttrList channel = {{"mode", make_attr("channel")}};
  EXPECT_EQ(infer("prelu", "X=f32[-1,3,8,8] Alpha=f32[3]", "Out", channel), "Out=f32[-1,3,8,8]");
  EXPECT_EQ(
      infer("prelu", "X=f32[-1,3,8,8] Alpha=f32[1,3,8,8]", "Out", {{"mode", make_attr("element")}}),
      "Out=f32[-1,3,8,8]");
  EXPECT_EQ(infer("prelu", "X=f32[-1,3,8,8] Alpha=f32[4]", "Out", channel),
            "Alpha must have 3 elements for mode 'channel' and X [-1, 3, 8, 8], found [4]");
  EXPECT_EQ(grad("prelu", "X Alpha", "Out"), "prelu_grad(Alpha Out@GRAD X -> Alpha@GRAD X@GRAD)");
}

}  // namespace
}  // namespace millrace::ops

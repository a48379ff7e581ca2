// Models that the export writes: inputs, outputs and nodes; and what it refuses.

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <onnx/onnx_pb.h>

#include "interchange/onnx/export.h"
#include "tests/support/program_builder.h"

namespace millrace::interchange {
namespace {

using millrace::testing::ProgramBuilder;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Fetches `y` of one op that reads the fed var `x`.
class ExportOnnx : public ::testing::Test {
 protected:
  Op& op(const std::string& type, std::initializer_list<int64_t> x_dims,
         std::initializer_list<int64_t> y_dims, DType y_dtype = DType::kFloat32) {
    program_.var("x", x_dims).var("y", y_dims, y_dtype);
    program_.feed("x", 0);
    Op& added = program_.op(type, {{"X", {"x"}}}, {{"Out", {"y"}}});
    program_.fetch("y", 0);
    return added;
  }
  ::onnx::ModelProto model(const OnnxOptions& options = {}) {
    ::onnx::ModelProto result;
    const auto bytes = export_onnx(program_.program(), params_, options);
    EXPECT_TRUE(bytes.ok()) << bytes.status().to_string();
    if (bytes.ok()) result.ParseFromString(*bytes);
    return result;
  }
  Status error(const OnnxOptions& options = {}) {
    auto bytes = export_onnx(program_.program(), params_, options);
    return bytes.ok() ? Ok() : std::move(bytes).status();
  }
  static std::vector<std::string> types(const ::onnx::ModelProto& model) {
    std::vector<std::string> found;
    for (const auto& node : model.graph().node()) found.push_back(node.op_type());
    return found;
  }

  ProgramBuilder program_;
  io::ParamValues params_;
};

TEST_F(ExportOnnx, InputsAndOutputsHaveTheNamesAndDimsOfTheirVars) {
  op("relu", {-1, 3}, {-1, 3});
  const ::onnx::ModelProto made = model();
  ASSERT_EQ(made.graph().input_size(), 1);
  EXPECT_EQ(made.graph().input(0).name(), "x");
  const auto& shape = made.graph().input(0).type().tensor_type().shape();
  EXPECT_EQ(shape.dim(0).dim_param(), "x_dim0");
  EXPECT_EQ(shape.dim(1).dim_value(), 3);
  ASSERT_EQ(made.graph().output_size(), 1);
  EXPECT_EQ(made.graph().output(0).name(), "y");
  EXPECT_THAT(types(made), ElementsAre("Relu"));
  EXPECT_EQ(made.opset_import(0).version(), 17);
}

TEST_F(ExportOnnx, InputDimsReplaceTheDeclaredOnes) {
  op("relu", {-1, 3}, {-1, 3});
  const ::onnx::ModelProto made = model({.input_dims = {{"x", {2, 5}}}});
  EXPECT_EQ(made.graph().input(0).type().tensor_type().shape().dim(1).dim_value(), 5);
  EXPECT_EQ(made.graph().output(0).type().tensor_type().shape().dim(0).dim_value(), 2);
  EXPECT_THAT(error({.input_dims = {{"x", {2}}}}).to_string(),
              HasSubstr("dims of the input 'x': expected 2 of them, found 1"));
  EXPECT_THAT(error({.input_dims = {{"z", {2}}}}).to_string(),
              HasSubstr("dims of 'z', which is no input"));
}

TEST_F(ExportOnnx, AxesOfReductionsAreAnInputFromOpset18On) {
  op("reduce_mean", {4, 3}, {4}).set_attr("dim", AttrValue::of_ints({1}));
  EXPECT_EQ(model({.opset = 17}).graph().node(0).input_size(), 1);
  EXPECT_EQ(model({.opset = 21}).graph().node(0).input_size(), 2);
}

// Both ops clip exponents at -64; the result of softmax is 0 in f32 there.
TEST_F(ExportOnnx, ExponentsOfLogSoftmaxAreClipped) {
  op("log_softmax", {2, 3}, {2, 3}).set_int("axis", -1);
  EXPECT_THAT(types(model()), ElementsAre("ReduceMax", "Sub", "Max", "LogSoftmax"));
  program_ = ProgramBuilder();
  op("softmax", {2, 3}, {2, 3}).set_int("axis", -1);
  EXPECT_THAT(types(model()), ElementsAre("Softmax"));
}

// ONNX Runtime 1.32 ignores the transposition before a product with a vector.
TEST_F(ExportOnnx, AVectorIsMultipliedAsAMatrix) {
  program_.var("v", {4});
  program_.feed("v", 1);
  op("matmul_v2", {4, 3}, {3}).set_input("Y", "v").set_bool("trans_x", true);
  EXPECT_THAT(types(model()), ElementsAre("Transpose", "Unsqueeze", "MatMul", "Squeeze"));
}

// Nodes that compare with a threshold would make 0 of it.
TEST_F(ExportOnnx, NanStaysNan) {
  for (const char* const type : {"hard_shrink", "softshrink", "thresholded_relu"}) {
    program_ = ProgramBuilder();
    op(type, {-1, 3}, {-1, 3});
    const ::onnx::ModelProto made = model();
    const auto& last = *made.graph().node().rbegin();
    EXPECT_EQ(last.op_type(), "Where") << type;
    EXPECT_EQ(last.input(1), "x") << type;
    EXPECT_THAT(types(made), Contains("IsNaN")) << type;
  }
}

// ONNX would put their corners in order, so that they overlap others.
TEST_F(ExportOnnx, BoxesWithSwappedCornersBecomePoints) {
  program_.var("b", {1, 3, 4}).var("s", {1, 2, 3}).var("y", {-1, 6});
  program_.feed("b", 0);
  program_.feed("s", 1);
  program_.op("multiclass_nms", {{"BBoxes", {"b"}}, {"Scores", {"s"}}}, {{"Out", {"y"}}})
      .set_float("score_threshold", 0.1F)
      .set_int("nms_top_k", -1)
      .set_int("keep_top_k", -1);
  program_.fetch("y", 0);
  const ::onnx::ModelProto made = model();
  std::string boxes;
  for (const auto& node : made.graph().node())
    if (node.op_type() == "NonMaxSuppression") boxes = node.input(0);
  const auto maker = std::ranges::find_if(
      made.graph().node(), [&](const auto& node) { return node.output(0) == boxes; });
  ASSERT_NE(maker, made.graph().node().end());
  EXPECT_EQ(maker->op_type(), "Where");
  EXPECT_EQ(maker->input(2), "b");
}

TEST_F(ExportOnnx, ParametersAreInitializers) {
  program_.var("x", {-1, 2}).param("w", {2, 1}).var("y", {-1, 1});
  program_.feed("x", 0);
  program_.op("mul", {{"X", {"x"}}, {"Y", {"w"}}}, {{"Out", {"y"}}});
  program_.fetch("y", 0);
  EXPECT_THAT(error().to_string(), HasSubstr("the parameter 'w' has no value"));
  Tensor& w = params_["w"].as<Tensor>();
  ASSERT_TRUE(w.resize(DType::kFloat32, {2, 1}).ok());
  w.values<float>()[0] = 1.5F;
  w.values<float>()[1] = -2.0F;
  const ::onnx::ModelProto made = model();
  ASSERT_EQ(made.graph().initializer_size(), 1);
  EXPECT_EQ(made.graph().initializer(0).name(), "w");
  EXPECT_EQ(made.graph().initializer(0).raw_data(),
            std::string(reinterpret_cast<const char*>(w.raw()), 8));
}

TEST_F(ExportOnnx, InferenceScalesWhatTrainingDidNotScale) {
  op("dropout", {2, 3}, {2, 3}).set_bool("is_test", true).set_float("dropout_prob", 0.25F);
  EXPECT_THAT(types(model()), ElementsAre("Mul"));
  program_ = ProgramBuilder();
  op("dropout", {2, 3}, {2, 3})
      .set_bool("is_test", true)
      .set_string("dropout_implementation", "upscale_in_train");
  EXPECT_THAT(types(model()), ElementsAre("Identity"));
}

TEST_F(ExportOnnx, OffsetsAreInputsIfTheyAreRead) {
  VarSpec spec = VarSpec::tensor(DType::kFloat32, {-1, 3});
  spec.lod_level = 1;
  program_.block().declare("x", spec);
  program_.var("y", {-1, 3});
  program_.feed("x", 0);
  program_.op("sequence_pool", {{"X", {"x"}}}, {{"Out", {"y"}}}).set_string("pooltype", "SUM");
  program_.fetch("y", 0);
  const ::onnx::ModelProto made = model();
  ASSERT_EQ(made.graph().input_size(), 2);
  EXPECT_EQ(made.graph().input(1).name(), "x.lod0");
  EXPECT_EQ(made.graph().output_size(), 1);
}

TEST_F(ExportOnnx, OpsWithoutCounterpartAreRefusedWithTheirPlace) {
  op("uniform_random_batch_size_like", {4, 3}, {4, 3});
  const Status status = error();
  EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
  EXPECT_THAT(status.to_string(), AllOf(HasSubstr("block 0, op 1 (uniform_random_batch_size_like)"),
                                        HasSubstr("the op has no counterpart")));
}

TEST_F(ExportOnnx, UnknownAttributesAreRefused) {
  op("relu", {4, 3}, {4, 3}).set_float("leak", 0.5F);
  const Status status = error();
  EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
  EXPECT_THAT(status.to_string(), AllOf(HasSubstr("block 0, op 1 (relu), attr leak"),
                                        HasSubstr("the attribute has a value")));
}

TEST_F(ExportOnnx, FunctionsThatAreFusedIntoAnOpAreRefused) {
  op("relu", {4, 3}, {4, 3}).set_string("fuse_activation", "tanh");
  EXPECT_THAT(error().to_string(), HasSubstr("attr fuse_activation"));
  program_ = ProgramBuilder();
  op("relu", {4, 3}, {4, 3}).set_string("fuse_activation", "");
  EXPECT_TRUE(error().ok());
}

// The export would write the default of the attribute.
TEST_F(ExportOnnx, AttributesWithTheValueOfAVarAreRefused) {
  op("leaky_relu", {4, 3}, {4, 3}).set_attr("alpha", AttrValue::of_var("x"));
  EXPECT_THAT(error().to_string(), HasSubstr("(leaky_relu), attr alpha"));
}

TEST_F(ExportOnnx, ConstantsThatAreNotExactAreRefused) {
  program_.var("y", {2}, DType::kInt64);
  Op& fill = program_.op("fill_constant", {}, {{"Out", {"y"}}});
  fill.set_int("dtype", static_cast<int32_t>(DType::kInt64));
  fill.set_attr("shape", AttrValue::of_longs({2}));
  program_.fetch("y", 0);
  fill.set_string("str_value", "9007199254740991");
  EXPECT_TRUE(error().ok()) << error().to_string();
  fill.set_string("str_value", "9007199254740993");
  EXPECT_THAT(error().to_string(), HasSubstr("an integer of 2^53 or above"));
  fill.set_string("str_value", "12 or so");
  EXPECT_THAT(error().to_string(), HasSubstr("the value '12 or so'"));
}

TEST_F(ExportOnnx, ElementTypesThatOnnxLacksAreRefused) {
  program_.var("x", {2}, DType::kBfloat16).var("y", {2}, DType::kBfloat16);
  program_.feed("x", 0);
  program_.op("relu", {{"X", {"x"}}}, {{"Out", {"y"}}});
  program_.fetch("y", 0);
  EXPECT_THAT(error().to_string(), HasSubstr("element type bf16 of the fed var 'x'"));
}

TEST_F(ExportOnnx, TheCheckerOfOnnxSeesEveryModel) {
  program_.var("x", {2}, DType::kInt32).var("y", {2}, DType::kInt32);
  program_.feed("x", 0);
  program_.op("sin", {{"X", {"x"}}}, {{"Out", {"y"}}});
  program_.fetch("y", 0);
  EXPECT_THAT(error().to_string(), HasSubstr("its checker rejects the model"));
}

TEST_F(ExportOnnx, ProgramsMustFetchAndOpsetsBeKnown) {
  op("relu", {4, 3}, {4, 3});
  EXPECT_THAT(error({.opset = 16}).to_string(), HasSubstr("opset 16: expected 17 to 21"));
  program_.block().erase(program_.block().back());
  EXPECT_THAT(error().to_string(), HasSubstr("the program has no fetch ops"));
}

TEST(OnnxOpTypes, AreSorted) {
  const std::vector<std::string> types = onnx_op_types();
  EXPECT_TRUE(std::is_sorted(types.begin(), types.end()));
  EXPECT_THAT(types, Contains("conv2d"));
}

// The extents of the first generation are products that are rounded down, and pixels are read by
// their ratio: with scales, Resize would read them by the factor.
TEST_F(ExportOnnx, ResizedExtentsAreGivenWhereTheFactorIsNotTheirRatio) {
  op("bilinear_interp", {1, 2, 3, 5}, {1, 2, 4, 7}).set_float("scale", 1.5F);
  const ::onnx::ModelProto made = model();
  for (const auto& node : made.graph().node()) {
    if (node.op_type() != "Resize") continue;
    ASSERT_EQ(node.input_size(), 4);
    EXPECT_EQ(node.input(2), "");
    return;
  }
  FAIL() << "no Resize";
}

TEST_F(ExportOnnx, TheAttributeSelectsTheInterpolation) {
  Op& resize = op("bilinear_interp", {1, 2, 3, 5}, {1, 2, 6, 10});
  resize.set_float("scale", 2).set_string("interp_method", "nearest");
  const ::onnx::ModelProto made = model();
  std::string mode;
  for (const auto& node : made.graph().node())
    for (const auto& attr : node.attribute())
      if (node.op_type() == "Resize" && attr.name() == "mode") mode = attr.s();
  EXPECT_EQ(mode, "nearest");
  resize.set_string("interp_method", "bicubic");
  EXPECT_THAT(error().to_string(), HasSubstr("bicubic interpolation"));
}

}  // namespace
}  // namespace millrace::interchange

// Programs that the import of ONNX models writes: feeds, fetches, ops and parameters.

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <onnx/onnx_pb.h>

#include "framework/op_attrs.h"
#include "interchange/from_onnx/import.h"
#include "tests/interchange/onnx_model.h"
#include "tests/io/temp_folder.h"

namespace millrace::interchange {
namespace {

using millrace::testing::OnnxModel;
using millrace::testing::set_int;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::string> types_of(const Program& program) {
  std::vector<std::string> types;
  for (const Op& op : program.root().ops()) types.push_back(op.type().str());
  return types;
}

ImportedModel imported(const OnnxModel& model, const OnnxImportOptions& options = {}) {
  StatusOr<ImportedModel> result = import_onnx(model.bytes(), options);
  EXPECT_TRUE(result.ok()) << result.status().to_string();
  if (!result.ok()) return {Program::create(), {}};
  return std::move(*result);
}

std::vector<int64_t> dims_of(const ImportedModel& model, const char* name) {
  const Var* const var = model.program->root().find_var(name);
  if (var == nullptr) return {-2};
  return {var->dims().begin(), var->dims().end()};
}

TEST(ImportOnnx, InputsAndOutputsHaveTheirNamesAndNamedDimsAreUnknown) {
  OnnxModel model;
  model.input("x", {-1, 3}).input("z", {3}).output("y").output("n");
  model.node("Add", {"x", "z"}, {"y"});
  model.node("Neg", {"x"}, {"n"});
  const ImportedModel made = imported(model);
  EXPECT_THAT(types_of(*made.program),
              ElementsAre("feed", "feed", "elementwise_add", "scale", "fetch", "fetch"));
  EXPECT_THAT(dims_of(made, "x"), ElementsAre(-1, 3));
  EXPECT_EQ(made.program->root().front().first_output("Out").str(), "x");
  EXPECT_EQ(made.program->root().back().first_input("X").str(), "n");
  EXPECT_THAT(made.params, IsEmpty());
}

// A product of i32 that overflows is what the run makes of it, not what exact arithmetic does.
TEST(ImportOnnx, IntegersThatOverflowAreLeftToTheRun) {
  OnnxModel model;
  model.input("x", {2, 3}).output("y", millrace::testing::kOnnxInt64);
  model.constant("a", {1}, ::onnx::TensorProto::INT32).add_int32_data(1 << 16);
  model.constant("b", {1}, ::onnx::TensorProto::INT32).add_int32_data((1 << 16) + 1);
  model.node("Mul", {"a", "b"}, {"c"});  // 65536 in 32 bits
  ::onnx::NodeProto& cast = model.node("Cast", {"c"}, {"d"});
  set_int(cast, "to", ::onnx::TensorProto::INT64);
  model.node("ConstantOfShape", {"d"}, {"e"});
  model.node("Shape", {"e"}, {"y"});
  const ImportedModel made = imported(model);
  EXPECT_THAT(dims_of(made, "e"), ElementsAre(-1));
}

// 2^53 + 1 would become 2^53, which an f32 attribute holds.
TEST(ImportOnnx, IntegersThatNoFloatHoldsAreRefused) {
  for (const int64_t value : {int64_t{1} << 53, (int64_t{1} << 53) + 1}) {
    OnnxModel model;
    model.output("y", millrace::testing::kOnnxInt64);
    model.longs("dims", {2});
    ::onnx::NodeProto& node = model.node("ConstantOfShape", {"dims"}, {"y"});
    ::onnx::AttributeProto& stated = *node.add_attribute();
    stated.set_name("value");
    stated.set_type(::onnx::AttributeProto::TENSOR);
    stated.mutable_t()->set_data_type(::onnx::TensorProto::INT64);
    stated.mutable_t()->add_dims(1);
    stated.mutable_t()->add_int64_data(value);
    const StatusOr<ImportedModel> result = import_onnx(model.bytes(), {});
    EXPECT_EQ(result.ok(), value % 2 == 0);
    EXPECT_THAT(result.status().to_string(),
                HasSubstr(result.ok() ? "" : "a value of this element type"));
  }
}

// It used to count as a scalar.
TEST(ImportOnnx, ValuesOfUnknownRankAreRefused) {
  for (const char* const type : {"Shape", "Transpose", "ReduceSum"}) {
    OnnxModel model;
    model.input("s", {-1}, millrace::testing::kOnnxInt64).output("y");
    model.node("ConstantOfShape", {"s"}, {"x"});
    model.node(type, {"x"}, {"y"});
    EXPECT_THAT(import_onnx(model.bytes(), {}).status().to_string(),
                HasSubstr("the number of dims of a value depends on the input"));
  }
}

// The op log_softmax clips exponents.
TEST(ImportOnnx, LogarithmsOfSmallProbabilitiesAreNotClipped) {
  OnnxModel model;
  model.input("x", {2, 3}).output("y");
  model.node("LogSoftmax", {"x"}, {"y"});
  EXPECT_THAT(types_of(*imported(model).program),
              ElementsAre("feed", "reduce_max", "elementwise_sub", "exp", "reduce_sum", "log",
                          "elementwise_sub", "fetch"));
}

// The first of three columns is cut off, and the others go on at the end.
TEST(ImportOnnx, PaddingRepeatsWhatIsLeft) {
  for (const auto& [mode, last] : {std::pair{"wrap", 1}, {"reflect", 1}, {"edge", 2}}) {
    OnnxModel model(19);
    model.input("x", {3, 3}).output("y");
    model.longs("pads", {0, -1, 0, 1});
    ::onnx::NodeProto& node = model.node("Pad", {"x", "pads"}, {"y"});
    ::onnx::AttributeProto& stated = *node.add_attribute();
    stated.set_name("mode");
    stated.set_type(::onnx::AttributeProto::STRING);
    stated.set_s(mode);
    const ImportedModel made = imported(model);
    ASSERT_EQ(made.params.size(), 1U);
    EXPECT_THAT(made.params.begin()->second.get_if<Tensor>()->values<int64_t>(),
                ElementsAre(1, 2, last));
  }
}

// An odd number of rows and columns too many: one more is cut off at the start, or at the end.
TEST(ImportOnnx, TransposedConvolutionsAreCutWhereOnnxCutsThem) {
  for (const char* const automatic : {"NOTSET", "SAME_LOWER", "SAME_UPPER"}) {
    OnnxModel model;
    model.input("x", {1, 1, 3, 3}).output("y");
    model.floats("w", {1, 1, 2, 2}, {1, 2, 3, 4});
    ::onnx::NodeProto& node = model.node("ConvTranspose", {"x", "w"}, {"y"});
    ::onnx::AttributeProto& sizes = *node.add_attribute();
    sizes.set_name("output_shape");
    sizes.set_type(::onnx::AttributeProto::INTS);
    sizes.add_ints(3);
    sizes.add_ints(3);
    ::onnx::AttributeProto& padding = *node.add_attribute();
    padding.set_name("auto_pad");
    padding.set_type(::onnx::AttributeProto::STRING);
    padding.set_s(automatic);
    const ImportedModel made = imported(model);
    const bool at_the_end = automatic == std::string("SAME_UPPER");
    const auto paddings =
        at_the_end ? std::vector<int32_t>{0, 1, 0, 1} : std::vector<int32_t>{1, 0, 1, 0};
    for (const Op& op : made.program->root().ops()) {
      if (op.type() != "conv2d_transpose") continue;
      EXPECT_EQ(get_attr_or<std::vector<int32_t>>(op, "paddings", {}), paddings);
    }
    EXPECT_THAT(dims_of(made, "y"), ElementsAre(1, 1, 3, 3));
  }
}

TEST(ImportOnnx, InputDimsReplaceTheDeclaredOnes) {
  OnnxModel model;
  model.input("x", {-1, 3}).output("y");
  model.node("Relu", {"x"}, {"y"});
  EXPECT_THAT(dims_of(imported(model, {.input_dims = {{"x", {2, 5}}}}), "y"), ElementsAre(2, 5));
  EXPECT_THAT(import_onnx(model.bytes(), {.input_dims = {{"x", {2}}}}).status().to_string(),
              HasSubstr("dims of the input 'x': expected 2 of them, found 1"));
  EXPECT_THAT(import_onnx(model.bytes(), {.input_dims = {{"q", {2}}}}).status().to_string(),
              HasSubstr("dims of 'q', which is no input of the model"));
}

TEST(ImportOnnx, ConstantsAreParametersAndUnusedOnesAreLeftOut) {
  OnnxModel model;
  model.input("x", {-1, 2}).input("w", {2, 1}).output("y");  // old files list constants as inputs
  model.floats("w", {2, 1}, {1.5F, -2});
  model.floats("unused", {1}, {7});
  model.node("MatMul", {"x", "w"}, {"y"});
  model.node("Exp", {"y"}, {"nothing_reads_it"});
  const ImportedModel made = imported(model);
  EXPECT_THAT(types_of(*made.program), ElementsAre("feed", "matmul_v2", "fetch"));
  ASSERT_EQ(made.params.size(), 1U);
  const Tensor& w = *made.params.at("w").get_if<Tensor>();
  EXPECT_THAT(w.values<float>(), ElementsAre(1.5F, -2));
  EXPECT_TRUE(made.program->root().find_var("w")->persistable());
}

// Flattens x by its own shape: Shape, Gather, Concat, Reshape.
OnnxModel flattening(std::initializer_list<int64_t> x) {
  OnnxModel model;
  model.input("x", x).output("y");
  model.constant("zero", {}, ::onnx::TensorProto::INT64).add_int64_data(0);
  model.longs("axis", {0});
  model.longs("rest", {-1});
  model.node("Shape", {"x"}, {"shape"});
  model.node("Gather", {"shape", "zero"}, {"batch"});
  model.node("Unsqueeze", {"batch", "axis"}, {"batches"});
  set_int(model.node("Concat", {"batches", "rest"}, {"target"}), "axis", 0);
  model.node("Reshape", {"x", "target"}, {"y"});
  return model;
}

TEST(ImportOnnx, ArithmeticWithKnownShapesBecomesAnAttribute) {
  const ImportedModel made = imported(flattening({4, 3, 5}));
  EXPECT_THAT(types_of(*made.program), ElementsAre("feed", "reshape2", "fetch"));
  const Op& op = *made.program->root().next(made.program->root().front());
  EXPECT_THAT(get_attr_or<std::vector<int32_t>>(op, "shape", {}), ElementsAre(4, -1));
  EXPECT_THAT(dims_of(made, "y"), ElementsAre(4, 15));
}

TEST(ImportOnnx, ArithmeticWithUnknownShapesStaysInTheProgram) {
  const ImportedModel made = imported(flattening({-1, 3, 5}));
  const Op& op = *made.program->root().first_writer("y");
  EXPECT_EQ(op.type().str(), "reshape2");
  EXPECT_EQ(op.first_input("Shape").str(), "target");
  EXPECT_NE(made.program->root().first_writer("shape"), nullptr);
  EXPECT_EQ(dims_of(made, "y").size(), 2U);
}

TEST(ImportOnnx, OneUnknownExtentIsComputedFromTheOthers) {
  OnnxModel model;
  model.input("x", {-1, 6}).output("y");
  model.constant("zero", {}, ::onnx::TensorProto::INT64).add_int64_data(0);
  model.longs("axis", {0});
  model.longs("two_three", {2, 3});
  model.node("Shape", {"x"}, {"shape"});
  model.node("Gather", {"shape", "zero"}, {"batch"});
  model.node("Unsqueeze", {"batch", "axis"}, {"batches"});
  set_int(model.node("Concat", {"batches", "two_three"}, {"target"}), "axis", 0);
  model.node("Reshape", {"x", "target"}, {"y"});
  const ImportedModel made = imported(model);
  EXPECT_THAT(types_of(*made.program), ElementsAre("feed", "reshape2", "fetch"));
  EXPECT_THAT(dims_of(made, "y"), ElementsAre(-1, 2, 3));
}

TEST(ImportOnnx, OutputsThatAreOtherValuesAreCopied) {
  OnnxModel model;
  model.input("x", {2}).output("y").output("same");
  model.node("Relu", {"x"}, {"y"});
  model.node("Identity", {"y"}, {"same"});
  EXPECT_THAT(types_of(*imported(model).program),
              ElementsAre("feed", "relu", "fetch", "assign", "fetch"));
}

TEST(ImportOnnx, ReadsConstantsInFilesOfTheFolder) {
  const millrace::testing::TempFolder folder;
  const float values[] = {9, 1, 2};
  std::ofstream(folder / "weights.bin", std::ios::binary)
      .write(reinterpret_cast<const char*>(values), sizeof values);
  OnnxModel model;
  model.input("x", {2}).output("y");
  ::onnx::TensorProto& w = model.constant("w", {2}, ::onnx::TensorProto::FLOAT);
  w.set_data_location(::onnx::TensorProto::EXTERNAL);
  const auto entry = [&](const char* key, const char* value) {
    auto& added = *w.add_external_data();
    added.set_key(key);
    added.set_value(value);
  };
  entry("location", "weights.bin");
  entry("offset", "4");
  entry("length", "8");
  model.node("Add", {"x", "w"}, {"y"});
  const ImportedModel made = imported(model, {.folder = folder / "."});
  EXPECT_THAT(made.params.at("w").get_if<Tensor>()->values<float>(), ElementsAre(1, 2));
  w.mutable_external_data(1)->set_value("8");
  EXPECT_THAT(import_onnx(model.bytes(), {.folder = folder / "."}).status().to_string(),
              HasSubstr("'weights.bin' has 12 bytes, expected 8 from 8 on"));
  w.mutable_external_data(2)->set_value("12");
  EXPECT_THAT(import_onnx(model.bytes(), {.folder = folder / "."}).status().to_string(),
              HasSubstr("12 bytes, expected 8"));
  w.mutable_external_data(1)->set_value("-4");
  EXPECT_THAT(import_onnx(model.bytes(), {.folder = folder / "."}).status().to_string(),
              HasSubstr("'-4' is no offset"));
}

}  // namespace
}  // namespace millrace::interchange

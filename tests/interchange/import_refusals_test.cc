// ONNX models that the import refuses, with the place in the message.

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <onnx/onnx_pb.h>

#include "interchange/from_onnx/import.h"
#include "tests/interchange/onnx_model.h"
#include "tests/io/temp_folder.h"

namespace millrace::interchange {
namespace {

using millrace::testing::OnnxModel;
using millrace::testing::set_int;
using ::testing::HasSubstr;

// A model with the input x and the output y.
class ImportRefusals : public ::testing::Test {
 protected:
  ImportRefusals() { model_.input("x", {2, 3}).output("y"); }

  void expect(StatusCode code, const std::string& text, const OnnxImportOptions& options = {}) {
    const StatusOr<ImportedModel> made = import_onnx(model_.bytes(), options);
    ASSERT_FALSE(made.ok()) << text;
    EXPECT_EQ(made.status().code(), code) << made.status().to_string();
    EXPECT_THAT(made.status().to_string(), HasSubstr(text));
  }

  OnnxModel model_;
};

TEST_F(ImportRefusals, BytesThatAreNoModel) {
  const auto error = [](const std::string& bytes) { return import_onnx(bytes).status(); };
  EXPECT_THAT(error("").to_string(), HasSubstr("no graph"));
  EXPECT_THAT(error("hello").to_string(), HasSubstr("no ONNX model"));
  model_.node("Relu", {"x"}, {"y"});
  const std::string whole = model_.bytes();
  ASSERT_TRUE(import_onnx(whole).ok());
  for (size_t length = 0; length < whole.size(); ++length) {
    const Status status = import_onnx(std::string_view(whole).substr(0, length)).status();
    EXPECT_FALSE(status.ok() && length > 0 && length < 10) << length;
  }
  EXPECT_EQ(error(whole.substr(0, whole.size() - 1)).code(), StatusCode::kInvalidData);
}

TEST_F(ImportRefusals, OperatorSets) {
  model_.node("Relu", {"x"}, {"y"});
  auto& set = *model_.proto().mutable_opset_import(0);
  set.set_version(22);
  expect(StatusCode::kUnimplemented, "operator set 22, expected 6 to 21");
  set.set_version(5);
  expect(StatusCode::kUnimplemented, "operator set 5");
  set.set_domain("other");
  expect(StatusCode::kUnimplemented, "states no operator set of ONNX itself");
}

TEST_F(ImportRefusals, OperatorsWithoutCounterpart) {
  for (const char* type : {"Loop", "If", "Scan", "SequenceAt", "QLinearConv", "StringNormalizer"}) {
    SCOPED_TRACE(type);
    model_.graph().clear_node();
    model_.node(type, {"x"}, {"y"}).set_name("a node");
    expect(StatusCode::kUnimplemented,
           std::string("node 'a node' (") + type + "): the operator has no counterpart");
  }
  model_.graph().clear_node();
  model_.node("Relu", {"x"}, {"y"}).set_domain("com.microsoft");
  expect(StatusCode::kUnimplemented, "node 'y' (com.microsoft.Relu)");
}

TEST_F(ImportRefusals, AttributesAndInputsThatTheImportDoesNotKnow) {
  ::onnx::NodeProto& node = model_.node("Relu", {"x"}, {"y"});
  set_int(node, "consumed", 1);
  expect(StatusCode::kUnimplemented, "attribute consumed is not known to the import");
  node.clear_attribute();
  node.add_input("x");
  expect(StatusCode::kInvalidProgram, "2 inputs, expected 1 to 1");
  node.mutable_input()->RemoveLast();
  node.set_op_type("Softmax");
  ::onnx::AttributeProto& axis = *node.add_attribute();
  axis.set_name("axis");
  axis.set_type(::onnx::AttributeProto::FLOAT);
  expect(StatusCode::kInvalidProgram, "attribute axis has another type than expected");
  axis.set_type(::onnx::AttributeProto::INT);
  axis.set_i(2);
  expect(StatusCode::kInvalidProgram, "axis 2, but the operand has 2 dims");
}

TEST_F(ImportRefusals, GraphsThatAreNotSorted) {
  model_.node("Add", {"x", "b"}, {"y"});
  expect(StatusCode::kInvalidProgram, "the input 'b' is computed by no earlier node");
  model_.node("Relu", {"y"}, {"b"});  // a cycle
  expect(StatusCode::kInvalidProgram, "the input 'b' is computed by no earlier node");
  model_.graph().clear_node();
  expect(StatusCode::kInvalidProgram, "the output 'y' is computed by no node");
  model_.node("Relu", {"x"}, {"y"});
  model_.node("Exp", {"x"}, {"y"});
  expect(StatusCode::kInvalidProgram, "the value 'y' is computed twice");
  model_.graph().mutable_node(1)->set_output(0, "x");
  expect(StatusCode::kInvalidProgram, "the value 'x' is computed twice");
  model_.graph().mutable_node(1)->set_output(0, "fetch");
  expect(StatusCode::kUnimplemented, "a value with the name 'fetch'");
}

TEST_F(ImportRefusals, OutputsThatNoConverterComputes) {
  ::onnx::NodeProto& node = model_.node("MaxPool", {"x"}, {"top", "y"});
  ::onnx::AttributeProto& kernel = *node.add_attribute();
  kernel.set_name("kernel_shape");
  kernel.set_type(::onnx::AttributeProto::INTS);
  kernel.add_ints(1);
  kernel.add_ints(1);
  *model_.graph().mutable_input(0) = *OnnxModel().input("x", {1, 1, 2, 2}).graph().mutable_input(0);
  expect(StatusCode::kUnimplemented, "the output 'y' is not computed by the import");
  node.set_output(1, "at");
  model_.node("Relu", {"at"}, {"y"});
  expect(StatusCode::kUnimplemented, "the output 'at' of another node is read");
}

TEST_F(ImportRefusals, ValuesThatDoNotFitTogether) {
  model_.input("z", {4}).node("Add", {"x", "z"}, {"y"});
  expect(StatusCode::kInvalidProgram, "note: import of ONNX: node 'y' (Add)");
  model_.graph().mutable_input(1)->mutable_type()->mutable_tensor_type()->set_elem_type(
      ::onnx::TensorProto::INT64);
  expect(StatusCode::kUnimplemented, "node 'y' (Add): operands of different element types");
  model_.graph().mutable_node(0)->set_op_type("Relu");
  model_.graph().mutable_node(0)->mutable_input()->RemoveLast();
  model_.graph().mutable_output(0)->mutable_type()->mutable_tensor_type()->set_elem_type(
      ::onnx::TensorProto::INT64);
  expect(StatusCode::kInvalidProgram, "the output 'y' is declared as i64");
}

TEST_F(ImportRefusals, InputsAndOutputsOfOtherKinds) {
  model_.node("Relu", {"x"}, {"y"});
  auto& type = *model_.graph().mutable_input(0)->mutable_type();
  type.mutable_tensor_type()->set_elem_type(::onnx::TensorProto::STRING);
  expect(StatusCode::kUnimplemented, "element type STRING");
  type.mutable_tensor_type()->set_elem_type(22);
  expect(StatusCode::kUnimplemented, "element type 22");
  type.mutable_tensor_type()->set_elem_type(::onnx::TensorProto::FLOAT);
  type.mutable_tensor_type()->clear_shape();
  expect(StatusCode::kUnimplemented, "the input 'x' has no number of dims");
  type.mutable_sequence_type();
  expect(StatusCode::kUnimplemented, "the input 'x' is no tensor");
}

TEST_F(ImportRefusals, SizesBeyondTheLimits) {
  ::onnx::NodeProto& node = model_.node("Relu", {"x"}, {"y"});
  auto& dim = *model_.graph().mutable_input(0)->mutable_type()->mutable_tensor_type();
  dim.mutable_shape()->mutable_dim(0)->set_dim_value(int64_t{1} << 62);
  expect(StatusCode::kInvalidData, "the input 'x' has too many elements");
  dim.mutable_shape()->mutable_dim(0)->set_dim_value(2);
  node.set_op_type("Tile");
  node.add_input("times");
  model_.longs("times", {int64_t{1} << 31, int64_t{1} << 31});
  expect(StatusCode::kUnimplemented, "node 'y' (Tile)");
  node.set_op_type("Pad");
  model_.graph().mutable_initializer(0)->clear_int64_data();
  model_.graph().mutable_initializer(0)->set_dims(0, 4);
  for (int i = 0; i < 4; ++i)
    model_.graph().mutable_initializer(0)->add_int64_data(int64_t{1} << 62);
  expect(StatusCode::kUnimplemented, "node 'y' (Pad): a border of this size");
}

TEST_F(ImportRefusals, ConstantsThatDoNotFitTheirDims) {
  model_.node("Add", {"x", "w"}, {"y"});
  ::onnx::TensorProto& w = model_.floats("w", {3}, {1, 2});
  expect(StatusCode::kInvalidData, "a constant has 2 values, expected 3");
  w.set_raw_data("12345");
  expect(StatusCode::kInvalidData, "a constant has 5 bytes, expected 12");
  w.set_dims(0, int64_t{1} << 62);
  expect(StatusCode::kInvalidData, "too many elements");
  w.set_dims(0, int64_t{1} << 40);
  expect(StatusCode::kInvalidData, "a constant has 5 bytes, expected 4398046511104");
  w.set_dims(0, -3);
  expect(StatusCode::kInvalidData, "a constant has the dim -3");
  expect(StatusCode::kInvalidData, "note: constant 'w'");
  w.set_data_type(::onnx::TensorProto::BFLOAT16);
  expect(StatusCode::kUnimplemented, "element type BFLOAT16");
}

TEST_F(ImportRefusals, FilesOutsideOfTheFolder) {
  const millrace::testing::TempFolder folder;
  std::filesystem::create_directory(folder / "model");
  std::ofstream(folder / "secret.bin") << "1234567890ab";
  std::filesystem::create_symlink(folder / "secret.bin", folder / "model/link.bin");
  model_.node("Add", {"x", "w"}, {"y"});
  ::onnx::TensorProto& w = model_.constant("w", {3}, ::onnx::TensorProto::FLOAT);
  w.set_data_location(::onnx::TensorProto::EXTERNAL);
  auto& location = *w.add_external_data();
  location.set_key("location");
  const OnnxImportOptions options{.folder = folder / "model"};
  for (const std::string& path :
       {std::string("../secret.bin"), std::string("link.bin"), folder / "secret.bin",
        std::string(""), std::string("a/../../secret.bin")}) {
    location.set_value(path);
    expect(StatusCode::kInvalidData, "'" + path + "' is not in the folder of the model", options);
  }
  location.set_value("absent.bin");
  expect(StatusCode::kNotFound, "the file 'absent.bin'", options);
  expect(StatusCode::kUnimplemented, "data in the file 'absent.bin' beside the model");
  w.mutable_external_data(0)->set_key("encryption");
  expect(StatusCode::kUnimplemented, "the entry 'encryption'", options);
}

TEST_F(ImportRefusals, WhatOpsCannotDo) {
  ::onnx::NodeProto& node = model_.node("Reshape", {"x", "s"}, {"y"});
  model_.input("s", {2}, ::onnx::TensorProto::INT64);
  set_int(node, "allowzero", 1);
  expect(StatusCode::kUnimplemented, "node 'y' (Reshape): allowzero");
  node.clear_attribute();
  node.set_op_type("ReduceMax");
  model_.proto().mutable_opset_import(0)->set_version(18);
  expect(StatusCode::kUnimplemented, "(ReduceMax): axes that are computed by the model");
  node.set_op_type("Squeeze");
  model_.graph().mutable_input()->RemoveLast();
  model_.longs("s", {0});
  expect(StatusCode::kUnimplemented, "(Squeeze): an axis whose extent is not 1");
}

// Sizes that are those of the operand: the result is still a region of it.
TEST_F(ImportRefusals, RegionsThatAreResized) {
  model_.floats("region", {4}, {0, 0, 0.5F, 0.5F});
  model_.longs("sizes", {2, 3});
  ::onnx::NodeProto& node = model_.node("Resize", {"x", "region", "", "sizes"}, {"y"});
  ::onnx::AttributeProto& mode = *node.add_attribute();
  mode.set_name("coordinate_transformation_mode");
  mode.set_type(::onnx::AttributeProto::STRING);
  mode.set_s("tf_crop_and_resize");
  expect(StatusCode::kUnimplemented, "(Resize): coordinate_transformation_mode tf_crop_and_resize");
}

}  // namespace
}  // namespace millrace::interchange

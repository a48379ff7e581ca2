// PIR programs become programs, or are refused with the op in the message.

#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "framework/op_attrs.h"
#include "interchange/from_pir/import.h"
#include "interchange/pir/graph.h"

namespace millrace::interchange {
namespace {

using pir::GraphBuilder;
using pir::of_bool;
using pir::of_dims;
using pir::of_dtype;
using pir::of_f32;
using pir::of_f64;
using pir::of_i32;
using pir::of_i32s;
using pir::of_i64s;
using pir::of_place;
using pir::of_string;
using pir::result_of;
using pir::results_of;
using pir::TensorType;
using pir::Value;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A program with the input x [-1, 4] and the parameter w [4].
class PirImport : public ::testing::Test {
 protected:
  PirImport() {
    w_ = graph_.parameter("w", {.dims = {4}});
    x_ = graph_.add("1.data", {},
                    {of_string("name", "x"), of_dims("shape", {-1, 4}),
                     of_dtype("dtype", DType::kFloat32), of_place(false)},
                    {result_of({.dims = {-1, 4}})})[0];
  }

  Value node(const std::string& name, const std::vector<Value>& inputs,
             const std::vector<pir::Attr>& attrs, const Dims& dims) {
    return graph_.add("1." + name, inputs, attrs, {result_of({.dims = dims})})[0];
  }
  Value full(double value, DType dtype) {
    return graph_.add(
        "1.full", {},
        {of_dims("shape", {1}), of_f64("value", value), of_dtype("dtype", dtype), of_place(true)},
        {result_of({.dtype = dtype, .dims = {1}})})[0];
  }
  Value list_of(const std::vector<int64_t>& values) {
    return graph_.add(
        "1.full_int_array", {},
        {of_i64s("value", values), of_dtype("dtype", DType::kInt64), of_place(true)},
        {result_of({.dtype = DType::kInt64, .dims = {static_cast<int64_t>(values.size())}})})[0];
  }
  void fetch(const Value& value, const std::string& name = "y", int64_t column = 0) {
    graph_.add("1.fetch", {value}, {of_string("name", name), of_i32("col", column)},
               {result_of(value.type())});
  }

  static StatusOr<ImportedModel> import_text(const std::string& text,
                                             const PirImportOptions& options = {}) {
    MILLRACE_ASSIGN_OR_RETURN(const PirSource source, PirSource::read(text));
    io::ParamValues params;
    for (const io::ParamSpec& spec : source.parameters()) {
      auto& tensor = params[spec.name].as<Tensor>();
      MILLRACE_RETURN_IF_ERROR(tensor.resize(*spec.dtype, *spec.dims));
    }
    return import_pir(source, std::move(params), options);
  }
  // The ops between feeds and fetches, as text.
  std::vector<std::string> ops(const PirImportOptions& options = {}) {
    const StatusOr<ImportedModel> made = import_text(graph_.finish(), options);
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    std::vector<std::string> types;
    if (!made.ok()) return types;
    for (const Op& op : made->program->root().ops())
      if (op.type() != "feed" && op.type() != "fetch") types.push_back(op.type().str());
    return types;
  }
  Status error() { return import_text(graph_.finish()).status(); }
  void expect_error(StatusCode code, const std::string& text) {
    const Status status = error();
    EXPECT_EQ(status.code(), code) << status.to_string();
    EXPECT_THAT(status.to_string(), HasSubstr(text));
  }

  GraphBuilder graph_;
  Value w_;
  Value x_;
};

TEST_F(PirImport, InputsParametersAndOutputsKeepTheirNames) {
  const Value sum = node("add", {x_, w_}, {}, {-1, 4});
  fetch(node("relu", {sum}, {}, {-1, 4}), "second", 1);
  fetch(sum, "first", 0);
  const StatusOr<ImportedModel> made = import_text(graph_.finish());
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  const Block& block = made->program->root();
  EXPECT_THAT(made->params, ::testing::ElementsAre(::testing::Key("w")));
  EXPECT_TRUE(block.find_var("w")->persistable());
  EXPECT_THAT(block.find_var("x")->dims(), ElementsAre(-1, 4));
  std::vector<std::string> fetched;
  for (const Op& op : block.ops())
    if (op.type() == "fetch") fetched.push_back(op.first_input("X").str());
  EXPECT_THAT(fetched, ElementsAre("first", "second"));
}

TEST_F(PirImport, ConstantsBecomeAttributes) {
  const Value shaped = node("reshape", {x_, list_of({-1, 2, 2})}, {}, {-1, 2, 2});
  const Value summed = graph_.add("1.sum", {shaped, list_of({1})},
                                  {of_dtype("dtype", DType::kFloat32), of_bool("keepdim", false)},
                                  {result_of({.dims = {-1, 2}})})[0];
  fetch(node("scale", {summed, full(2, DType::kFloat32)},
             {of_f32("bias", 1), of_bool("bias_after_scale", true)}, {-1, 2}));
  const StatusOr<ImportedModel> made = import_text(graph_.finish());
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  std::map<std::string, const Op*> by_type;
  for (const Op& op : made->program->root().ops()) by_type[op.type().str()] = &op;
  EXPECT_THAT(get_attr_or<std::vector<int64_t>>(*by_type.at("reshape2"), "shape", {}),
              ElementsAre(-1, 2, 2));
  EXPECT_THAT(get_attr_or<std::vector<int64_t>>(*by_type.at("reduce_sum"), "dim", {}),
              ElementsAre(1));
  EXPECT_FALSE(get_attr_or<bool>(*by_type.at("reduce_sum"), "keep_dim", true));
  EXPECT_EQ(get_attr_or<float>(*by_type.at("scale"), "scale", 0), 2);
  EXPECT_EQ(get_attr_or<float>(*by_type.at("scale"), "bias", 0), 1);
}

TEST_F(PirImport, ConstantsThatAreOperandsBecomeOps) {
  fetch(node("add", {x_, full(3, DType::kFloat32)}, {}, {-1, 4}));
  EXPECT_THAT(ops(), ElementsAre("fill_constant", "elementwise_add", "assign"));
}

TEST_F(PirImport, ListsAreJoinedAndTakenApart) {
  const TensorType half{.dims = {-1, 2}};
  const Value halves = graph_.add("1.split", {x_, list_of({2, 2}), full(1, DType::kInt32)}, {},
                                  {results_of({half, half})})[0];
  const std::vector<Value> parts =
      graph_.add("0.split", {halves}, {}, {result_of(half), result_of(half)});
  const Value list =
      graph_.add("0.combine", {parts[1], parts[0]}, {}, {results_of({half, half})})[0];
  fetch(node("concat", {list, full(1, DType::kInt32)}, {}, {-1, 4}));
  EXPECT_THAT(ops(), ElementsAre("split", "concat", "assign"));
}

// A product with a matrix keeps the LoD of its first operand, as in release 3.
TEST_F(PirImport, ProductsWithAMatrixAreMul) {
  const Value m = node("reshape", {w_, list_of({4, 1})}, {}, {4, 1});
  const std::vector<pir::Attr> plain = {of_bool("transpose_x", false),
                                        of_bool("transpose_y", false)};
  fetch(node("matmul", {x_, m}, plain, {-1, 1}), "y", 0);
  fetch(node("matmul", {m, x_}, {of_bool("transpose_x", true), of_bool("transpose_y", true)},
             {1, -1}),
        "z", 1);
  EXPECT_THAT(ops(), ElementsAre("reshape2", "mul", "matmul_v2", "assign", "assign"));
}

TEST_F(PirImport, DimsOfInputsCanBeReplaced) {
  fetch(node("relu", {x_}, {}, {-1, 4}));
  const std::string text = graph_.finish();
  PirImportOptions options{.input_dims = {{"x", {2, 4}}}};
  StatusOr<ImportedModel> made = import_text(text, options);
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  EXPECT_THAT(made->program->root().find_var("y")->dims(), ElementsAre(2, 4));
  options.input_dims = {{"x", {4}}};
  EXPECT_THAT(import_text(text, options).status().to_string(),
              HasSubstr("dims of the input 'x': expected 2 of them, found 1"));
  options.input_dims = {{"z", {4}}};
  EXPECT_THAT(import_text(text, options).status().to_string(),
              HasSubstr("dims of 'z', which is no input of the program"));
}

TEST_F(PirImport, WhatTheProgramStatesIsCompared) {
  fetch(node("relu", {x_}, {}, {-1, 5}));
  expect_error(StatusCode::kUnimplemented, "as f32 [-1, 5], but our op computes f32 [-1, 4]");
}

TEST_F(PirImport, RefusesOpsThatItDoesNotKnow) {
  fetch(node("no_such_op", {x_}, {}, {-1, 4}));
  expect_error(StatusCode::kUnimplemented, "op 1 (pd_op.no_such_op): the op has no counterpart");
}

TEST_F(PirImport, RefusesOtherAttributes) {
  fetch(node("relu", {x_}, {of_f32("slope", 0.1)}, {-1, 4}));
  expect_error(StatusCode::kUnimplemented,
               "op 1 (pd_op.relu): attribute slope is not known to the import");
}

TEST_F(PirImport, RefusesMissingAttributes) {
  fetch(node("softmax", {x_}, {}, {-1, 4}));
  expect_error(StatusCode::kInvalidProgram, "op 1 (pd_op.softmax): the attribute axis is missing");
}

TEST_F(PirImport, RefusesAttributesOfAnotherKind) {
  fetch(node("softmax", {x_}, {of_string("axis", "1")}, {-1, 4}));
  expect_error(StatusCode::kInvalidProgram, "the attribute axis is of another kind than expected");
}

TEST_F(PirImport, RefusesConstantsThatOurOpDoesNotHave) {
  fetch(node("round", {x_}, {of_i32("decimals", 2)}, {-1, 4}));
  expect_error(StatusCode::kUnimplemented, "op 1 (pd_op.round): decimals other than 0");
}

TEST_F(PirImport, RefusesComputedAttributes) {
  const Value axis = graph_.add("1.cast", {w_}, {of_dtype("dtype", DType::kInt32)},
                                {result_of({.dtype = DType::kInt32, .dims = {4}})})[0];
  fetch(node("cumsum", {x_, axis},
             {of_bool("flatten", false), of_bool("exclusive", false), of_bool("reverse", false)},
             {-1, 4}));
  expect_error(StatusCode::kUnimplemented, "op 2 (pd_op.cumsum): axis that the program computes");
}

// {"#":"0.a_f64","VD":"-INF"} instead of {"#":"0.a_f64","D":..}
TEST_F(PirImport, NumbersThatAreNotFinite) {
  fetch(node("add", {x_, full(4711, DType::kFloat32)}, {}, {-1, 4}));
  const std::string text = graph_.finish();
  const size_t at = text.find("\"D\":4711");
  ASSERT_NE(at, std::string::npos);
  const size_t end = text.find('}', at);
  const auto with = [&](const std::string& member) {
    return import_text(text.substr(0, at) + member + text.substr(end));
  };
  for (const auto& [name, expected] : {std::pair("INF", "inf"), {"-INF", "-inf"}, {"NaN", "nan"}}) {
    const StatusOr<ImportedModel> made = with(fmt::format("\"VD\":\"{}\"", name));
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    const Op& constant = *std::next(made->program->root().ops().begin());
    EXPECT_EQ(constant.type(), "fill_constant");
    EXPECT_EQ(get_attr_or<std::string>(constant, "str_value", ""), expected);
  }
  EXPECT_EQ(with("\"VD\":\"INFINITE\"").status().code(), StatusCode::kInvalidData);
  std::string integer = text.substr(0, at) + "\"VD\":\"INF\"" + text.substr(end);
  const size_t type = integer.find("float32", at);
  integer.replace(type, 7, "int64");
  EXPECT_THAT(import_text(integer).status().to_string(),
              HasSubstr("an integer that is not finite"));
}

// Values that an op writes to the memory of a constant are those that later ops read.
TEST_F(PirImport, ValuesReplaceAConstant) {
  const Value zero = full(0, DType::kFloat32);
  const std::vector<pir::Attr> attrs = {of_i32s("shape", {1}), of_dtype("dtype", DType::kFloat32),
                                        pir::of_f64s("values", {2.5}), of_place(false)};
  (void)node("assign_value_", {zero}, attrs, {1});
  fetch(node("add", {x_, zero}, {}, {-1, 4}));
  EXPECT_THAT(ops(), ElementsAre("assign_value", "elementwise_add", "assign"));
}

TEST_F(PirImport, RefusesValuesForComputedTensors) {
  const std::vector<pir::Attr> attrs = {of_i32s("shape", {4}), of_dtype("dtype", DType::kFloat32),
                                        pir::of_f64s("values", {1, 2, 3, 4}), of_place(false)};
  fetch(node("assign_value_", {w_}, attrs, {4}));
  expect_error(StatusCode::kUnimplemented, "values for a tensor that the program computes");
}

TEST_F(PirImport, RefusesValuesWithoutResult) {
  const std::vector<pir::Attr> attrs = {of_i32s("shape", {1}), of_dtype("dtype", DType::kFloat32),
                                        pir::of_f64s("values", {2.5}), of_place(false)};
  const Value zero = full(0, DType::kFloat32);
  (void)graph_.add("1.assign_value_", {zero}, attrs, {Value()});
  fetch(node("add", {x_, zero}, {}, {-1, 4}));
  expect_error(StatusCode::kUnimplemented, "values without a result");
}

TEST_F(PirImport, BitsAreOnlyInvertedOfBools) {
  const TensorType bools{.dtype = DType::kBool, .dims = {-1, 4}};
  const Value is_any = graph_.add("1.greater_than", {x_, w_}, {}, {result_of(bools)})[0];
  fetch(graph_.add("1.bitwise_not", {is_any}, {}, {result_of(bools)})[0]);
  EXPECT_THAT(ops(), ElementsAre("greater_than", "logical_not", "assign"));
  const TensorType ints{.dtype = DType::kInt32, .dims = {-1, 4}};
  const Value whole =
      graph_.add("1.cast", {x_}, {of_dtype("dtype", DType::kInt32)}, {result_of(ints)})[0];
  fetch(graph_.add("1.bitwise_not", {whole}, {}, {result_of(ints)})[0], "z", 1);
  expect_error(StatusCode::kUnimplemented, "(pd_op.bitwise_not): bitwise_not of integers");
}

TEST_F(PirImport, ShapesAreIntegersOf64Bits) {
  fetch(graph_.add("1.shape64", {x_}, {}, {result_of({.dtype = DType::kInt64, .dims = {2}})})[0]);
  EXPECT_THAT(ops(), ElementsAre("shape", "cast", "assign"));
}

TEST_F(PirImport, RangesHaveTheTypeOfTheOp) {
  fetch(graph_.add(
      "1.arange", {full(0, DType::kFloat64), full(4, DType::kFloat64), full(1, DType::kFloat64)},
      {of_dtype("dtype", DType::kFloat32), of_place(false)}, {result_of({.dims = {4}})})[0]);
  const StatusOr<ImportedModel> made = import_text(graph_.finish());
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  EXPECT_EQ(made->program->root().find_var("y")->dtype(), DType::kFloat32);
}

// Release 3 multiplies -1 by other extents.
TEST_F(PirImport, ProductsWithUnknownExtentsAreUnknown) {
  const auto results = {result_of({.dims = {-1, 4, 1}}), result_of({.dims = {-4}}),
                        result_of({.dims = {-4}})};
  const Value image = node("reshape", {x_, list_of({-1, 4, 1})}, {}, {-1, 4, 1});
  fetch(graph_.add("1.instance_norm", {image, Value(), Value()}, {of_f32("epsilon", 1e-5)},
                   results)[0]);
  EXPECT_THAT(ops(), ElementsAre("reshape2", "instance_norm", "assign"));
}

// Release 3 does not store the state of dropout of recurrent layers.
TEST_F(PirImport, ParametersThatAreNotStored) {
  fetch(node("add", {x_, w_}, {}, {-1, 4}));
  const auto with_state = [](std::string text) {
    const size_t at = text.find("\"OA\":[1,1,0]");
    EXPECT_NE(at, std::string::npos);
    return text.replace(at, 12, "\"OA\":[0,1,0]");
  };
  const auto source = PirSource::read(with_state(graph_.finish()));
  ASSERT_TRUE(source.ok()) << source.status().to_string();
  EXPECT_TRUE(source->parameters().empty());
  const Status status = import_pir(*source, {}).status();
  EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
  EXPECT_THAT(status.to_string(),
              HasSubstr("op 1 (pd_op.add): value 1 is a list, or the import does not compute it"));
}

TEST_F(PirImport, RefusesBlocks) {
  const Value is_any = graph_.add(
      "1.full", {},
      {of_dims("shape", {1}), of_f64("value", 1), of_dtype("dtype", DType::kBool), of_place(true)},
      {result_of({.dtype = DType::kBool, .dims = {1}})})[0];
  graph_.begin_region({});
  graph_.add("2.yield", {x_}, {}, {});
  const std::string region = graph_.end_region();
  fetch(graph_.add("1.if", {is_any}, {}, {result_of({.dims = {-1, 4}})}, {region, region})[0]);
  expect_error(StatusCode::kUnimplemented, "op 2 (pd_op.if): blocks of branches and loops");
}

TEST_F(PirImport, ResultsMustBeComplete) {
  fetch(graph_.add("1.topk", {x_, full(1, DType::kInt32)},
                   {of_i32("axis", -1), of_bool("largest", true), of_bool("sorted", true)},
                   {result_of({.dims = {-1, 1}})})[0]);
  expect_error(StatusCode::kInvalidProgram, "op 2 (pd_op.topk): 1 results, expected more than 1");
}

TEST_F(PirImport, OutputsMustBeComplete) {
  expect_error(StatusCode::kInvalidProgram, "the program has no outputs: it has no op fetch");
  fetch(node("relu", {x_}, {}, {-1, 4}), "y", 1);
  expect_error(StatusCode::kInvalidProgram,
               "the outputs have the columns 1 and more, but none has 0");
}

TEST_F(PirImport, ParametersNeedValues) {
  fetch(node("add", {x_, w_}, {}, {-1, 4}));
  const auto source = PirSource::read(graph_.finish());
  ASSERT_TRUE(source.ok());
  EXPECT_EQ(source->parameters().at(0).name, "w");
  EXPECT_THAT(import_pir(*source, {}).status().to_string(),
              HasSubstr("the parameter 'w' has no value"));
}

TEST_F(PirImport, RefusesFilesThatAreNoPrograms) {
  fetch(node("relu", {x_}, {}, {-1, 4}));
  const std::string text = graph_.finish();
  ASSERT_TRUE(import_text(text).ok());
  const auto read = [](const std::string& bytes) { return PirSource::read(bytes).status(); };
  for (size_t length = 0; length < text.size(); ++length)
    EXPECT_EQ(read(text.substr(0, length)).code(), StatusCode::kInvalidData) << length;
  EXPECT_THAT(read("{}").to_string(), HasSubstr("magic word"));
  EXPECT_THAT(read(std::string(100'000, '[')).to_string(), HasSubstr("no JSON"));
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string other = text;
    const size_t at = other.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return read(other.replace(at, from.size(), to));
  };
  EXPECT_THAT(changed("\"version\":4", "\"version\":1").to_string(),
              HasSubstr("version 1 of PIR programs, expected 4"));
  EXPECT_THAT(changed("\"%\":2", "\"%\":1").to_string(), HasSubstr("value 1 is computed twice"));
  EXPECT_THAT(changed("\"I\":[{\"%\":2}]", "\"I\":[{\"%\":7}]").to_string(),
              ::testing::AllOf(HasSubstr("value 7 is read, but no earlier op computes it"),
                               HasSubstr("op 2 (pd_op.relu)")));
  EXPECT_THAT(changed("1.relu", "r").to_string(), HasSubstr("malformed name of an op"));
  EXPECT_THAT(changed("0.t_f32", "0.t_f80").to_string(), HasSubstr("the element type 0.t_f80"));
  EXPECT_THAT(changed("0.t_dtensor", "0.t_strings").to_string(), HasSubstr("the type 0.t_strings"));
  EXPECT_THAT(changed("[-1,4]", "[-1,true]").to_string(), HasSubstr("malformed"));
  EXPECT_THAT(changed("0.a_str", "0.a_pointer").to_string(),
              HasSubstr("attributes of the kind 0.a_pointer"));
}

}  // namespace
}  // namespace millrace::interchange

// PIR programs that the export writes, and what it refuses.

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "framework/tensor/tensor.h"
#include "interchange/pir/export.h"
#include "tests/support/program_builder.h"

namespace millrace::interchange {
namespace {

using millrace::testing::ProgramBuilder;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// Fetches `y` of one op that reads the fed var `x`.
class ExportPir : public ::testing::Test {
 protected:
  Op& op(const std::string& type, std::initializer_list<int64_t> x_dims,
         std::initializer_list<int64_t> y_dims, DType dtype = DType::kFloat32) {
    program_ = ProgramBuilder();
    program_.var("x", x_dims, dtype).var("y", y_dims, dtype);
    program_.feed("x", 0);
    Op& added = program_.op(type, {{"X", {"x"}}}, {{"Out", {"y"}}});
    program_.fetch("y", 0);
    return added;
  }
  PirModel model(const PirOptions& options = {}) {
    auto made = export_pir(program_.program(), params_, options);
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    return made.ok() ? *made : PirModel{};
  }
  std::string error(const PirOptions& options = {}) {
    const auto made = export_pir(program_.program(), params_, options);
    EXPECT_FALSE(made.ok());
    if (made.ok()) return "";
    return made.status().to_string();
  }
  // One parameter `w` of dims [2, 1], which `mul` reads.
  void add_product() {
    program_ = ProgramBuilder();
    program_.var("x", {-1, 2}).param("w", {2, 1}).var("y", {-1, 1});
    program_.feed("x", 0);
    program_.op("mul", {{"X", {"x"}}, {"Y", {"w"}}}, {{"Out", {"y"}}});
    program_.fetch("y", 0);
  }
  void set_weights() {
    Tensor& w = params_["w"].as<Tensor>();
    ASSERT_TRUE(w.resize(DType::kFloat32, {2, 1}).ok());
    w.values<float>()[0] = 1.5F;
    w.values<float>()[1] = -2.0F;
  }

  ProgramBuilder program_;
  io::ParamValues params_;
};

TEST_F(ExportPir, AProgramAsText) {
  op("leaky_relu", {-1, 3}, {-1, 3}).set_float("alpha", 0.25F);
  const std::string tensor = R"({"#":"0.t_dtensor","D":[{"#":"0.t_f32"},[-1,3],"NCHW",[],0]})";
  const std::string flags =
      R"("OA":[{"AT":{"#":"0.a_array","D":[{"#":"0.a_bool","D":true}]},"N":"stop_gradient"}])";
  const std::string data =
      R"({"#":"1.data","A":[{"AT":{"#":"0.a_str","D":"x"},"N":"name"},)"
      R"({"AT":{"#":"1.a_intarray","D":[-1,3]},"N":"shape"},)"
      R"({"AT":{"#":"1.a_dtype","D":"float32"},"N":"dtype"},)"
      R"({"AT":{"#":"1.a_place","D":[0,0,""]},"N":"place"}],"I":[],"O":[{"%":1,"TT":)" +
      tensor + "}]," + flags + "}";
  const std::string function =
      R"({"#":"1.leaky_relu","A":[{"AT":{"#":"0.a_f64","D":0.25},"N":"negative_slope"}],)"
      R"("I":[{"%":1}],"O":[{"%":2,"TT":)" +
      tensor + "}]," + flags + "}";
  const std::string fetch =
      R"({"#":"1.fetch","A":[{"AT":{"#":"0.a_str","D":"y"},"N":"name"},)"
      R"({"AT":{"#":"0.a_i32","D":0},"N":"col"}],"I":[{"%":2}],"O":[{"%":3,"TT":)" +
      tensor + "}]," + flags + "}";
  EXPECT_EQ(model().program,
            R"({"base_code":{"magic":"pir","trainable":true,"version":4},"program":{"regions":)"
            R"([{"#":"region_0","blocks":[{"#":"block_0","args":[],"ops":[)" +
                data + "," + function + "," + fetch + "]}]}]}}");
}

TEST_F(ExportPir, ParametersComeFirstAndAreListed) {
  add_product();
  EXPECT_THAT(error(), HasSubstr("the parameter 'w' has no value"));
  set_weights();
  const PirModel made = model();
  EXPECT_THAT(made.parameters, ElementsAre("w"));
  EXPECT_THAT(made.program, HasSubstr(R"("ops":[{"#":"p","A":[0,1,1,"w"],"DA":[],"O":{"%":1,)"));
  EXPECT_THAT(made.program, HasSubstr(R"({"#":"1.matmul",)"));
}

TEST_F(ExportPir, InputDimsReplaceTheDeclaredOnes) {
  op("relu", {-1, 3}, {-1, 3});
  const std::string text = model({.input_dims = {{"x", {2, 5}}}}).program;
  EXPECT_THAT(text, AllOf(HasSubstr("[2,5]"), Not(HasSubstr("[-1,3]"))));
  EXPECT_THAT(error({.input_dims = {{"x", {2}}}}),
              HasSubstr("dims of the input 'x': expected 2 of them, found 1"));
  EXPECT_THAT(error({.input_dims = {{"z", {2}}}}), HasSubstr("dims of 'z', which is no input"));
}

TEST_F(ExportPir, OldFormsOfOpsAreUpgraded) {
  op("reduce_mean", {4, 3}, {4}).set_int("dim", 1);
  EXPECT_THAT(
      model().program,
      HasSubstr(R"("A":[{"AT":{"#":"0.a_array","D":[{"#":"0.a_i64","D":1}]},"N":"value"})"));
}

TEST_F(ExportPir, ConstantsThatAreNotFiniteAreComputed) {
  op("clip", {4}, {4})
      .set_float("min", -std::numeric_limits<float>::infinity())
      .set_float("max", 1.0F);
  EXPECT_THAT(model().program, AllOf(HasSubstr(R"({"#":"1.divide",)"), HasSubstr(R"("D":-1.0)")));
  op("elu", {4}, {4}).set_float("alpha", std::numeric_limits<float>::infinity());
  EXPECT_THAT(error(), HasSubstr("block 0, op 1 (elu): export to PIR: the attribute alpha is "
                                 "not finite"));
}

TEST_F(ExportPir, AFunctionInAConvolutionIsAnOpOfItsOwn) {
  program_ = ProgramBuilder();
  program_.var("x", {1, 2, 4, 4}).var("w", {3, 2, 1, 1}).var("b", {3}).var("y", {1, 3, 4, 4});
  program_.feed("x", 0);
  program_.feed("w", 1);
  program_.feed("b", 2);
  program_.op("conv2d", {{"Input", {"x"}}, {"Filter", {"w"}}, {"Bias", {"b"}}}, {{"Output", {"y"}}})
      .set_string("fuse_activation", "relu6")
      .set_float("fuse_beta", 6.0F)
      .set_bool("use_mkldnn", true);
  program_.fetch("y", 0);
  const std::string text = model().program;
  EXPECT_LT(text.find("1.conv2d"), text.find("1.add"));
  EXPECT_LT(text.find("1.add"), text.find(R"({"#":"1.hardtanh",)"));
}

TEST_F(ExportPir, AValueThatReplacesAnEmptyListIsInABranch) {
  program_ = ProgramBuilder();
  program_.var("b", {1, 4, 4}).var("s", {1, 2, 4}).var("y", {-1, 6});
  program_.feed("b", 0);
  program_.feed("s", 1);
  program_.op("multiclass_nms", {{"BBoxes", {"b"}}, {"Scores", {"s"}}}, {{"Out", {"y"}}})
      .set_int("background_label", 0)
      .set_float("score_threshold", 0.1F)
      .set_int("nms_top_k", 4)
      .set_int("keep_top_k", 4);
  program_.fetch("y", 0);
  EXPECT_THAT(model().program,
              AllOf(HasSubstr(R"({"#":"1.if",)"), HasSubstr(R"("regions":[{"#":"region_1")"),
                    HasSubstr(R"({"#":"2.yield",)")));
}

TEST_F(ExportPir, OpsWithoutCounterpartAreRefusedWithTheirPlace) {
  op("sampling_id", {4, 3}, {4});
  EXPECT_THAT(error(), AllOf(HasSubstr("block 0, op 1 (sampling_id)"),
                             HasSubstr("export to PIR: the op has no counterpart")));
}

TEST_F(ExportPir, UnknownAttributesAreRefused) {
  op("relu", {4, 3}, {4, 3}).set_float("leak", 0.5F);
  EXPECT_THAT(error(), AllOf(HasSubstr("block 0, op 1 (relu), attr leak"),
                             HasSubstr("export to PIR: the attribute has a value")));
}

TEST_F(ExportPir, UnknownElementTypesAreRefused) {
  op("relu", {2}, {2}, DType::kSizeT);
  EXPECT_THAT(error(), HasSubstr("element type size_t of the fed var 'x'"));
}

TEST_F(ExportPir, WithoutFetchOpsWhatNoOpReadsIsReturned) {
  op("relu", {4, 3}, {4, 3});
  const std::string fetched = model().program;
  program_.block().erase(program_.block().back());
  EXPECT_EQ(model().program, fetched);
}

// What single converters refuse.
TEST_F(ExportPir, WhatPirCannotExpressIsRefused) {
  op("unique", {4}, {4}, DType::kInt64).set_int("dtype", 3);
  EXPECT_THAT(error(), HasSubstr("unique values in the order of their occurrence"));
  op("one_hot_v2", {4}, {4, 3}, DType::kInt64).set_int("depth", 3).set_int("dtype", 3);
  EXPECT_THAT(error(), HasSubstr("one_hot with another element type than f32"));
  op("one_hot_v2", {4}, {4, 3}, DType::kInt64)
      .set_int("depth", 3)
      .set_int("dtype", 5)
      .set_bool("allow_out_of_range", true);
  EXPECT_THAT(error(), HasSubstr("one_hot with ids that are out of range"));
  op("bilinear_interp", {1, 2, -1, -1}, {1, 2, -1, -1}).set_float("scale", 1.5F);
  EXPECT_THAT(error(), HasSubstr("a factor that is no integer, of unknown extents"));
}

TEST(PirOpTypes, AreSorted) {
  const std::vector<std::string> types = pir_op_types();
  EXPECT_TRUE(std::is_sorted(types.begin(), types.end()));
  EXPECT_THAT(types, AllOf(Contains("conv2d"), Contains("mul")));
}

}  // namespace
}  // namespace millrace::interchange

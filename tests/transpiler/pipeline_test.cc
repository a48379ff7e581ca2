#include "transpiler/pipeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace millrace::transpiler {
namespace {

using ::testing::HasSubstr;

Pipeline parsed(llvm::StringRef text) {
  StatusOr<Pipeline> pipeline = parse_pipeline(text);
  EXPECT_TRUE(pipeline.ok()) << pipeline.status().to_string();
  return pipeline.ok() ? *pipeline : Pipeline{};
}

TEST(Pipeline, ReadsPassesAndOptions) {
  const Pipeline pipeline = parsed("a, b{x=1, y=[p,q] ,z=\"quoted, text\"} ,c-d{}");
  ASSERT_EQ(pipeline.steps.size(), 3U);
  EXPECT_EQ(pipeline.steps[0], (PipelineStep{"a", {}}));
  const PipelineStep b{
      "b", {{"x", "1"}, {"y", std::vector<std::string>{"p", "q"}}, {"z", "quoted, text"}}};
  EXPECT_EQ(pipeline.steps[1], b);
  EXPECT_EQ(pipeline.steps[2], (PipelineStep{"c-d", {}}));
}

TEST(Pipeline, EmptyTextIsAPipelineWithoutPasses) {
  EXPECT_TRUE(parsed("").steps.empty());
  EXPECT_TRUE(parsed(" \t\n").steps.empty());
  EXPECT_EQ(Pipeline{}.to_string(), "");
}

TEST(Pipeline, PrintsTheShortestForm) {
  EXPECT_EQ(parsed(" a , b { x = \"1\" , y = [ ] }").to_string(), "a,b{x=1,y=[]}");
  EXPECT_EQ(parsed("b{x=\"\"}").to_string(), "b{x=\"\"}");
  EXPECT_EQ(parsed("b{ep=127.0.0.1:6174,v=fc_0.w_0@GRAD}").to_string(),
            "b{ep=127.0.0.1:6174,v=fc_0.w_0@GRAD}");
}

TEST(Pipeline, EveryByteSurvivesPrinting) {
  Pipeline pipeline;
  std::vector<std::string> values;
  std::string all;
  for (int c = 0; c < 256; ++c) {
    values.emplace_back(1, static_cast<char>(c));
    all += static_cast<char>(c);
  }
  values.push_back(all);
  values.emplace_back("caf\xc3\xa9");
  pipeline.steps = {{"p", {{"x", all}, {"list", values}}}, {"q", {}}};
  EXPECT_EQ(parsed(pipeline.to_string()), pipeline);
}

struct BadText {
  const char* text;
  const char* message;
};

class PipelineErrors : public ::testing::TestWithParam<BadText> {};

TEST_P(PipelineErrors, NameColumnExpectedAndFound) {
  const StatusOr<Pipeline> pipeline = parse_pipeline(GetParam().text);
  ASSERT_FALSE(pipeline.ok());
  EXPECT_EQ(pipeline.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(pipeline.status().message(), GetParam().message);
}

INSTANTIATE_TEST_SUITE_P(
    All, PipelineErrors,
    ::testing::Values(
        BadText{",a", "pipeline, column 1: expected the name of a pass, found ','"},
        BadText{"a,", "pipeline, column 3: expected the name of a pass, found the end"},
        BadText{"a b", "pipeline, column 3: expected ',' or '{', found 'b'"},
        BadText{"a{x=1} b", "pipeline, column 8: expected ',', found 'b'"},
        BadText{"a{x}", "pipeline, column 4: expected '=', found '}'"},
        BadText{"a{x=1", "pipeline, column 6: expected ',' or '}', found the end"},
        BadText{"a{x=}", "pipeline, column 5: expected a value, a quoted string or '[', found '}'"},
        BadText{"a{,}", "pipeline, column 3: expected the name of an option, found ','"},
        BadText{"a{x=[1,]}", "pipeline, column 8: expected a value or a quoted string, found ']'"},
        BadText{"a{x=[[1]]}", "pipeline, column 6: expected a value or a quoted string, found '['"},
        BadText{"a{x=[1", "pipeline, column 7: expected ',' or ']', found the end"},
        BadText{"a{x=\"b", "pipeline, column 5: expected '\"' that ends the string, found the end"},
        BadText{
            "a{x=\"\\q\"}",
            "pipeline, column 6: expected one of the escapes \\\" \\\\ \\n \\t \\xHH, found '\\'"},
        BadText{
            "a{x=\"\\x4\"}",
            "pipeline, column 6: expected one of the escapes \\\" \\\\ \\n \\t \\xHH, found '\\'"},
        BadText{"a{x=1,y=2,x=3}", "pipeline, column 11: option 'x' of pass 'a' is given twice"},
        BadText{"a\x01", "pipeline, column 2: expected ',' or '{', found '\\x01'"}));

TEST(Pipeline, RefusesTextsAboveTheLimits) {
  const StatusOr<Pipeline> longer = parse_pipeline(std::string(kMaxPipelineBytes + 1, 'a'));
  ASSERT_FALSE(longer.ok());
  EXPECT_EQ(longer.status().code(), StatusCode::kResource);
  EXPECT_THAT(longer.status().message(), HasSubstr("1048577 bytes"));

  std::string many = "a";
  for (size_t i = 0; i < kMaxPipelineSteps; ++i) many += ",a";
  const StatusOr<Pipeline> steps = parse_pipeline(many);
  ASSERT_FALSE(steps.ok());
  EXPECT_EQ(steps.status().code(), StatusCode::kResource);
  EXPECT_EQ(steps.status().message(), "pipeline has more than 1000 passes");
}

}  // namespace
}  // namespace millrace::transpiler

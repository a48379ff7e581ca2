#include "jobs/run/calibrate.h"

#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "framework/text_form/parse.h"
#include "tests/executor/values.h"

namespace millrace::jobs {
namespace {

using ::testing::HasSubstr;

TEST(Magnitudes, APercentileIsWithinItsClass) {
  Magnitudes magnitudes(1000);
  for (int i = 1; i <= 1000; ++i) {
    const auto value = static_cast<float>(i % 2 == 0 ? i : -i);
    magnitudes.add(&value, 1);
  }
  EXPECT_NEAR(magnitudes.percentile(50), 500, 1000.0 / 2048);
  EXPECT_NEAR(magnitudes.percentile(99), 990, 1000.0 / 2048);
  EXPECT_EQ(magnitudes.percentile(100), 1000);
  EXPECT_EQ(Magnitudes(0).percentile(50), 0);
  EXPECT_EQ(Magnitudes(0).least_divergence(), 0);
}

// A triangle of magnitudes up to 1 and a single one of 20: the scale must cover the former and not
// waste its levels on the latter. Equal counts in all classes leave nothing to clip.
TEST(Magnitudes, TheLeastDivergenceLeavesOutAnOutlier) {
  Magnitudes magnitudes(20);
  Magnitudes even(20);
  for (int i = 0; i < 200000; ++i) {
    const float part = static_cast<float>(i) / 200000;
    const float value = 1 - std::sqrt(part);
    magnitudes.add(&value, 1);
    const float spread = 20 * part;
    even.add(&spread, 1);
  }
  const float outlier = -20;
  magnitudes.add(&outlier, 1);
  EXPECT_GE(magnitudes.least_divergence(), 0.9);
  EXPECT_LE(magnitudes.least_divergence(), 2.5);
  EXPECT_GE(even.least_divergence(), 19.9);
}

class Calibrate : public ::testing::Test {
 protected:
  Calibrate() {
    const std::string vars =
        "param w: f32(2, 3)\nvar x: f32(-1, 2)\nvar y: f32(-1, 3)\npersist s: f32(1)\n"
        "persist ws: f32(3)\nvar xq: f32(-1, 2)\nvar wq: f32(2, 3)\npersist fetch: fetch_list\n";
    given_ = parse("block 0 {\n" + vars + "mul X=x Y=w -> Out=y\n" + kFetch);
    quantised_ = parse(
        "block 0 {\n" + vars +
        "fake_quantize_dequantize_moving_average_abs_max X=x InScale=s -> Out=xq OutScale=s "
        "{is_test: true}\nfake_channel_wise_quantize_dequantize_abs_max X=w -> Out=wq OutScale=ws "
        "{quant_axis: 1}\nmul X=xq Y=wq -> Out=y\n" +
        kFetch);
    scope_.local("w") = executor::tensor_value({2, 3}, {1, -2, 3, 4, 5, -6});
  }
  static std::unique_ptr<Program> parse(const std::string& text) {
    auto program = parse_program(text, "net");
    EXPECT_TRUE(program.ok()) << program.status().to_string();
    return std::move(program).value();
  }
  Status run(const std::vector<float>& x, const CalibrationOptions& options = {}) {
    feeds_.clear();
    feeds_.emplace_back()["x"] = executor::tensor_value({static_cast<int64_t>(x.size()) / 2, 2}, x);
    return calibrate(*given_, *quantised_, scope_, feeds_, options);
  }

  static constexpr const char* kFetch = "fetch X=y -> Out=fetch {col: 0}\n}\n";
  std::unique_ptr<Program> given_, quantised_;
  Scope scope_;
  std::vector<executor::NamedValues> feeds_;
};

TEST_F(Calibrate, StoresScalesOfActivationsAndParameters) {
  ASSERT_EQ(run({1, -7, 3, 0}).to_string(), Ok().to_string());
  EXPECT_THAT(executor::floats(scope_.local("s")), ::testing::ElementsAre(7));
  EXPECT_THAT(executor::floats(scope_.local("ws")), ::testing::ElementsAre(4, 5, 6));
  const auto differences = compare_results(*given_, *quantised_, scope_, feeds_, 1);
  ASSERT_TRUE(differences.ok()) << differences.status().to_string();
  ASSERT_EQ(differences->size(), 1U);
  EXPECT_EQ(differences->front().name, "y");
  EXPECT_GT(differences->front().relative, 0);
  EXPECT_LT(differences->front().relative, 0.01);
  std::vector<float> many(2000, 1.0F);
  many[5] = 100;
  ASSERT_TRUE(run(many, {.method = ScaleMethod::kPercentile, .percentile = 99}).ok());
  EXPECT_LT(executor::floats(scope_.local("s")).front(), 1.1);
}

TEST_F(Calibrate, RefusesValuesWithoutAScale) {
  EXPECT_THAT(run({1, std::numeric_limits<float>::infinity()}).to_string(),
              HasSubstr("var 'x' has a value that is not finite: inf"));
  EXPECT_THAT(run({}).to_string(), HasSubstr("var 'x' has no values with these feeds"));
}

}  // namespace
}  // namespace millrace::jobs

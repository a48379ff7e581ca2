#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tools/run/data_set.h"
#include "tools/run/loss_curve.h"
#include "tools/run/progress.h"

namespace millrace::tools {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class DataSetTest : public testing::Test {
 protected:
  DataSetTest() {
    program_->root().declare("x", VarSpec::tensor(DType::kFloat32, {-1, 2}));
    program_->root().declare("y", VarSpec::tensor(DType::kInt64, {-1, 1}));
  }

  StatusOr<DataSet> read(const std::string& text, const std::string& columns = "x=0:1,y=2") {
    const std::string path = testing::TempDir() + "data_set_test.csv";
    std::ofstream(path) << text;
    return DataSet::read(path, columns, *program_);
  }

  std::unique_ptr<Program> program_ = Program::create();
};

TEST_F(DataSetTest, ReadsColumnsBehindAHeader) {
  const auto data = read("a,b,label\n1,2,3\n4, 5.5,6\n");
  ASSERT_TRUE(data.ok()) << data.status().to_string();
  EXPECT_EQ(data->rows(), 2);
  const auto batch = data->batch({1, 0, 1});
  ASSERT_TRUE(batch.ok());
  EXPECT_THAT(batch->at("x").get_if<Tensor>()->values<float>(), ElementsAre(4, 5.5, 1, 2, 4, 5.5));
  EXPECT_THAT(batch->at("y").get_if<Tensor>()->values<int64_t>(), ElementsAre(6, 3, 6));
  EXPECT_THAT(batch->at("y").get_if<Tensor>()->dims(), ElementsAre(3, 1));
}

TEST_F(DataSetTest, SaysWhatIsWrongAndWhere) {
  EXPECT_THAT(read("1,2,3\n4,five,6\n").status().message(),
              HasSubstr("line 2, column 1: expected a number"));
  EXPECT_THAT(read("1,2,3\n4,5\n").status().message(),
              HasSubstr("line 2: expected 3 columns, found 2"));
  EXPECT_THAT(read("a,b,c\n").status().message(), HasSubstr("there is no line of numbers"));
  EXPECT_THAT(read("1,2,3\n", "x=0:2").status().message(),
              HasSubstr("var 'x': expected 2 columns for its dims, found 3"));
  EXPECT_THAT(read("1,2,3\n", "z=0").status().message(), HasSubstr("no var 'z'"));
  EXPECT_THAT(read("1,2,3\n", "x=0:1,y=7").status().message(),
              HasSubstr("var 'y' is column 7, but a line has 3"));
  EXPECT_THAT(read("1,2,3\n", "x").status().message(), HasSubstr("--columns: expected VAR="));
}

TEST(Progress, SaysWhereARunStands) {
  const ProgressState state{
      .epoch = 1, .epochs = 3, .step = 100, .steps = 300, .loss = 0.31214, .examples = 6400};
  EXPECT_EQ(progress_line(state, 2.0, int64_t{412} << 20),
            "epoch 1/3  step 100/300  loss 0.3121  50.0 it/s  3200 ex/s  mem 412 MiB  eta 4s");
  EXPECT_EQ(duration_text(68), "1m08s");
  EXPECT_EQ(duration_text(7380), "2h03m");
}

TEST(Progress, KnowsItsModes) {
  EXPECT_EQ(progress_mode("never"), ProgressMode::kNever);
  EXPECT_EQ(progress_mode("json"), ProgressMode::kJson);
  EXPECT_EQ(progress_mode("always"), std::nullopt);
}

TEST(LossCurve, DrawsValuesAndLeavesGapsForWhatIsNotFinite) {
  const std::string svg =
      loss_curve_svg("loss <1>", {3, 2, std::numeric_limits<double>::quiet_NaN(), 1, 0.5});
  EXPECT_THAT(svg, HasSubstr("loss &lt;1&gt;"));
  EXPECT_THAT(svg, testing::ContainsRegex("d=\"M[^\"M]*L[^\"M]*M[^\"]*L"));
  EXPECT_THAT(svg, testing::Not(HasSubstr("nan")));
}

TEST(LossCurve, DrawsOneValueAndNone) {
  EXPECT_THAT(loss_curve_svg("loss", {1}), HasSubstr("</svg>"));
  EXPECT_THAT(loss_curve_svg("loss", {}), HasSubstr("</svg>"));
}

}  // namespace
}  // namespace millrace::tools

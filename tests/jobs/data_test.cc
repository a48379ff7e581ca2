#include <cmath>
#include <fstream>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "jobs/data/check_against.h"
#include "jobs/data/data_set.h"
#include "jobs/data/feed_files.h"
#include "jobs/data/feeder.h"
#include "jobs/data/made_feed.h"
#include "jobs/stats/loss_curve.h"

namespace millrace::jobs {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class DataSetTest : public ::testing::Test {
 protected:
  DataSetTest() {
    program_->root().declare("x", VarSpec::tensor(DType::kFloat32, {-1, 2}));
    program_->root().declare("y", VarSpec::tensor(DType::kInt64, {-1, 1}));
  }

  StatusOr<DataSet> read(const std::string& text, const std::string& columns = "x=0:1,y=2") {
    const std::string path =
        fmt::format("{}data_set_test_{}.csv", ::testing::TempDir(), ::getpid());
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
              HasSubstr("line 2, column 1: expected a number, found 'five'"));
  EXPECT_THAT(read("1,2,3\n4,5\n").status().message(),
              HasSubstr("line 2: expected 3 columns, found 2"));
  EXPECT_THAT(read("a,b,c\n").status().message(),
              HasSubstr("expected lines of numbers, found none"));
  EXPECT_THAT(read("1,2,3\n", "x=0:2").status().message(),
              HasSubstr("var 'x': expected 2 columns for its dims, found 3"));
  EXPECT_THAT(read("1,2,3\n", "z=0").status().message(), HasSubstr("no var 'z'"));
  EXPECT_THAT(read("PAR1\x15\x04", "x=0:1").status().message(),
              HasSubstr("a Parquet file, which only the Python package reads"));
  EXPECT_THAT(read("1,2,3\n", "x=0:1,y=7").status().message(),
              HasSubstr("var 'y': column 7 does not exist, a line has 3 columns"));
  EXPECT_THAT(read("1,2,3\n", "x").status().message(), HasSubstr("options.columns: expected VAR="));
  EXPECT_THAT(read("1,2,3\n", "x=0:1,y=2,x=1:2").status().message(),
              HasSubstr("'x' is named twice"));
}

// These first lines were skipped as headers, and with them an example.
TEST_F(DataSetTest, TakesAFirstLineWithDigitsForAnExample) {
  const auto data = read(
      "\xEF\xBB\xBF"
      "5\n6\n",
      "y=0");
  ASSERT_TRUE(data.ok()) << data.status().to_string();
  EXPECT_THAT(data->batch({0, 1})->at("y").get_if<Tensor>()->values<int64_t>(), ElementsAre(5, 6));
  for (const std::string cell : {"+5", "1e400", "0x5", "1;2", "\"5\""}) {
    EXPECT_THAT(read(cell + "\n6\n", "y=0").status().message(),
                HasSubstr("line 1, column 0: expected a number, found '" + cell + "'"));
  }
  EXPECT_EQ(read("\xEF\xBB\xBFlabel\n6\n", "y=0")->rows(), 1);
  EXPECT_EQ(read("\"x1\",\"y\"\n6,7\n", "y=0")->rows(), 1);
}

TEST_F(DataSetTest, RefusesWhatItWouldChange) {
  EXPECT_THAT(read("1,two,3\n4,5,6\n").status().message(),
              HasSubstr("line 1, column 1: expected a number"));
  EXPECT_THAT(read("1,2,1.5\n").status().message(),
              HasSubstr("var 'y', example 0: 1.5 is not a valid i64"));
  EXPECT_FALSE(read("1,2,9007199254740993\n").ok());
  EXPECT_FALSE(read("1,2,-9007199254740993\n").ok());
  EXPECT_THAT(read("1,1e39,3\n").status().message(),
              HasSubstr("var 'x', example 0: 1e+39 is not a valid f32"));
  const auto data = read("1,2,9007199254740991\n");
  ASSERT_TRUE(data.ok()) << data.status().to_string();
  const auto batch = data->batch({0});
  EXPECT_THAT(batch->at("y").get_if<Tensor>()->values<int64_t>(), ElementsAre(9007199254740991));
}

TEST(LossCurve, DrawsValuesAndLeavesGapsForWhatIsNotFinite) {
  const std::string svg =
      loss_curve_svg("loss <1>", {3, 2, std::numeric_limits<double>::quiet_NaN(), 1, 0.5});
  EXPECT_THAT(svg, HasSubstr("loss &lt;1&gt;"));
  EXPECT_THAT(svg, ::testing::ContainsRegex("d=\"M[^\"M]*L[^\"M]*M[^\"]*L"));
  EXPECT_THAT(svg, ::testing::Not(HasSubstr("nan")));
}

TEST(LossCurve, DrawsOneValueAndNone) {
  EXPECT_THAT(loss_curve_svg("loss", {1}), HasSubstr("</svg>"));
  EXPECT_THAT(loss_curve_svg("loss", {}), HasSubstr("</svg>"));
}

class MadeFeedTest : public DataSetTest {
 protected:
  // A generated feed; the test fails if it is not generated.
  Tensor make(const std::string& text, const std::string& name = "x") {
    StatusOr<std::optional<Tensor>> made = make_feed(name, text, *program_);
    EXPECT_TRUE(made.ok() && made->has_value()) << made.status().to_string();
    return made.ok() && made->has_value() ? std::move(**made) : Tensor();
  }
  std::string error(const std::string& text, const std::string& name = "x") {
    return make_feed(name, text, *program_).status().message();
  }
};

TEST_F(MadeFeedTest, TakesDimsAndTypeOfTheVarOrThoseThatAreGiven) {
  EXPECT_THAT(make("zeros").dims(), ElementsAre(1, 2));
  EXPECT_THAT(make("zeros").values<float>(), ElementsAre(0, 0));
  const Tensor given = make("2x3xi32=zeros", "unknown");
  EXPECT_THAT(given.dims(), ElementsAre(2, 3));
  EXPECT_EQ(given.dtype(), DType::kInt32);
  EXPECT_THAT(make("f64=zeros").dims(), ElementsAre());
  const auto file = make_feed("x", "x.npy", *program_);
  ASSERT_TRUE(file.ok());
  EXPECT_FALSE(file->has_value());
}

TEST_F(MadeFeedTest, OneVarHasOneValueByName) {
  FeedOptions options;
  options.values = {"x=zeros", "x=random:1"};
  EXPECT_THAT(read_feeds(options, *program_).status().message(),
              HasSubstr("'x' was given a value before"));
  options.values = {"x=zeros"};
  EXPECT_TRUE(read_feeds(options, *program_).ok());
}

TEST_F(MadeFeedTest, RepeatsRandomValuesOfASeed) {
  const Tensor a = make("1000xf32=random:7");
  const Tensor b = make("1000xf32=random:7");
  const Tensor other = make("1000xf32=random:8");
  EXPECT_TRUE(std::equal(a.values<float>().begin(), a.values<float>().end(), b.data<float>()));
  EXPECT_FALSE(std::equal(a.values<float>().begin(), a.values<float>().end(), other.data<float>()));
  double sum = 0;
  for (const float v : a.values<float>()) {
    EXPECT_TRUE(v >= -1 && v < 1);
    sum += v;
  }
  EXPECT_NEAR(sum / 1000, 0, 4 * 0.577 / std::sqrt(1000.0));
  const Tensor ids = make("1000xi64=random:7:50");
  EXPECT_THAT(ids.values<int64_t>(),
              ::testing::Each(::testing::AllOf(::testing::Ge(0), ::testing::Lt(50))));
  EXPECT_THAT(ids.values<int64_t>(), ::testing::Contains(49));
}

TEST_F(MadeFeedTest, SaysWhatIsWrong) {
  EXPECT_THAT(error("random"), HasSubstr("expected random:SEED"));
  EXPECT_THAT(error("random:x"), HasSubstr("found 'random:x'"));
  EXPECT_THAT(error("random:1:0"), HasSubstr("expected random:SEED or random:SEED:HIGH"));
  EXPECT_THAT(error("2xax3xf32=zeros"), HasSubstr("'a' is not a valid dim"));
  EXPECT_THAT(error("2xf33=zeros"), HasSubstr("'f33' is not an element type"));
  EXPECT_THAT(error("2xi8=random:1:129"), HasSubstr("HIGH of at most 128 for elements of i8"));
  EXPECT_THAT(error("2xf32=random:1:5"), HasSubstr("HIGH is for integers, found elements of f32"));
  EXPECT_THAT(error("zeros", "z"), HasSubstr("does not declare this tensor"));
}

TEST_F(DataSetTest, ABatchThatIsNotFullIsLeftOutAlsoIfItIsTheOnlyOne) {
  FeedOptions options;
  options.data = fmt::format("{}feeder_test_{}.csv", ::testing::TempDir(), ::getpid());
  options.columns = "x=0:1,y=2";
  std::ofstream(options.data) << "1,2,3\n4,5,6\n7,8,9\n";
  options.batch_size = 4;
  const auto kept = Feeder::open(options, *program_);
  ASSERT_TRUE(kept.ok()) << kept.status().to_string();
  EXPECT_EQ(kept->steps(), 1);
  options.drop_last = true;
  EXPECT_THAT(Feeder::open(options, *program_).status().message(),
              HasSubstr("found only 3 examples, no batch of 4 is full"));
  options.batch_size = 2;
  const auto dropped = Feeder::open(options, *program_);
  ASSERT_TRUE(dropped.ok());
  EXPECT_EQ(dropped->steps(), 1);
  EXPECT_EQ(dropped->remark(), "left out 1 examples of batches that are not full");
}

TEST_F(DataSetTest, AFeedThatTheExamplesReplaceIsRefused) {
  FeedOptions options;
  options.data = fmt::format("{}replaced_{}.csv", ::testing::TempDir(), ::getpid());
  options.columns = "x=0:1";
  std::ofstream(options.data) << "1,2,3\n4,5,6\n";
  options.values = {"y=2x1xi64=zeros"};
  EXPECT_TRUE(Feeder::open(options, *program_).ok());
  options.columns = "x=0:1,y=2";
  EXPECT_EQ(Feeder::open(options, *program_).status().message(),
            "options.values: 'y' has no effect: every step has it from options.data");
}

TEST(SplitSteps, TwoNamesOfOneStepAreRefused) {
  executor::NamedValues members;
  members.emplace("step1/x", Value());
  members.emplace("step01/x", Value());
  EXPECT_THAT(split_steps(std::move(members), 1, "feeds.npz").status().message(),
              HasSubstr("member 'step01/x': expected a name like step0/x"));
}

executor::NamedValues named(const std::string& name, const std::vector<float>& data) {
  executor::NamedValues values;
  auto& tensor = values[name].as<Tensor>();
  EXPECT_TRUE(tensor.resize(DType::kFloat32, {static_cast<int64_t>(data.size())}).ok());
  std::copy(data.begin(), data.end(), tensor.data<float>());
  return values;
}

TEST(CheckAgainst, NamesTheLargestDifference) {
  const CheckResult close =
      check_against(named("y", {1, 2, 4}), named("y", {1, 2.0001F, 4}), {1e-4, 0});
  EXPECT_TRUE(close.same) << close.text;
  EXPECT_THAT(close.text, HasSubstr("y: largest difference 9.99e-05 at element 1"));
  const CheckResult far = check_against(named("y", {1, 2, 5}), named("y", {1, 2.1F, 4}), {1e-4, 0});
  EXPECT_FALSE(far.same);
  EXPECT_THAT(far.text,
              HasSubstr("difference 1 at element 2 (expected 4), 2 of 3 elements beyond"));
}

TEST(CheckAgainst, FindsWhatDoesNotFit) {
  EXPECT_THAT(check_against(named("y", {1}), named("z", {1}), {}).text,
              HasSubstr("z: missing in the results"));
  EXPECT_THAT(check_against(named("y", {1}), named("y", {1, 1}), {}).text,
              HasSubstr("y: expected f32 [2], found f32 [1]"));
  EXPECT_TRUE(check_against(named("y", {NAN}), named("y", {NAN}), {}).same);
  EXPECT_FALSE(check_against(named("y", {NAN}), named("y", {1}), {}).same);
  EXPECT_FALSE(check_against(named("y", {1}), named("y", {INFINITY}), {1, 1}).same);
  EXPECT_THAT(check_against(named("y", {1}), {}, {}).text, HasSubstr("nothing to compare with"));
  EXPECT_FALSE(check_against(named("y", {1}), {}, {}).same);
}

executor::NamedValues named_ids(const std::vector<int64_t>& data) {
  executor::NamedValues values;
  auto& tensor = values["y"].as<Tensor>();
  EXPECT_TRUE(tensor.resize(DType::kInt64, {static_cast<int64_t>(data.size())}).ok());
  std::copy(data.begin(), data.end(), tensor.data<int64_t>());
  return values;
}

TEST(CheckAgainst, ComparesIntegersExactly) {
  constexpr int64_t kLarge = (int64_t{1} << 53) + 1;  // the same double as 2^53
  EXPECT_TRUE(check_against(named_ids({kLarge}), named_ids({kLarge}), {0, 0}).same);
  const CheckResult check =
      check_against(named_ids({7, kLarge}), named_ids({7, kLarge - 1}), {0, 0});
  EXPECT_FALSE(check.same);
  EXPECT_THAT(check.text, HasSubstr("largest difference 1 at element 1"));
  EXPECT_THAT(check_against(named("y", {1}), named_ids({1}), {}).text,
              HasSubstr("y: expected i64 [1], found f32 [1]"));
}

TEST(CheckAgainst, ComparesTheLodThatIsExpected) {
  executor::NamedValues one = named("y", {1, 2, 3});
  executor::NamedValues other = named("y", {1, 2, 3});
  one["y"].as<Tensor>().set_lod(Lod({{0, 1, 3}}));
  EXPECT_TRUE(check_against(one, other, {}).same);  // nothing is said about sequences
  EXPECT_THAT(check_against(other, one, {}).text,
              HasSubstr("y: expected LoD [[0, 1, 3]], found none"));
  other["y"].as<Tensor>().set_lod(Lod({{0, 2, 3}}));
  EXPECT_THAT(check_against(other, one, {}).text, HasSubstr("found [[0, 2, 3]]"));
}

}  // namespace
}  // namespace millrace::jobs

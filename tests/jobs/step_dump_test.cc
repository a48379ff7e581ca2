// Files of vars that steps dump, and the line of fetches for the log.

#include "jobs/data/step_dump.h"

#include <filesystem>

#include <gmock/gmock.h>

#include "framework/base/file.h"
#include "jobs/stats/fetches_line.h"
#include "jobs/stats/step_facts.h"
#include "tests/io/temp_folder.h"

namespace millrace::jobs {
namespace {

using executor::NamedValues;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <typename T>
void set(NamedValues& values, const std::string& name, const Dims& dims, std::vector<T> elements,
         DType dtype) {
  auto& tensor = values[name].as<Tensor>();
  ASSERT_TRUE(tensor.resize(dtype, dims).ok());
  std::copy(elements.begin(), elements.end(), tensor.data<T>());
}

NamedValues values_of_step() {
  NamedValues values;
  set<float>(values, "prob", {2, 2}, {0.25F, 0.75F, 0.1F, 0.9F}, DType::kFloat32);
  set<int64_t>(values, "ids", {3, 1}, {7, 9, -1}, DType::kInt64);
  values["ids"].as<Tensor>().set_lod(Lod({{0, 2, 3}}));
  set<float>(values, "w", {2}, {0.5F, -1}, DType::kFloat32);
  set<float>(values, "loss", {1}, {0.5F}, DType::kFloat32);
  return values;
}

class StepDumpTest : public ::testing::Test {
 protected:
  StepDumpTest() {
    options_.fields = {"prob", "ids"};
    options_.params = {"w"};
    options_.folder = folder_ / "dump/of/fields";
    options_.trainer = 3;
  }
  testing::TempFolder folder_;
  DumpOptions options_;
};

TEST_F(StepDumpTest, WritesALinePerExampleAndParameter) {
  options_.interval = 2;
  auto dump = StepDump::open(options_);
  ASSERT_TRUE(dump.ok()) << dump.status().to_string();
  EXPECT_THAT((*dump)->with({"loss", "prob"}), ElementsAre("loss", "prob", "ids", "w"));
  for (int64_t step = 0; step < 3; ++step) {
    NamedValues values = values_of_step();
    ASSERT_TRUE((*dump)->write(step, 2, {"loss", "prob"}, values).ok());
    EXPECT_EQ(values.size(), 2U);
    EXPECT_TRUE(values.contains("loss") && values.contains("prob"));
  }
  const auto text = read_file(options_.folder + "/part-003", 1 << 20);
  ASSERT_TRUE(text.ok());
  EXPECT_EQ(*text,
            "0:0\tprob:2:0.25:0.75\tids:2:7:9\n0:1\tprob:2:0.1:0.9\tids:1:-1\n(0,w):0.5:-1\n"
            "2:0\tprob:2:0.25:0.75\tids:2:7:9\n2:1\tprob:2:0.1:0.9\tids:1:-1\n(2,w):0.5:-1\n");
}

// As an op hands it on whose result has other rows.
TEST_F(StepDumpTest, ALodOfOtherRowsIsAnError) {
  auto dump = StepDump::open(options_);
  ASSERT_TRUE(dump.ok()) << dump.status().to_string();
  NamedValues values = values_of_step();
  values["ids"].as<Tensor>().set_lod(Lod({{0, 2, 9}}));
  EXPECT_THAT((*dump)->write(0, 2, {}, values).to_string(), HasSubstr("dump of field 'ids': "));
}

TEST_F(StepDumpTest, StepsThatAreMadeAgainAreWrittenOnce) {
  options_.fields = {};
  auto dump = StepDump::open(options_);
  ASSERT_TRUE(dump.ok()) << dump.status().to_string();
  for (const int64_t step : {4, 5, 6, 5, 6, 7}) {
    if (step == 5) {
      ASSERT_TRUE((*dump)->go_back(step).ok());
    }
    NamedValues values = values_of_step();
    ASSERT_TRUE((*dump)->write(step, 2, {}, values).ok());
  }
  EXPECT_EQ(*read_file(folder_ / "dump/of/fields/part-003", 1 << 20),
            "(4,w):0.5:-1\n(5,w):0.5:-1\n(6,w):0.5:-1\n(7,w):0.5:-1\n");
}

TEST_F(StepDumpTest, KeepsEarlierFilesUnlessTheyMayBeReplaced) {
  ASSERT_TRUE(StepDump::open(options_).ok());
  EXPECT_THAT(StepDump::open(options_).status().to_string(),
              HasSubstr("part-003: the file exists"));
  options_.replace = Replace::kYes;
  EXPECT_TRUE(StepDump::open(options_).ok());
  options_.folder.clear();
  EXPECT_THAT(StepDump::open(options_).status().message(), HasSubstr("options.dump_folder"));
}

TEST_F(StepDumpTest, RefusesFieldsThatAreNotOfExamples) {
  options_.fields = {"loss"};
  auto dump = StepDump::open(options_);
  ASSERT_TRUE(dump.ok());
  NamedValues values = values_of_step();
  EXPECT_THAT((*dump)->write(0, 2, {}, values).message(),
              HasSubstr("dump of field 'loss': expected a row for each of 2 examples, found 1"));
  values.erase("w");
  EXPECT_THAT((*dump)->write(0, 1, {}, values).message(), HasSubstr("dump of 'w'"));
}

TEST(FetchesLine, ShowsTheFirstElements) {
  NamedValues values = values_of_step();
  set<float>(values, "many", {5}, {1, 2, 3, 4, 5}, DType::kFloat32);
  EXPECT_THAT(fetches_line(100, {"loss", "many", "absent"}, values),
              ::testing::StartsWith("step 100: loss = 0.5, many = 1, 2, 3, 4, ... ("));
}

TEST(BatchOf, CountsSequencesNotTheirRows) {
  NamedValues values;
  set<int64_t>(values, "ids", {3, 1}, {7, 9, -1}, DType::kInt64);
  EXPECT_EQ(batch_of(values), 3);
  values["ids"].as<Tensor>().set_lod(Lod({{0, 2, 3}}));
  EXPECT_EQ(batch_of(values), 2);
}

}  // namespace
}  // namespace millrace::jobs

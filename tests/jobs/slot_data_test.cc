// Examples in files of MultiSlot text, in the form in which they are fed to steps.

#include "jobs/data/slot_data.h"

#include <algorithm>
#include <fstream>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "jobs/data/feeder.h"
#include "tests/io/temp_folder.h"

namespace millrace::jobs {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class SlotDataTest : public ::testing::Test {
 protected:
  SlotDataTest() {
    program_->root().declare("x", VarSpec::tensor(DType::kFloat32, {-1, 2}));
    VarSpec ids = VarSpec::tensor(DType::kInt64, {-1, 1});
    ids.lod_level = 1;
    program_->root().declare("ids", ids);
    options_.slots = write("slots.json", R"({"slots": ["x", "ids"], "batch_size": 2})");
    options_.files = {folder_ / "part-*"};
    options_.seed = 7;
    write("part-0", "2 1 2 1 10\n2 3 4 2 20 21\n2 5 6 1 30\n");
    write("part-1", "2 7 8 3 40 41 42\n2 9 10 1 50\n");
  }

  std::string write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name) << text;
    return folder_ / name;
  }

  // first values of x of every step
  std::vector<std::vector<float>> steps(Feeder& feeder, int64_t begin = 0) {
    std::vector<std::vector<float>> all;
    for (int64_t step = begin; !feeder.ends_at(step); ++step) {
      const auto feeds = feeder.feeds(step);
      if (!feeds.ok()) {
        ADD_FAILURE() << feeds.status().to_string();
        break;
      }
      if (*feeds == nullptr) break;
      const auto& x = *(*feeds)->at("x").get_if<Tensor>();
      const auto& ids = *(*feeds)->at("ids").get_if<Tensor>();
      EXPECT_TRUE(ids.lod().check(ids.dim(0)).ok());
      EXPECT_EQ(ids.lod().sequences(0), x.dim(0));
      all.emplace_back();
      for (int64_t i = 0; i < x.dim(0); ++i) all.back().push_back(x.data<float>()[2 * i]);
    }
    return all;
  }

  StatusOr<Feeder> open() { return Feeder::open(options_, *program_); }

  std::unique_ptr<Program> program_ = Program::create();
  testing::TempFolder folder_;
  FeedOptions options_;
};

TEST_F(SlotDataTest, FeedsAreThoseOfTheOriginal) {
  auto feeder = open();
  ASSERT_TRUE(feeder.ok()) << feeder.status().to_string();
  const auto feeds = feeder->feeds(0);
  ASSERT_TRUE(feeds.ok());
  const auto& x = *(*feeds)->at("x").get_if<Tensor>();
  EXPECT_THAT(x.dims(), ElementsAre(2, 2));
  EXPECT_THAT(x.values<float>(), ElementsAre(1, 2, 3, 4));
  const auto& ids = *(*feeds)->at("ids").get_if<Tensor>();
  EXPECT_THAT(ids.dims(), ElementsAre(3, 1));
  EXPECT_THAT(ids.values<int64_t>(), ElementsAre(10, 20, 21));
  EXPECT_THAT(ids.lod().level(0), ElementsAre(0, 1, 3));
}

TEST_F(SlotDataTest, QueueEndsWithTheFilesOfTheLastEpoch) {
  options_.epochs = 2;
  auto feeder = open();
  ASSERT_TRUE(feeder.ok());
  EXPECT_EQ(feeder->steps(), 0);
  EXPECT_THAT(steps(*feeder), ElementsAre(ElementsAre(1, 3), ElementsAre(5, 7), ElementsAre(9),
                                          ElementsAre(1, 3), ElementsAre(5, 7), ElementsAre(9)));
  EXPECT_EQ(feeder->examples(), 10);
  EXPECT_EQ(feeder->epoch(5), 2);
}

TEST_F(SlotDataTest, GoingBackReadsTheSameAgain) {
  options_.epochs = 2;
  for (const bool in_memory : {false, true}) {
    options_.in_memory = in_memory;
    auto feeder = open();
    ASSERT_TRUE(feeder.ok());
    const auto all = steps(*feeder);
    ASSERT_EQ(all.size(), 6U);
    ASSERT_TRUE(feeder->go_to(4).ok());
    EXPECT_THAT(steps(*feeder, 4), ElementsAre(all[4], all[5])) << in_memory;
    EXPECT_EQ(feeder->examples(), 10) << in_memory;
  }
}

TEST_F(SlotDataTest, MemoryShufflesEveryEpochAndLosesNothing) {
  options_.in_memory = true;
  options_.epochs = 3;
  auto feeder = open();
  ASSERT_TRUE(feeder.ok());
  EXPECT_EQ(feeder->steps(), 9);
  const auto all = steps(*feeder);
  std::vector<std::vector<float>> epochs(3);
  for (size_t i = 0; i < all.size(); ++i)
    epochs[i / 3].insert(epochs[i / 3].end(), all[i].begin(), all[i].end());
  EXPECT_NE(epochs[0], epochs[1]);
  for (auto& epoch : epochs) {
    std::sort(epoch.begin(), epoch.end());
    EXPECT_THAT(epoch, ElementsAre(1, 3, 5, 7, 9));
  }
  options_.shuffle = false;
  auto straight = open();
  EXPECT_THAT(steps(*straight)[2], ElementsAre(9));
}

TEST_F(SlotDataTest, FlagsWinOverTheSlotsFile) {
  options_.batch_size = 3;
  options_.max_steps = 1;
  auto feeder = open();
  ASSERT_TRUE(feeder.ok());
  EXPECT_THAT(steps(*feeder), ElementsAre(ElementsAre(1, 3, 5)));
}

TEST_F(SlotDataTest, SaysWhatIsMissing) {
  options_.files = {folder_ / "none-*"};
  EXPECT_THAT(open().status().message(), HasSubstr("no file matches"));
  options_.files = {folder_ / "part-0"};
  options_.data = "x.csv";
  EXPECT_EQ(open().status().code(), StatusCode::kUsage);
  options_.data.clear();
  options_.slots.clear();
  EXPECT_THAT(open().status().message(), HasSubstr("options.slots"));
  options_.slots = write("bad.json", R"(["y"])");
  EXPECT_THAT(open().status().to_string(), HasSubstr("bad.json: slot 'y'"));
}

}  // namespace
}  // namespace millrace::jobs

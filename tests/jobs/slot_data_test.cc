// Examples in files of MultiSlot text, in the form in which they are fed to steps.

#include "jobs/data/slot_data.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <unistd.h>

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

TEST_F(SlotDataTest, AFileIsNeverReadTwiceWithoutAnError) {
  options_.files = {folder_ / "part-*", folder_ / "part-1"};
  EXPECT_THAT(open().status().message(), HasSubstr("part-1' is listed twice"));
  EXPECT_EQ(open().status().code(), StatusCode::kUsage);
}

TEST_F(SlotDataTest, FilesWithoutExamplesAreAnError) {
  options_.files = {write("empty", "")};
  for (const bool in_memory : {false, true}) {
    options_.in_memory = in_memory;
    auto feeder = open();
    const Status status = feeder.ok() ? feeder->feeds(0).status() : feeder.status();
    EXPECT_THAT(status.to_string(), HasSubstr("empty: found no examples")) << in_memory;
  }
}

TEST_F(SlotDataTest, StandardInputIsReadOnce) {
  options_.files = {"-"};
  options_.epochs = 2;
  EXPECT_THAT(open().status().message(), HasSubstr("standard input can be read only once"));
  options_.epochs = 1;
  options_.divide = Divide::kExamples;
  EXPECT_THAT(open().status().message(), HasSubstr("each trainer has its own standard input"));
}

TEST_F(SlotDataTest, FoldersThatCannotBeSearchedAreAnError) {
  if (::geteuid() == 0) GTEST_SKIP() << "the super-user can read every folder";
  std::filesystem::create_directory(folder_ / "day-0");
  write("day-0/part", "2 1 2 1 10\n");
  std::filesystem::create_directory(folder_ / "day-1");
  std::filesystem::permissions(folder_ / "day-1", std::filesystem::perms::none);
  options_.files = {folder_ / "day-*/part*"};
  EXPECT_THAT(open().status().message(), HasSubstr("cannot search all folders"));
}

TEST_F(SlotDataTest, DropsIncompleteBatchesAndSaysHowMany) {
  options_.drop_last = true;
  options_.epochs = 2;
  for (const bool in_memory : {false, true}) {
    options_.in_memory = in_memory;
    auto feeder = open();
    ASSERT_TRUE(feeder.ok());
    const auto all = steps(*feeder);
    ASSERT_EQ(all.size(), 4U) << in_memory;
    for (const auto& batch : all) EXPECT_EQ(batch.size(), 2U);
    EXPECT_THAT(feeder->remark(), HasSubstr("left out 2 examples")) << in_memory;
  }
  options_.batch_size = 6;
  EXPECT_THAT(open().status().message(), HasSubstr("found only 5 examples, no batch of 6 is full"));
}

TEST_F(SlotDataTest, TrainersDivideTheLinesAndEachLineIsOfOne) {
  std::string text;
  for (int i = 0; i < 40; ++i) text += fmt::format("2 {} 0 1 {}\n", 100 + i, i);
  write("part-2", text);
  std::vector<float> all = {1, 3, 5, 7, 9};
  for (int i = 0; i < 40; ++i) all.push_back(static_cast<float>(100 + i));
  options_.trainers = 3;
  options_.drop_last = false;
  for (const Divide divide : {Divide::kFiles, Divide::kExamples}) {
    for (const bool in_memory : {false, true}) {
      options_.divide = divide;
      options_.in_memory = in_memory;
      std::vector<float> seen;
      for (options_.trainer = 0; options_.trainer < 3; ++options_.trainer) {
        auto feeder = open();
        ASSERT_TRUE(feeder.ok()) << feeder.status().to_string();
        const auto own = steps(*feeder);
        auto again = open();
        EXPECT_EQ(steps(*again), own);
        size_t count = 0;
        for (const auto& batch : own) {
          seen.insert(seen.end(), batch.begin(), batch.end());
          count += batch.size();
        }
        if (divide == Divide::kExamples) {
          EXPECT_NEAR(static_cast<double>(count), 15, 2);
        }
      }
      std::sort(seen.begin(), seen.end());
      EXPECT_EQ(seen, all) << in_memory;
    }
  }
}

// All examples of a trainer, by epoch.
using Epochs = std::vector<std::vector<float>>;

class ReshuffleTest : public SlotDataTest {
 protected:
  static constexpr int kTrainers = 3;
  static constexpr int kEpochs = 4;
  ReshuffleTest() {
    std::string text;
    for (int i = 0; i < 40; ++i) text += fmt::format("2 {} 0 1 {}\n", 100 + i, i);
    write("part-2", text);
    options_.trainers = kTrainers;
    options_.divide = Divide::kExamples;
    options_.reshuffle_epochs = true;
    options_.epochs = kEpochs;
  }
  Epochs epochs_of(Feeder& feeder, int64_t begin = 0) {
    Epochs epochs(kEpochs);
    for (int64_t step = begin; !feeder.ends_at(step); ++step) {
      const auto feeds = feeder.feeds(step);
      EXPECT_TRUE(feeds.ok()) << feeds.status().to_string();
      if (!feeds.ok() || *feeds == nullptr) break;
      const auto& x = *(*feeds)->at("x").get_if<Tensor>();
      auto& epoch = epochs[static_cast<size_t>(feeder.epoch(step)) - 1];
      for (int64_t i = 0; i < x.dim(0); ++i) epoch.push_back(x.data<float>()[2 * i]);
      counted_ = step + 1;
    }
    return epochs;
  }
  int64_t counted_ = 0;  ///< steps of the last epochs_of()
};

TEST_F(ReshuffleTest, EveryEpochDividesAgainAndEachLineIsOfOneTrainer) {
  std::vector<float> all = {1, 3, 5, 7, 9};
  for (int i = 0; i < 40; ++i) all.push_back(static_cast<float>(100 + i));
  for (const bool in_memory : {false, true}) {
    options_.in_memory = in_memory;
    Epochs seen(kEpochs);
    for (options_.trainer = 0; options_.trainer < kTrainers; ++options_.trainer) {
      auto feeder = open();
      ASSERT_TRUE(feeder.ok()) << feeder.status().to_string();
      Epochs own = epochs_of(*feeder);
      if (in_memory) {
        EXPECT_EQ(feeder->steps(), counted_);
      }
      for (size_t e = 0; e < kEpochs; ++e) {
        seen[e].insert(seen[e].end(), own[e].begin(), own[e].end());
        std::sort(own[e].begin(), own[e].end());
        if (e > 0) {
          EXPECT_NE(own[e], own[e - 1]);
        }
      }
    }
    for (auto& epoch : seen) {
      std::sort(epoch.begin(), epoch.end());
      EXPECT_EQ(epoch, all) << in_memory;
    }
  }
}

// As another process that takes the place of a trainer, and a job that goes back to a snapshot.
TEST_F(ReshuffleTest, ATrainerContinuesAnywhereWithTheSameExamples) {
  options_.trainer = 1;
  for (const bool in_memory : {false, true}) {
    options_.in_memory = in_memory;
    auto whole = open();
    ASSERT_TRUE(whole.ok());
    const auto all = steps(*whole);
    auto other = open();
    for (const size_t first : {all.size() - 3, all.size() / 2, size_t{1}, all.size() - 1}) {
      ASSERT_TRUE(other->go_to(static_cast<int64_t>(first)).ok());
      EXPECT_EQ(steps(*other, static_cast<int64_t>(first)),
                decltype(all)(all.begin() + static_cast<int64_t>(first), all.end()))
          << in_memory << first;
    }
  }
}

TEST_F(ReshuffleTest, IncompleteBatchesAreCountedInEveryEpoch) {
  options_.drop_last = true;
  options_.batch_size = 4;
  for (const bool in_memory : {false, true}) {
    options_.in_memory = in_memory;
    auto feeder = open();
    const Epochs own = epochs_of(*feeder);
    int64_t rows = 0;
    for (const auto& epoch : own) {
      EXPECT_EQ(epoch.size() % 4, 0U);
      rows += static_cast<int64_t>(epoch.size());
    }
    options_.drop_last = false;
    options_.batch_size = 1;
    auto whole = open();
    epochs_of(*whole);
    EXPECT_THAT(feeder->remark(), HasSubstr(fmt::format("left out {} examples", counted_ - rows)));
    options_.drop_last = true;
    options_.batch_size = 4;
  }
}

TEST_F(ReshuffleTest, FilesThatChangeBetweenEpochsAreAnError) {
  options_.in_memory = true;
  auto feeder = open();
  ASSERT_TRUE(feeder.ok());
  write("part-1", "2 7 8 3 40 41 42\n");
  Status status;
  for (int64_t step = 0; status.ok() && !feeder->ends_at(step); ++step)
    status = feeder->feeds(step).status();
  EXPECT_THAT(status.to_string(), HasSubstr("part-1: expected 2 lines as in the first epoch"));
}

TEST_F(ReshuffleTest, NeedsExamplesOfFilesThatAreDivided) {
  options_.divide = Divide::kFiles;
  EXPECT_THAT(open().status().message(),
              HasSubstr("options.reshuffle_epochs: expected options.divide examples"));
  options_.divide = Divide::kExamples;
  options_.files.clear();
  options_.data = write("x.csv", "1,2\n");
  EXPECT_THAT(open().status().message(),
              HasSubstr("options.reshuffle_epochs: expected options.files"));
}

TEST_F(SlotDataTest, ACommandOfTheSlotsFileNeedsPermission) {
  options_.slots = write("slots.json", R"({"slots": ["x", "ids"], "batch_size": 2,
      "pipe_command": "sed 's/^2 /2 4/'"})");
  EXPECT_EQ(open().status().code(), StatusCode::kUsage);
  EXPECT_THAT(open().status().to_string(), HasSubstr("would run the pipe_command 'sed"));
  EXPECT_THAT(open().status().to_string(), HasSubstr("options.allow_pipe_command"));
  options_.allow_pipe_command = true;
  options_.shuffle = false;
  for (const bool in_memory : {false, true}) {
    options_.in_memory = in_memory;
    auto feeder = open();
    ASSERT_TRUE(feeder.ok()) << feeder.status().to_string();
    EXPECT_THAT(steps(*feeder),
                ElementsAre(ElementsAre(41, 43), ElementsAre(45, 47), ElementsAre(49)));
  }
}

TEST_F(SlotDataTest, ATrainerWithoutAShareSaysSo) {
  options_.divide = Divide::kFiles;
  options_.trainers = 3;
  options_.trainer = 2;
  auto feeder = open();
  ASSERT_TRUE(feeder.ok());
  EXPECT_TRUE(steps(*feeder).empty());
  EXPECT_THAT(feeder->remark(), HasSubstr("no example of 0 files is for this trainer"));
  options_.trainer = 3;
  EXPECT_THAT(open().status().message(), HasSubstr("options.trainer: expected less than 3"));
}

TEST_F(SlotDataTest, DelimitedTextFeedsTheSameValues) {
  const std::string slots = R"({"format": "delimited", "separator": ",", "batch_size": 2, "slots": [
      {"name": "x", "columns": "0:1", "default": 0},
      {"name": "ids", "columns": 2, "hash": {"function": "none", "buckets": 100, "first": 1},
       "min_count": 2, "rare": 0}]})";
  options_.slots = write("cells.json", slots);
  options_.files = {write("a.csv", "1,2,110\n3,,10\r\n"), write("b.csv", "5,6,10\n7,8,110")};
  for (const bool in_memory : {false, true}) {
    options_.in_memory = in_memory;
    options_.shuffle = false;
    auto feeder = open();
    ASSERT_TRUE(feeder.ok()) << feeder.status().to_string();
    const auto feeds = feeder->feeds(0);
    ASSERT_TRUE(feeds.ok()) << feeds.status().to_string();
    EXPECT_THAT((*feeds)->at("x").get_if<Tensor>()->values<float>(), ElementsAre(1, 2, 3, 0));
    EXPECT_THAT((*feeds)->at("ids").get_if<Tensor>()->values<int64_t>(), ElementsAre(11, 11));
  }
  // counted over all files, also those of other trainers
  write("b.csv", "5,6,10\n7,8,9\n");
  options_.divide = Divide::kFiles;
  options_.trainers = 2;
  auto feeder = open();
  ASSERT_TRUE(feeder.ok()) << feeder.status().to_string();
  const auto feeds = feeder->feeds(0);
  EXPECT_THAT((*feeds)->at("ids").get_if<Tensor>()->values<int64_t>(), ElementsAre(0, 11));
}

// They were trained on twice.
TEST_F(SlotDataTest, OneFileByTwoPathsIsRefused) {
  std::filesystem::create_symlink(folder_ / "part-0", folder_ / "link");
  for (const char* const other : {"./part-0", "link"}) {
    options_.files = {folder_ / "part-*", folder_ / other};
    const Status status = open().status();
    EXPECT_EQ(status.code(), StatusCode::kUsage) << other;
    EXPECT_THAT(status.message(), HasSubstr("are the same file"));
  }
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

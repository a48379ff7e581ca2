// The progress line of runs, and options that exclude each other.

#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tools/common/flag_names.h"
#include "tools/launch/launch.h"
#include "tools/run/options.h"
#include "tools/run/progress.h"

namespace millrace::tools {
namespace {

using ::testing::HasSubstr;

TEST(Progress, SaysWhereARunStands) {
  const jobs::ProgressState state{
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

TEST(FlagNames, FieldsBecomeFlagsAndQuotedNamesStay) {
  const auto printed = [](const char* message) {
    return with_flags(Status(StatusCode::kUsage, message)).message();
  };
  EXPECT_EQ(printed("ending.model: expected ending.model_program with the program"),
            "--save-model: expected --model-program with the program");
  EXPECT_EQ(printed("expected only one of settings.workers and settings.devices"),
            "expected only one of --worker-threads and --devices");
  EXPECT_EQ(printed("files.params has whole variables; expected files.slices as well"),
            "--params has whole variables; expected --slices as well");
  EXPECT_EQ(printed("cannot open 'files.params'"), "cannot open 'files.params'");
}

TEST(FillInRank, NamesEveryFileThatARankWrites) {
  RunOptions options;
  const std::vector<std::string*> written = {
      &options.curve,          &options.save_params, &options.save_persistables,
      &options.save_model,     &options.profile,     &options.dump.folder,
      &options.checkpoint_dir, &options.ps.stats,    &options.parallel.share_vars_output};
  for (std::string* const path : written) *path = "a.{rank}/{rank}";
  fill_in_rank(options, 3, "out.{rank}.npz");
  EXPECT_EQ(options.output, "out.3.npz");
  for (const std::string* const path : written) EXPECT_EQ(*path, "a.3/3");
}

TEST(FeedOptions, DivideNeedsTheNumberOfTrainers) {
  const Tool tool({.name = "test", .purpose = {}, .examples = {}, .exit_codes = {}, .notes = {}});
  RunOptions options;
  options.files = {"part-{rank}"};
  options.divide = "examples";
  options.ps.role = "trainer";
  jobs::FeedOptions feed;
  EXPECT_THAT(divide_examples(tool, options, 1, 0, feed).message(), HasSubstr("--trainers"));
  options.trainers = 3;
  EXPECT_THAT(divide_examples(tool, options, 1, 2, feed).message(),
              HasSubstr("--trainers: expected 2, found 3"));
  ASSERT_TRUE(divide_examples(tool, options, 1, 0, feed).ok());
  EXPECT_EQ(feed.divide, jobs::Divide::kExamples);
  EXPECT_EQ(feed.trainer, 1);
  EXPECT_EQ(feed.trainers, 3);
  fill_in_rank(options, 1, "");
  EXPECT_THAT(divide_examples(tool, options, 1, 3, feed).message(), HasSubstr("found {rank}"));
}

// launch would take options of the command as its own, or reject them.
TEST(Launch, ACommandWithOptionsNeedsTwoDashes) {
  const auto refused = [](const std::vector<const char*>& argv) {
    Tool tool({.name = "launch", .purpose = {}, .examples = {}, .exit_codes = {}, .notes = {}});
    LaunchFlags flags;
    add_launch_options(tool, flags);
    flags.arguments.assign(argv.begin() + 1, argv.end());
    testing::internal::CaptureStderr();
    const int code = tool.run(static_cast<int>(argv.size()), argv.data(),
                              [&] { return run_launch(tool, flags); });
    return std::pair(code, testing::internal::GetCapturedStderr());
  };
  const auto [code, text] = refused({"launch", "--nproc_per_node", "1", "no-such-program", "-v"});
  EXPECT_EQ(code, 2);
  EXPECT_THAT(text, HasSubstr("expected -- before the command 'no-such-program': after it, launch "
                              "would take -v as an option of its own"));
  EXPECT_EQ(refused({"launch", "--nproc_per_node", "1"}).first, 2);
}

}  // namespace
}  // namespace millrace::tools

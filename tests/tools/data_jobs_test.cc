// Trainers of fleet jobs that read files of examples: they divide the lines, and dump what they
// computed for each.

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <llvm/ADT/SmallVector.h>
#include <llvm/ADT/StringRef.h>

#include "tests/fleet/ctr_job.h"
#include "tests/support/process.h"
#include "tests/tools/ctr_folder.h"

namespace millrace::tools {
namespace {

using ::testing::HasSubstr;

class DataJobs : public CtrFolder {
 protected:
  // Delimited text: label, two ids and four numbers; the ids of example i are i and i + 1.
  void write_files() const {
    for (int file = 0; file < 3; ++file) {
      std::string text;
      for (int i = 0; i < 5; ++i)
        text += fmt::format("{},{},{},1,-1,,0.5\n", i % 2, 5 * file + i, 5 * file + i + 1);
      write(fmt::format("part-{}", file), text);
    }
    write("slots.json", R"({"format": "delimited", "separator": ",", "batch_size": 2, "slots": [
        {"name": "label", "type": "uint64", "is_dense": true, "shape": [1], "columns": 0},
        {"name": "emb_slot0", "type": "uint64", "is_dense": true, "shape": [1], "columns": 1},
        {"name": "emb_slot1", "type": "uint64", "is_dense": true, "shape": [1], "columns": 2},
        {"name": "dense", "type": "float", "is_dense": true, "columns": "3:6", "default": 0}]})");
  }
  // Trains with two trainers and two servers.
  [[nodiscard]] Ended train(const std::string& mode, const Words& more,
                            const std::string& fields = "") const {
    const std::string list = spawn::free_endpoints(2);
    const size_t comma = list.find(',');
    transpile("job_" + mode, mode, {list.substr(0, comma), list.substr(comma + 1)}, kWorkers,
              fields);
    return run("launch", joined({"--servers", list, "--trainer_num", "2", "--log_dir", at("logs"),
                                 "--", spawn::tool("run-program"), "--role", "auto", "--transpiled",
                                 at("job_" + mode), "--files", at("part-*"), "--slots",
                                 at("slots.json"), "--fetch", ctr_job::loss_name(), "--force"},
                                more));
  }
  // The first ids of all examples that the trainers have dumped, sorted.
  [[nodiscard]] std::vector<int> dumped_ids() const {
    std::vector<int> ids;
    for (const char* const name : {"dump/part-000", "dump/part-001"}) {
      const std::string text = testing::bytes_of(at(name));
      llvm::SmallVector<llvm::StringRef, 32> lines;
      llvm::StringRef(text).split(lines, '\n', -1, false);
      for (const llvm::StringRef line : lines) {
        const llvm::StringRef last = line.rsplit(':').second;
        int id = -1;
        EXPECT_FALSE(last.getAsInteger(10, id)) << line.str();
        ids.push_back(id);
      }
    }
    std::sort(ids.begin(), ids.end());
    return ids;
  }
};

TEST_F(DataJobs, TrainersSeeEachLineOnceInEveryMode) {
  write_files();
  std::vector<int> all(15);
  for (int i = 0; i < 15; ++i) all[static_cast<size_t>(i)] = i;
  for (const char* const mode : {"sync", "async"}) {
    for (const char* const divide : {"files", "examples"}) {
      const Ended ended = train(mode, {"--divide", divide, "--dataset", "memory", "--dump-fields",
                                       "emb_slot0", "--dump-dir", at("dump")});
      ASSERT_EQ(ended.code, 0) << mode << " " << divide << "\n" << ended.output;
      EXPECT_EQ(dumped_ids(), all) << mode << " " << divide;
    }
  }
}

TEST_F(DataJobs, TrainersDivideTheLinesAgainInEveryEpoch) {
  write_files();
  constexpr int kEpochs = 3;
  std::vector<int> all;
  for (int i = 0; i < kEpochs * 15; ++i) all.push_back(i / kEpochs);
  for (const char* const dataset : {"queue", "memory"}) {
    const Ended ended = train(
        "async", {"--divide", "examples", "--reshuffle-epochs", "--epochs", std::to_string(kEpochs),
                  "--dataset", dataset, "--dump-fields", "emb_slot0", "--dump-dir", at("dump")});
    ASSERT_EQ(ended.code, 0) << ended.output;
    EXPECT_EQ(dumped_ids(), all) << dataset;
    // a trainer with the same share in all epochs would see each of its ids in all of them
    const std::string own = testing::bytes_of(at("dump/part-000"));
    int once = 0;
    for (int id = 0; id < 15; ++id) {
      const size_t count = llvm::StringRef(own).count(fmt::format("emb_slot0:1:{}\n", id));
      once += count % kEpochs == 0 ? 0 : 1;
    }
    EXPECT_GT(once, 0) << dataset;
  }
}

TEST_F(DataJobs, CommandsOfTheSlotsFileNeedAFlag) {
  write_files();
  std::string slots = testing::bytes_of(at("slots.json"));
  slots.insert(1, R"("pipe_command": "grep -v '^1,'", )");
  write("slots.json", slots);
  const Words flags = {"--divide", "files", "--dump-fields", "emb_slot0", "--dump-dir", at("dump")};
  const Ended refused = train("async", flags);
  EXPECT_NE(refused.code, 0);
  const std::string log = refused.output + testing::bytes_of(at("logs/trainer.0.log"));
  EXPECT_THAT(log, HasSubstr("would run the pipe_command 'grep"));
  EXPECT_THAT(log, HasSubstr("--allow-pipe-command"));
  const Ended ended = train("async", joined(flags, {"--allow-pipe-command"}));
  ASSERT_EQ(ended.code, 0) << ended.output;
  EXPECT_THAT(dumped_ids(), ::testing::ElementsAre(0, 2, 4, 5, 7, 9, 10, 12, 14));
}

TEST_F(DataJobs, TheJobSaysWhatItsTrainersDump) {
  write_files();
  const std::string fields =
      R"(, "trainer_desc_configs": {"dump_fields": ["emb_slot0"], "dump_fields_path": "there"})";
  const Ended refused = train("async", {"--divide", "files"}, fields);
  EXPECT_NE(refused.code, 0);
  const std::string log = refused.output + testing::bytes_of(at("logs/trainer.0.log"));
  EXPECT_THAT(log, HasSubstr("expected --dump-dir"));
  EXPECT_THAT(log, HasSubstr("'there'"));
  const Ended ended = train(
      "async", {"--divide", "files", "--dump-dir", at("dump"), "--print-period", "2"}, fields);
  ASSERT_EQ(ended.code, 0) << ended.output;
  EXPECT_EQ(dumped_ids().size(), 15U);
}

}  // namespace
}  // namespace millrace::tools

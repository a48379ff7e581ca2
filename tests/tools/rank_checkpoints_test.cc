// Several ranks of one training run write one checkpoint together, into one folder or onto separate
// disks, and any number of ranks continues from it.

#include <cctype>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>

#include "executor/collective/engines.h"
#include "io/npz.h"
#include "tests/io/checkpoint/states.h"
#include "tests/io/temp_folder.h"
#include "tests/support/mpirun.h"
#include "tests/support/process.h"

namespace millrace::tools {
namespace {

namespace fs = std::filesystem;
using millrace::spawn::Process;
using millrace::spawn::tool;
using ::testing::HasSubstr;
using ::testing::Not;
using Words = std::vector<std::string>;

constexpr int kPatienceMs = 60'000;

struct Job {
  std::string engine = "shm";  ///< of --engine; mpi is started by mpirun
  int ranks = 2;
};

class RankCheckpoints : public ::testing::Test {
 protected:
  RankCheckpoints() {
    for (int rank = 0; rank < 3; ++rank) {
      std::ofstream data(at("d" + std::to_string(rank) + ".csv"));
      for (int i = 0; i < 400; ++i) {
        for (int k = 0; k < 14; ++k)
          data << (k == 0 ? "" : ",") << ((i + 7 * rank) * 31 + k * 17) % 23 * 0.05;
        data << "\n";
      }
    }
  }
  [[nodiscard]] std::string at(const std::string& name) const { return folder_ / name; }

  [[nodiscard]] Process start(const Job& job, const Words& more) const {
    const std::string count = std::to_string(job.ranks);
    Words words = {tool("launch"), "--nproc_per_node", count, "--log_dir", at("logs"), "--"};
    if (job.engine == "mpi") words = spawn::mpirun_words(count);
    const std::string model = "tests/data/fit_a_line/";
    const Words command = {tool("run-program"),
                           "--program",
                           model + "main.pb",
                           "--startup",
                           model + "startup.pb",
                           "--data",
                           at("d{rank}.csv"),
                           "--columns",
                           "x=0:12,y=13",
                           "--batch-size",
                           "10",
                           "--seed",
                           "3",
                           "--epochs",
                           "200000",
                           "--threads",
                           "1",

                           "--engine",
                           job.engine,
                           "--wait-ms",
                           "20000",
                           "--save-persistables",
                           at("end{rank}.npz"),
                           "--force",
                           "--resume",
                           "auto"};
    words.insert(words.end(), command.begin(), command.end());
    if (job.ranks > 1) words.emplace_back("--data-parallel");
    words.insert(words.end(), more.begin(), more.end());
    return Process(words, job.engine == "mpi" ? spawn::mpirun_environment() : Words{});
  }
  // \returns the logs of the ranks
  std::string train(const Job& job, const Words& more, int code = 0) const {
    fs::remove_all(at("logs"));
    Process process = start(job, more);
    EXPECT_EQ(process.wait(kPatienceMs), code) << process.output();
    return said(process);
  }
  [[nodiscard]] std::string said(const Process& process) const {
    std::string text = process.output();
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(at("logs"), error))
      text += testing::bytes_of(entry.path().string());
    return text;
  }
  [[nodiscard]] Words saving(const std::string& folder, const std::string& every,
                             const std::string& steps) const {
    return {"--save-every", every, "--checkpoint-dir", at(folder), "--max-steps", steps};
  }
  int checkpoint(Words words, std::string* text = nullptr) const {
    words.insert(words.begin(), tool("checkpoint"));
    Process process(words);
    const int code = process.wait(kPatienceMs);
    if (text != nullptr) *text = process.output();
    return code;
  }
  void expect_ends_equal(const std::string& expected, const std::string& found) const {
    std::string text;
    EXPECT_EQ(checkpoint({"diff", at(expected), at(found)}, &text), 0) << text;
  }

  testing::TempFolder folder_;
};

bool can_run(const std::string& engine) {
  if (engine == "gloo") return executor::has_gloo();
  if (engine != "mpi") return true;
  return executor::has_mpi() && std::system("command -v mpirun >/dev/null 2>&1") == 0;
}

// The parameters are equal on both ranks, so each is written once.
TEST_F(RankCheckpoints, GoOnToTheSameBits) {
  for (const std::string engine : {"shm", "gloo", "mpi"}) {
    if (!can_run(engine)) continue;
    const Job job{engine};
    train(job, saving("none", "0", "9"));
    fs::rename(at("end0.npz"), at("whole.npz"));
    for (const std::string folder : {"one", "own{rank}"}) {
      train(job, saving(folder, "2", "5"));
      EXPECT_THAT(train(job, saving(folder, "4", "9")), HasSubstr("step-4"));
      expect_ends_equal("whole.npz", "end0.npz");
      expect_ends_equal("whole.npz", "end1.npz");
    }
    EXPECT_TRUE(fs::exists(at("one/step-4/data-1-0.safetensors")));
    EXPECT_EQ(checkpoint({"verify", at("one")}), 0);
    EXPECT_FALSE(fs::exists(at("own0/step-4/data-1-0.safetensors")));
    EXPECT_TRUE(fs::exists(at("own1/step-4/data-1-0.safetensors")));
    for (const char* const folder : {"one", "own0", "own1"}) fs::remove_all(at(folder));
  }
}

TEST_F(RankCheckpoints, ToolsTakeTheDisksTogether) {
  train({}, saving("own{rank}", "3", "3"));
  std::string text;
  EXPECT_EQ(checkpoint({"verify", at("own0")}, &text), 1);
  EXPECT_THAT(text, HasSubstr("or all of their folders must be given"));
  EXPECT_EQ(checkpoint({"verify", at("own0"), "--beside", at("own1")}, &text), 0) << text;
  EXPECT_EQ(checkpoint({"list", at("own0"), "--beside", at("own1")}, &text), 0) << text;
  EXPECT_THAT(text, ::testing::AllOf(HasSubstr("yes"), Not(HasSubstr("damaged"))));
  EXPECT_EQ(checkpoint({"show", at("own1"), "--beside", at("own0"), "--step", "3"}, &text), 0);
  EXPECT_THAT(text, HasSubstr("fc_0.w_0"));
  // a manifest on one of the disks is enough
  fs::remove(at("own0/step-3/manifest.json"));
  EXPECT_EQ(checkpoint(
                {"convert", at("own0"), "--beside", at("own1"), "--to", "npz", "-o", at("all.npz")},
                &text),
            0)
      << text;
  expect_ends_equal("all.npz", "end0.npz");
  EXPECT_EQ(checkpoint({"reshard", at("own0/step-3"), "--beside", at("own1/step-3"), "--ranks", "1",
                        "-o", at("one/step-3")},
                       &text),
            0)
      << text;
  EXPECT_EQ(checkpoint({"diff", at("own0"), at("one"), "--beside", at("own1")}, &text), 0) << text;
  EXPECT_EQ(checkpoint({"gc", at("own0"), "--beside", at("own1")}, &text), 2) << text;
}

// Rank 2 has no disk with files of it.
TEST_F(RankCheckpoints, AnyNumberOfRanksGoesOn) {
  train({}, saving("own{rank}", "3", "3"));
  fs::copy(at("end0.npz"), at("three.npz"));
  const std::string more = train({"shm", 3}, saving("own{rank}", "0", "3"));
  EXPECT_THAT(more, HasSubstr("random numbers restart"));
  expect_ends_equal("three.npz", "end2.npz");
  train({"shm", 3}, saving("own{rank}", "5", "5"));
  // one rank, three disks: their files are first copied together
  EXPECT_EQ(checkpoint({"reshard", at("own0"), "--beside", at("own1"), "--beside", at("own2"),
                        "--ranks", "1", "-o", at("one/step-5")}),
            0);
  fs::copy(at("end0.npz"), at("five.npz"));
  train({"shm", 1}, saving("one", "0", "5"));
  expect_ends_equal("five.npz", "end0.npz");
}

// Only one rank gets the signal; both end after the same step and have saved it.
TEST_F(RankCheckpoints, ASignalEndsAllBehindOneStep) {
  for (const auto& [number, code] : {std::pair(SIGINT, 130), std::pair(SIGTERM, 143)}) {
    Process job = start({}, saving("ck", "1000000", "1000000000"));
    ASSERT_TRUE(job.has_written("trainer.1 (pid ", kPatienceMs)) << job.output();
    std::this_thread::sleep_for(std::chrono::milliseconds(1000));
    const std::string text = job.output();
    const size_t found = text.find("trainer.1 (pid ");
    kill(std::atoi(text.c_str() + found + 15), number);
    EXPECT_EQ(job.wait(kPatienceMs), code) << said(job);
    EXPECT_FALSE(fs::exists(at("end0.npz")));
  }
  std::string text;
  EXPECT_EQ(checkpoint({"verify", at("ck")}, &text), 0) << text;
  EXPECT_EQ(checkpoint({"list", at("ck"), "--json"}, &text), 0);
  EXPECT_THAT(text, Not(HasSubstr("\"complete\": false")));
  EXPECT_GE(std::distance(fs::directory_iterator(at("ck")), fs::directory_iterator()), 1);
}

}  // namespace
}  // namespace millrace::tools

// Jobs with servers whose trainers have GPUs, here emulated ones: they end with the values of the
// same job on the processor, and the work of their steps is recorded.

#include <filesystem>
#include <regex>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/process.h"
#include "tests/tools/ctr_folder.h"

namespace millrace::tools {
namespace {

using ::testing::HasSubstr;

constexpr int kGpuSteps = 8;
const std::vector<std::string> kGpuServers{"127.0.0.1:7210", "127.0.0.1:7211"};

class GpuJobs : public CtrFolder {
 protected:
  // The same batch in all steps: with other shapes work is recorded again.
  void SetUp() override {
    NamedValues all;
    for (int worker = 0; worker < kWorkers; ++worker) {
      const NamedValues batch = ctr_job::feeds_of(worker, 0);
      for (int step = 0; step < kGpuSteps; ++step) {
        for (const auto& [name, value] : batch)
          check(executor::copy_value(value, all[fmt::format("t{}/step{}/{}", worker, step, name)]));
      }
    }
    write("feeds.npz", *io::npz_bytes(all));
  }

  // A job whose servers have optimizer blocks, of the model that the fleet jobs have.
  void transpile_slices(const Words& flags) const {
    write_configs("sync", kGpuServers);
    const std::string folder(ctr_job::kFolder);
    succeed("transpile-program",
            {"--program", folder + "origin_main.pb", "--startup", folder + "origin_startup.pb",
             "--minimize", at("min.json"), "-o", at("alone"), "--force", "-q"});
    succeed(
        "transpile-program",
        joined({"--program", at("alone/main/__model__"), "--startup", at("alone/main/__startup__"),
                "--pservers", fmt::format("{}", fmt::join(kGpuServers, ",")), "--trainers",
                std::to_string(kWorkers), "--trainer-id", "all", "-o", at("job"), "--force", "-q"},
               flags));
  }

  // Runs "job" in one process; checks that trainers on a GPU record their steps. \returns the
  // values at its end
  [[nodiscard]] Arrays train(const Words& devices) const {
    Words words = cluster("job", kGpuSteps, "out.npz");
    words.pop_back();  // -q: the log says how many ops were recorded
    words = joined(joined(words, devices),
                   {"--save-persistables", at("after.npz"), "--progress", "never"});
    const Ended ended = run("run-program", words);
    EXPECT_EQ(ended.code, 0) << ended.output;
    if (ended.code != 0) return {};
    if (!devices.empty()) expect_recorded(ended.output);
    return floats_in(at("after.npz"));
  }
  static void expect_recorded(const std::string& log) {
    const std::regex line("trainer [0-9]+: ([0-9]+) ops on the gpu, ([0-9]+) of them recorded");
    int trainers = 0;
    for (std::sregex_iterator found(log.begin(), log.end(), line), end; found != end; ++found) {
      ++trainers;
      EXPECT_GT(std::stoi((*found)[1]), 20) << found->str();
      EXPECT_GT(2 * std::stoi((*found)[2]), std::stoi((*found)[1])) << found->str();
    }
    EXPECT_EQ(trainers, kWorkers) << log;
  }
  void expect_same() const {
    const Arrays want = train({});
    expect_near(want, train({"--devices", "gpu:emulated"}));
  }
  static void expect_near(const Arrays& want, const Arrays& have) {
    ASSERT_GT(want.size(), 3U);
    ASSERT_EQ(have.size(), want.size());
    for (const auto& [name, values] : want) {
      SCOPED_TRACE(name);
      const std::vector<float>& other = have.at(name);
      ASSERT_EQ(other.size(), values.size());
      for (size_t i = 0; i < values.size(); ++i)
        ASSERT_NEAR(other[i], values[i], 5e-3 * std::max(1.0F, std::abs(values[i]))) << i;
    }
  }
};

TEST_F(GpuJobs, SynchronousFleetJobsDoWhatTheyDoOnTheProcessor) {
  transpile("job", "sync", kGpuServers);
  expect_same();
}

TEST_F(GpuJobs, HybridJobsDoWhatTheyDoOnTheProcessor) {
  transpile("job", "sync", kGpuServers, kWorkers, R"(, "dense_gradients": "all_reduce")");
  expect_same();
}

TEST_F(GpuJobs, TrainersOfHybridJobsExchangeGradientsFromGpuToGpu) {
  const std::string servers = spawn::free_endpoints(2);
  const size_t comma = servers.find(',');
  transpile("job", "sync", {servers.substr(0, comma), servers.substr(comma + 1)}, kWorkers,
            R"(, "dense_gradients": "all_reduce")");
  write_feeds(0, 4);
  for (int t = 0; t < kWorkers; ++t)
    std::filesystem::copy_file(at(fmt::format("feeds_{}.npz", t)), at(fmt::format("own{}.npz", t)));
  Arrays after[2];
  for (const bool nccl : {false, true}) {
    const Words how = nccl ? Words{"--devices", "gpu:emulated", "--engine", "nccl"} : Words{};
    succeed(
        "launch",
        joined(joined(launched_trainers(servers, at("logs"), at("job"), at("own{rank}.npz"), 4,
                                        ctr_job::loss_name()),
                      {"--threads", "1", "--force", "--save-persistables", at("after{rank}.npz")}),
               how));
    after[nccl ? 1 : 0] = floats_in(at("after1.npz"));
  }
  expect_near(after[0], after[1]);
}

TEST_F(GpuJobs, SynchronousJobsWithSlicesDoWhatTheyDoOnTheProcessor) {
  transpile_slices({});
  expect_same();
}

TEST_F(GpuJobs, JobsWithSlicesThatDoNotWaitRecordTheirSteps) {
  const Words modes[] = {
      {"--sync-mode", "false", "--config-sync-mode", "false", "--runtime-split-send-recv", "true"},
      {"--sync-mode", "false", "--config-sync-mode", "false", "--runtime-split-send-recv", "true",
       "--half-async", "true"},
      {"--transpiler", "geo", "--geo-sgd-need-push-nums", "2"}};
  for (const Words& mode : modes) {
    SCOPED_TRACE(fmt::format("{}", fmt::join(mode, " ")));
    transpile_slices(mode);
    (void)train({"--devices", "gpu:emulated"});
  }
}

TEST_F(GpuJobs, FleetJobsThatDoNotWaitRecordTheirSteps) {
  for (const std::string mode : {"async", "geo"}) {
    SCOPED_TRACE(mode);
    transpile("job", mode, kGpuServers, kWorkers,
              mode == "geo" ? R"(, "a_sync_configs": {"k_steps": 2})" : "");
    (void)train({"--devices", "gpu:emulated"});
  }
}

}  // namespace
}  // namespace millrace::tools

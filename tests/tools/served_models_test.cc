// Models that jobs with parameter servers save are served by one process: the model computes the
// same as the program with the same parameters, in every mode of the transpiler.

#include <algorithm>
#include <filesystem>
#include <ostream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tools/ctr_folder.h"

namespace millrace::tools {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Mode {
  std::string name;
  Words flags;
};

void PrintTo(const Mode& mode, std::ostream* out) {
  *out << mode.name;
}

class ServedModels : public CtrFolder, public ::testing::WithParamInterface<Mode> {
 protected:
  void SetUp() override {
    write_configs("sync", {"127.0.0.1:7400"});
    const std::string folder = ctr_job::kFolder;
    succeed("transpile-program",
            {"--program", folder + "origin_main.pb", "--startup", folder + "origin_startup.pb",
             "--minimize", at("min.json"), "-o", at("training"), "-q"});
    succeed("transpile-program",
            joined({"--program", at("training/main/__model__"), "--startup",
                    at("training/main/__startup__"), "--pservers", "127.0.0.1:7400,127.0.0.1:7401",
                    "--trainers", "2", "--trainer-id", "all", "-o", at("job"), "-q"},
                   GetParam().flags));
    write_feeds(0, 4);
  }
};

TEST_P(ServedModels, ComputeWhatTheProgramDoes) {
  const std::string main = std::string(ctr_job::kFolder) + "origin_main.pb";
  succeed("run-program",
          joined(cluster("job", 4, "out.npz"),
                 {"--save-persistables", at("after.npz"), "--save-params", at("params"),
                  "--allow-dir", folder_.path(), "--save-model", at("model"), "--model-program",
                  main, "--model-feeds", "emb_slot0,emb_slot1,dense", "--model-fetches", kFetch}));
  // no optimizer state
  EXPECT_THAT(millrace::testing::names_in(at("model")),
              ElementsAre("__model__", "emb", "fc_0.b_0", "fc_0.w_0", "fc_1.b_0", "fc_1.w_0"));
  write("one.npz", *io::npz_bytes(ctr_job::feeds_of(0, 9)));
  succeed("run-program", {"--model-dir", at("model"), "--feed", at("one.npz"), "--output",
                          at("served.npz"), "--threads", "1"});
  const Arrays served = floats_in(at("served.npz"));
  EXPECT_EQ(served.size(), 1U);
  // here the folder also has optimizer state, which a forward program ignores
  for (const char* const params : {"after.npz", "params"}) {
    succeed("run-program",
            {"--program", main, "--params", at(params), "--feed", at("one.npz"), "--fetch", kFetch,
             "--output", at("alone.npz"), "--threads", "1", "--force"});
    EXPECT_EQ(served, floats_in(at("alone.npz"))) << params;
  }
  EXPECT_TRUE(fs::exists(at("params/fc_0.w_0_moment1_0")));
}

TEST_P(ServedModels, TheProgramMustBeNamed) {
  const Ended ended =
      run("run-program", joined(cluster("job", 4, "out.npz"), {"--save-model", at("model")}));
  EXPECT_EQ(ended.code, 2) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("--model-program"));
}

INSTANTIATE_TEST_SUITE_P(
    OfJobs, ServedModels,
    ::testing::Values(Mode{"sync", {}}, Mode{"async", {"--sync-mode", "false"}},
                      Mode{"half_async",
                           {"--sync-mode", "false", "--config-sync-mode", "false",
                            "--runtime-split-send-recv", "true", "--half-async", "true"}},
                      Mode{"split_at_run_time",
                           {"--sync-mode", "false", "--config-sync-mode", "false",
                            "--runtime-split-send-recv", "true"}},
                      Mode{"geo",
                           {"--transpiler", "geo", "--sync-mode", "false", "--config-sync-mode",
                            "false", "--runtime-split-send-recv", "true", "--geo-sgd-mode", "true",
                            "--geo-sgd-need-push-nums", "2"}}),
    [](const auto& mode) { return mode.param.name; });

}  // namespace
}  // namespace millrace::tools

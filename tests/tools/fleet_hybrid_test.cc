// Hybrid fleet jobs by the tools: dense gradients by all-reduce between trainers, embeddings on
// servers. In one process and in several they end with the same bits; they are saved and continue;
// a lost process ends them with an error that names it; what they cannot do is refused.

#include <csignal>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/process.h"
#include "tests/tools/ctr_folder.h"

namespace millrace::tools {
namespace {

namespace fs = std::filesystem;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Processes = std::vector<std::unique_ptr<spawn::Process>>;

constexpr const char* kAllReduce = R"(, "dense_gradients": "all_reduce")";
const std::vector<std::string> kTwoServers{"127.0.0.1:7200", "127.0.0.1:7201"};

std::vector<std::string> split(const std::string& list) {
  const size_t comma = list.find(',');
  return {list.substr(0, comma), list.substr(comma + 1)};
}

class HybridJobs : public CtrFolder {
 protected:
  void transpile_hybrid(const std::string& out, const std::vector<std::string>& servers,
                        const std::string& mode = "sync", const std::string& more = "") const {
    transpile(out, mode, servers, kWorkers, kAllReduce + more);
  }
  // Feeds that `{rank}` names.
  void write_feeds_of_ranks(int steps) const {
    write_feeds(0, steps);
    for (int t = 0; t < kWorkers; ++t)
      fs::copy_file(at(fmt::format("feeds_{}.npz", t)), at(fmt::format("own{}.npz", t)),
                    fs::copy_options::overwrite_existing);
  }
  [[nodiscard]] Words launched(const std::string& servers, int steps, const Words& more) const {
    return joined(joined(launched_trainers(servers, at("logs"), at("job"), at("own{rank}.npz"),
                                           steps, ctr_job::loss_name()),
                         {"--threads", "1", "--force"}),
                  more);
  }
  // The processes of "job". \param steps  of trainers; 0: they have one batch for all steps
  void start_all(int steps, const std::vector<Words>& of_trainers, const Words& of_server_1 = {},
                 bool by_endpoints = true) {
    const std::string ends = spawn::free_endpoints(2);
    for (int i = 0; i < 2; ++i) {
      const Words words{spawn::tool("pserver"), "--program",
                        at(fmt::format("job/pserver_{}/__model__", i)), "--silence-timeout-ms",
                        "4000"};
      servers_.push_back(
          std::make_unique<spawn::Process>(i == 1 ? joined(words, of_server_1) : words));
    }
    for (int t = 0; t < kWorkers; ++t) {
      const std::string own = at(fmt::format("own{}.npz", t));
      Words words{spawn::tool("run-program"),
                  "--role",
                  "trainer",
                  "--trainer-id",
                  std::to_string(t),
                  "--transpiled",
                  at("job"),
                  "--fetch",
                  ctr_job::loss_name(),
                  "--silence-timeout-ms",
                  "4000",
                  "--reconnect-timeout-ms",
                  "1000",
                  "--threads",
                  "1",
                  "--save-persistables",
                  at(fmt::format("after_{}.npz", t))};
      if (by_endpoints) words = joined(words, {"--endpoints", ends});
      words =
          joined(words, steps == 0 ? Words{"--feed", own}
                                   : Words{"--feed-steps", own, "--steps", std::to_string(steps)});
      trainers_.push_back(
          std::make_unique<spawn::Process>(joined(words, of_trainers[static_cast<size_t>(t)])));
    }
  }
  void expect_refused(const std::string& tool, const Words& words, int code,
                      const std::string& said) const {
    const Ended ended = run(tool, words);
    EXPECT_EQ(ended.code, code) << said << "\n" << ended.output;
    EXPECT_THAT(ended.output, HasSubstr(said));
  }

  Processes servers_;
  Processes trainers_;
};

TEST_F(HybridJobs, ALaunchedOneHasTheBitsOfOneInOneProcess) {
  const std::string list = spawn::free_endpoints(2);
  transpile_hybrid("job", split(list));
  write_feeds_of_ranks(6);
  succeed("run-program",
          joined(cluster("job", 6, "out.npz"), {"--save-persistables", at("whole.npz")}));
  const Arrays whole = floats_in(at("whole.npz"));
  EXPECT_TRUE(whole.contains("fc_0.w_0"));
  EXPECT_TRUE(whole.contains("emb"));
  const Arrays losses = floats_in(at("out.npz"));
  for (const std::string engine : {"shm", "gloo"}) {
    SCOPED_TRACE(engine);
    succeed("launch", launched(list, 6,
                               {"--save-persistables", at("after{rank}.npz"), "--output",
                                at("out{rank}.npz"), "--engine", engine}));
    for (const int t : {0, 1}) {
      EXPECT_EQ(floats_in(at(fmt::format("after{}.npz", t))), whole);
      for (const auto& [name, value] : floats_in(at(fmt::format("out{}.npz", t))))
        EXPECT_EQ(value, losses.at(fmt::format("t{}/", t) + name)) << name;
    }
  }
}

// The dense half is updated by the adam op of the program, that of an ordinary job by its servers.
TEST_F(HybridJobs, TheLossesAreThoseOfAnOrdinaryJob) {
  write_feeds(0, 6);
  transpile("ordinary", "sync", kTwoServers);
  succeed("run-program", cluster("ordinary", 6, "ordinary.npz"));
  transpile_hybrid("job", kTwoServers);
  succeed("run-program", cluster("job", 6, "out.npz"));
  const Arrays losses = floats_in(at("out.npz"));
  const Arrays ordinary = floats_in(at("ordinary.npz"));
  EXPECT_EQ(losses.size(), 12U);
  for (const auto& [name, value] : losses)
    EXPECT_NEAR(value[0], ordinary.at(name)[0], 2e-5) << name;
}

TEST_F(HybridJobs, AnAsynchronousOneLearns) {
  const std::string list = spawn::free_endpoints(2);
  transpile_hybrid("job", split(list), "async");
  write_feeds_of_ranks(40);
  succeed("launch", launched(list, 40,
                             {"--save-persistables", at("after{rank}.npz"), "--output",
                              at("out{rank}.npz")}));
  const Arrays losses = floats_in(at("out1.npz"));
  const std::string loss = ctr_job::loss_name();
  EXPECT_LT(losses.at("step39/" + loss)[0], 0.5F * losses.at("step0/" + loss)[0]);
  const Arrays first = floats_in(at("after0.npz"));
  const Arrays second = floats_in(at("after1.npz"));
  for (const std::string name : {"fc_0.w_0", "fc_0.b_0", "fc_1.w_0", "fc_1.b_0"})
    EXPECT_EQ(first.at(name), second.at(name)) << name;
}

TEST_F(HybridJobs, SavedAndContinuedItEndsWithTheSameBits) {
  transpile_hybrid("job", kTwoServers);
  write_feeds(0, 6);
  succeed("run-program",
          joined(cluster("job", 6, "whole.npz"), {"--save-persistables", at("whole_after.npz")}));
  write_feeds(0, 3);
  succeed("run-program", joined(cluster("job", 3, "first.npz"),
                                {"--allow-dir", folder_.path(), "--save-params", at("saved")}));
  const std::string manifest = millrace::testing::bytes_of(at("saved.manifest.json"));
  EXPECT_THAT(manifest, HasSubstr("fc_0.w_0"));
  EXPECT_THAT(manifest, HasSubstr("moment1"));
  EXPECT_THAT(manifest, HasSubstr("part-001.rows"));
  write_feeds(3, 6);
  const Arrays whole = floats_in(at("whole.npz"));
  const std::vector<std::vector<std::string>> later{
      {"127.0.0.1:7300", "127.0.0.1:7301"}, {"127.0.0.1:7300", "127.0.0.1:7301", "127.0.0.1:7302"}};
  for (const auto& servers : later) {
    transpile_hybrid("later", servers);
    succeed("run-program",
            joined(cluster("later", 3, "later.npz"),
                   {"--params", at("saved"), "--save-persistables", at("later_after.npz")}));
    for (const auto& [name, value] : floats_in(at("later.npz"))) {
      std::string then = name;
      then[name.find("step") + 4] = static_cast<char>(name[name.find("step") + 4] + 3);
      EXPECT_EQ(value, whole.at(then)) << name << " " << servers.size();
    }
    EXPECT_EQ(floats_in(at("later_after.npz")), floats_in(at("whole_after.npz")));
  }
}

TEST_F(HybridJobs, TheModelThatIsSavedIsServed) {
  transpile_hybrid("job", kTwoServers);
  write_feeds(0, 4);
  const std::string main = std::string(ctr_job::kFolder) + "origin_main.pb";
  succeed("run-program", joined(cluster("job", 4, "out.npz"),
                                {"--save-persistables", at("after.npz"), "--save-model",
                                 at("model"), "--model-program", main, "--model-feeds",
                                 "emb_slot0,emb_slot1,dense", "--model-fetches", kFetch}));
  write("one.npz", *io::npz_bytes(ctr_job::feeds_of(0, 9)));
  succeed("run-program", {"--model-dir", at("model"), "--feed", at("one.npz"), "--output",
                          at("served.npz"), "--threads", "1"});
  succeed("run-program", {"--program", main, "--params", at("after.npz"), "--feed", at("one.npz"),
                          "--fetch", kFetch, "--output", at("alone.npz"), "--threads", "1"});
  EXPECT_EQ(floats_in(at("served.npz")), floats_in(at("alone.npz")));
}

// It is killed where the other one waits for its gradients, or for its rows.
TEST_F(HybridJobs, AKilledTrainerEndsTheJob) {
  for (const std::string point : {"trainer/before-lookup:8", "trainer/before-send:8"}) {
    SCOPED_TRACE(point);
    servers_.clear();
    trainers_.clear();
    transpile_hybrid("job", split(spawn::free_endpoints(2)));
    write_feeds_of_ranks(6);
    start_all(6, {{}, {"--kill-point", point}});
    EXPECT_EQ(trainers_[1]->wait(kTimeoutMs), 128 + SIGKILL) << trainers_[1]->output();
    EXPECT_EQ(trainers_[0]->wait(kTimeoutMs), 5) << trainers_[0]->output();
    EXPECT_THAT(trainers_[0]->output(), AnyOf(HasSubstr("rank 1"), HasSubstr("trainer 1")));
    EXPECT_FALSE(fs::exists(at("after_0.npz")));
    for (const auto& server : servers_) {
      EXPECT_EQ(server->wait(kTimeoutMs), 5) << server->output();
      EXPECT_THAT(server->output(), HasSubstr("trainer"));
    }
  }
}

TEST_F(HybridJobs, AKilledServerEndsTheJob) {
  struct Case {
    std::string mode;
    std::string point;
    bool again;  // another process takes its place
  };
  for (const auto& [mode, point, again] : {Case{"sync", "server/before-apply:3", false},
                                           {"sync", "server/before-apply:3", true},
                                           {"async", "server/before-answer:18", true}}) {
    SCOPED_TRACE(mode + (again ? ", and is started again" : ", for good"));
    servers_.clear();
    trainers_.clear();
    const std::vector<std::string> ends = split(spawn::free_endpoints(2));
    transpile_hybrid("job", ends, mode);
    write_feeds_of_ranks(6);
    start_all(6, {{}, {}}, {"--kill-point", point});
    EXPECT_EQ(servers_[1]->wait(kTimeoutMs), 128 + SIGKILL) << servers_[1]->output();
    if (again)
      servers_[1] = std::make_unique<spawn::Process>(Words{spawn::tool("pserver"), "--program",
                                                           at("job/pserver_1/__model__"),
                                                           "--silence-timeout-ms", "4000"});
    std::string said;
    for (const auto& trainer : trainers_) {
      EXPECT_EQ(trainer->wait(kTimeoutMs), 5) << trainer->output();
      said += trainer->output();
    }
    EXPECT_THAT(said, HasSubstr(ends[1]));
    for (const int t : {0, 1}) EXPECT_FALSE(fs::exists(at(fmt::format("after_{}.npz", t))));
  }
}

// Trainers that feed the same batch for ever.
TEST_F(HybridJobs, ATrainerThatIsStoppedEndsTheJob) {
  for (const int signal : {SIGSTOP, SIGTERM}) {
    SCOPED_TRACE(signal);
    servers_.clear();
    trainers_.clear();
    transpile_hybrid("job", split(spawn::free_endpoints(2)));
    write("own0.npz", *io::npz_bytes(ctr_job::feeds_of(0, 0)));
    write("own1.npz", *io::npz_bytes(ctr_job::feeds_of(1, 0)));
    const Words endless{"--steps", "100000000", "--print-period", "10", "--wait-ms", "1000"};
    start_all(0, {endless, endless});
    EXPECT_TRUE(trainers_[1]->has_written("step 100", kTimeoutMs)) << trainers_[1]->output();
    trainers_[1]->signal(signal);
    EXPECT_EQ(trainers_[0]->wait(kTimeoutMs), 5) << trainers_[0]->output();
    // by the group of trainers, or by a server where it waits there for the rows of the other
    EXPECT_THAT(trainers_[0]->output(), AnyOf(HasSubstr("rank 1"), HasSubstr("trainer 1")));
    for (const auto& server : servers_) EXPECT_EQ(server->wait(kTimeoutMs), 5) << server->output();
    const int ended = trainers_[1]->wait(signal == SIGTERM ? kTimeoutMs : 0);
    EXPECT_EQ(ended, signal == SIGTERM ? 128 + SIGTERM : -1) << trainers_[1]->output();
  }
}

TEST_F(HybridJobs, TrainersMeetInAFolder) {
  transpile_hybrid("job", split(spawn::free_endpoints(2)));
  write_feeds_of_ranks(3);
  const Words meet{"--rendezvous", at("meet")};
  start_all(3, {meet, meet}, {}, false);
  for (const Processes* const all : {&trainers_, &servers_}) {
    for (const auto& process : *all) EXPECT_EQ(process->wait(kTimeoutMs), 0) << process->output();
  }
  EXPECT_EQ(floats_in(at("after_0.npz")), floats_in(at("after_1.npz")));
}

TEST_F(HybridJobs, ATrainerThatNeverComesIsNamed) {
  transpile_hybrid("job", split(spawn::free_endpoints(2)));
  write_feeds_of_ranks(3);
  start_all(3, {{"--join-ms", "1000"}, {"--kill-point", "trainer/before-lookup"}});
  trainers_[1].reset();
  EXPECT_EQ(trainers_[0]->wait(kTimeoutMs), 5) << trainers_[0]->output();
  EXPECT_THAT(trainers_[0]->output(), HasSubstr("rank 1"));
}

TEST_F(HybridJobs, TrainersThatDoNotFitAreRefused) {
  transpile_hybrid("job", split(spawn::free_endpoints(2)));
  write_feeds_of_ranks(6);
  // another number of steps
  start_all(6, {{}, {"--max-steps", "4"}});
  for (const auto& trainer : trainers_) {
    EXPECT_NE(trainer->wait(kTimeoutMs), 0);
    EXPECT_THAT(trainer->output(), HasSubstr("ranks have 4 to 6 steps"));
  }
  // no endpoints
  expect_refused("run-program",
                 {"--role", "trainer", "--transpiled", at("job"), "--feed-steps", at("own0.npz")},
                 2, "need the endpoints of all 2, found 0");
}

TEST_F(HybridJobs, WhatCannotBeCombinedIsRefusedByName) {
  transpile_hybrid("job", kTwoServers);
  write_feeds_of_ranks(2);
  const std::string server = at("job/pserver_0/__model__");
  const std::string ends = spawn::free_endpoints(2);
  const Words trainer{"--role",       "trainer",      "--transpiled", at("job"),
                      "--feed-steps", at("own0.npz"), "--endpoints",  ends};
  expect_refused(
      "pserver",
      {"--program", server, "--snapshot-dir", at("snapshots"), "--snapshot-interval-ms", "100"}, 7,
      "--snapshot-interval-ms with dense_gradients all_reduce");
  expect_refused("pserver", {"--program", server, "--snapshot-dir", at("snapshots")}, 3,
                 "expected --snapshot-every, the steps between snapshots");
  transpile_hybrid("other", kTwoServers, "async");
  expect_refused("pserver",
                 {"--program", at("other/pserver_0/__model__"), "--snapshot-dir", at("snapshots"),
                  "--snapshot-every", "2"},
                 7, "--snapshot-dir with dense_gradients all_reduce in an asynchronous job");
  expect_refused("pserver", {"--program", server, "--elastic"}, 7,
                 "--elastic with dense_gradients all_reduce");
  expect_refused("run-program", joined(trainer, {"--worker-threads", "2"}), 7,
                 "--worker-threads above 1");
}

TEST_F(HybridJobs, ValuesBetweenTrainersAreNotEncrypted) {
  transpile_hybrid("job", kTwoServers);
  const std::string make =
      "cd " + folder_.path() +
      " && openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 "
      "-subj /CN=job -keyout key.pem -out cert.pem && cp cert.pem ca.pem";
  if (spawn::Process({"sh", "-c", make}).wait(kTimeoutMs) != 0)
    GTEST_SKIP() << "openssl cannot make certificates here";
  for (const std::string engine : {"auto", "gloo"})
    expect_refused("run-program",
                   {"--role", "trainer", "--transpiled", at("job"), "--endpoints",
                    spawn::free_endpoints(2), "--tls-dir", folder_.path(), "--engine", engine},
                   7, "TLS between trainers");
}

TEST_F(HybridJobs, FeedsOfWhatAllTrainersShareAreRefused) {
  transpile_hybrid("job", kTwoServers);
  for (const std::string name : {"learning_rate_0", "fc_1.b_0"}) {
    write_feeds(0, 2);
    NamedValues feeds = *io::read_values(at("feeds.npz"));
    auto& fed = feeds["t0/step1/" + name].as<Tensor>();
    check(fed.resize(DType::kFloat32, {name[0] == 'l' ? 1 : 2}));
    std::fill_n(fed.data<float>(), fed.numel(), 0.5F);
    write("feeds.npz", *io::npz_bytes(feeds));
    const Ended ended = run("run-program", cluster("job", 2, "out.npz"));
    EXPECT_NE(ended.code, 0);
    EXPECT_THAT(ended.output, HasSubstr("must have the same '" + name + "'"));
  }
}

// A half of one run would be trained with a half of another.
TEST_F(HybridJobs, BothHalvesAreLoadedOrNone) {
  transpile_hybrid("job", split(spawn::free_endpoints(2)));
  write_feeds_of_ranks(3);
  succeed("run-program", joined(cluster("job", 3, "first.npz"),
                                {"--allow-dir", folder_.path(), "--save-params", at("saved")}));
  const Words params{"--params", at("saved")};
  start_all(3, {params, params});
  for (const auto& trainer : trainers_) {
    EXPECT_NE(trainer->wait(kTimeoutMs), 0);
    EXPECT_THAT(trainer->output(), HasSubstr("trainer 0 has loaded parameters of a saved job"));
  }
}

TEST_F(HybridJobs, OptionsOfRanksAreForSuchJobsOnly) {
  const std::string list = spawn::free_endpoints(2);
  transpile("job", "sync", split(list));
  write_feeds_of_ranks(2);
  succeed("launch", launched(list, 2, {"--engine", "gloo", "--wait-ms", "5000"}));
  const std::string log = millrace::testing::bytes_of(at("logs/trainer.0.log"));
  EXPECT_THAT(log, HasSubstr("--engine has no effect"));
  EXPECT_THAT(log, HasSubstr("--wait-ms has no effect"));
}

// The example of docs/fleet.md, with other ports and the names of this program.
TEST_F(HybridJobs, TheExampleOfThePageRuns) {
  const std::string page = millrace::testing::bytes_of("docs/fleet.md");
  const size_t section = page.find("\n## Hybrid jobs");
  ASSERT_NE(section, std::string::npos);
  const size_t begin = page.find("```sh\n", section) + 6;
  std::string script = page.substr(begin, page.find("```", begin) - begin);
  const std::vector<std::string> ends = split(spawn::free_endpoints(2));
  const auto put = [&](const std::string& from, const std::string& to) {
    size_t at = script.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    for (; at != std::string::npos; at = script.find(from, at + to.size()))
      script.replace(at, from.size(), to);
  };
  put("127.0.0.1:6174", ends[0]);
  put("127.0.0.1:6175", ends[1]);
  put("--fetch loss", "--fetch " + ctr_job::loss_name());
  write_configs("sync", ends);  // min.json
  write_feeds_of_ranks(10);
  for (int t = 0; t < kWorkers; ++t)
    fs::rename(at(fmt::format("own{}.npz", t)), at(fmt::format("feeds.{}.npz", t)));
  for (const std::string name : {"main", "startup"})
    fs::copy_file(std::string(ctr_job::kFolder) + "origin_" + name + ".pb", at(name + ".pb"));
  const std::string bin = fs::absolute(spawn::tool("launch")).parent_path();
  spawn::Process shell(
      {"sh", "-ec", "cd " + folder_.path() + "\nPATH=" + bin + ":$PATH\n" + script});
  EXPECT_EQ(shell.wait(kTimeoutMs), 0) << shell.output();
  EXPECT_TRUE(fs::exists(at("saved.manifest.json")));
  EXPECT_TRUE(fs::exists(at("saved/fc_0.w_0")));
  EXPECT_TRUE(fs::exists(at("saved/000/part-001.rows")));
}

}  // namespace
}  // namespace millrace::tools

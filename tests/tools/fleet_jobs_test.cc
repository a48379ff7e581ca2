// Folders of transpile-program --fleet run by the tools: the same bits as by fleet::Fleet, in one
// process and in several; saved, loaded and served; and errors are reported.

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <thread>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/npz.h"
#include "ps/transport/inproc.h"
#include "tests/fleet/ctr_job.h"
#include "tests/support/process.h"
#include "tests/tools/ctr_folder.h"

namespace millrace::tools {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class FleetJobs : public CtrFolder {
 protected:
  // A trainer of "job" for five steps, with separate feeds.
  [[nodiscard]] Words trainer(int t, const Words& more) const {
    return joined(
        {spawn::tool("run-program"), "--role", "trainer", "--trainer-id", std::to_string(t),
         "--transpiled", at("job"), "--feed-steps", at(fmt::format("feeds_{}.npz", t)), "--steps",
         "5", "--save-persistables", at(fmt::format("after_{}.npz", t))},
        more);
  }
};

// The same job by fleet::Fleet: members "tT/stepK/<loss>", and the final dense parameters and rows
// by name.
Arrays train_by_fleet(int steps, const std::vector<std::string>& servers, Arrays& after) {
  Arrays losses;
  const auto way = std::make_shared<ps::InprocTransport>();
  std::mutex mutex;
  std::vector<std::thread> threads;
  for (int i = 0; i < static_cast<int>(servers.size()); ++i) {
    threads.emplace_back([&, i] {
      fleet::Fleet fleet;
      ctr_job::prepare(fleet, ctr_job::role_of(fleet::Role::kServer, i, servers), true, Adam{});
      check(fleet.init_server());
      check(fleet.run_server(*way));
    });
  }
  for (int worker = 0; worker < kWorkers; ++worker) {
    threads.emplace_back([&, worker] {
      fleet::Fleet fleet;
      ctr_job::prepare(fleet, ctr_job::role_of(fleet::Role::kWorker, worker, servers), true,
                       Adam{});
      check(fleet.init_worker(way));
      const std::string loss = ctr_job::loss_name();
      for (int step = 0; step < steps; ++step) {
        std::vector<Value> results(1);
        check(fleet.step(ctr_job::feeds_of(worker, step), {loss}, results));
        const std::lock_guard lock(mutex);
        losses[fmt::format("t{}/step{}/{}", worker, step, loss)] = floats_of(results[0]);
      }
      check(fleet.worker()->wait_for_all());
      if (worker == 0) {
        for (const std::string name : {"fc_0.w_0", "fc_0.b_0", "fc_1.w_0", "fc_1.b_0"})
          after[name] = floats_of(*fleet.worker()->scope().find(name));
        const auto& entry = fleet.worker()->tables()->all().begin()->second;
        after["emb"] = floats_of(*fleet.worker()->tables()->gather(entry));
      }
      check(fleet.stop_worker());
    });
  }
  for (std::thread& thread : threads) thread.join();
  return losses;
}

TEST_F(FleetJobs, ASynchronousJobInOneProcessHasTheBitsOfFleet) {
  const std::vector<std::string> servers{"127.0.0.1:7200", "127.0.0.1:7201"};
  transpile("job", "sync", servers);
  write_feeds(0, 5);
  succeed("run-program",
          joined(cluster("job", 5, "out.npz"), {"--save-persistables", at("after.npz")}));
  Arrays after;
  const Arrays losses = train_by_fleet(5, servers, after);
  EXPECT_EQ(losses.size(), 10U);
  EXPECT_EQ(floats_in(at("out.npz")), losses);
  EXPECT_EQ(floats_in(at("after.npz")), after);
}

TEST_F(FleetJobs, AndSoHasOneOfSeveralProcesses) {
  const std::string list = spawn::free_endpoints(2);
  const std::vector<std::string> servers{list.substr(0, list.find(',')),
                                         list.substr(list.find(',') + 1)};
  transpile("job", "sync", servers);
  write_feeds(0, 5);
  std::vector<std::unique_ptr<spawn::Process>> processes;
  for (int i = 0; i < 2; ++i)
    processes.push_back(std::make_unique<spawn::Process>(Words{
        spawn::tool("pserver"), "--program", at(fmt::format("job/pserver_{}/__model__", i))}));
  for (int t = 0; t < kWorkers; ++t) {
    Words words = trainer(t, {"--fetch", ctr_job::loss_name(), "--output",
                              at(fmt::format("out_{}.npz", t)), "--threads", "1"});
    if (t == 0) words = joined(words, {"--stats", at("stats.json")});
    processes.push_back(std::make_unique<spawn::Process>(words));
  }
  for (const auto& process : processes)
    EXPECT_EQ(process->wait(kTimeoutMs), 0) << process->output();
  Arrays after;
  const Arrays losses = train_by_fleet(5, servers, after);
  for (const int t : {0, 1}) {
    Arrays own;
    for (auto& [name, value] : floats_in(at(fmt::format("out_{}.npz", t))))
      own[fmt::format("t{}/", t) + name] = value;
    for (const auto& [name, value] : own) EXPECT_EQ(value, losses.at(name)) << name;
    EXPECT_EQ(own.size(), 5U);
    EXPECT_EQ(floats_in(at(fmt::format("after_{}.npz", t))), after);
  }
  EXPECT_THAT(testing::bytes_of(at("stats.json")), HasSubstr("\"steps\": 5"));
}

TEST_F(FleetJobs, LaunchStartsAnAsynchronousOne) {
  const std::string list = spawn::free_endpoints(2);
  transpile("job", "async", {list.substr(0, list.find(',')), list.substr(list.find(',') + 1)});
  write_feeds(0, 40);
  for (int t = 0; t < kWorkers; ++t)
    fs::rename(at(fmt::format("feeds_{}.npz", t)), at(fmt::format("own{}.npz", t)));
  succeed("launch", joined(launched_trainers(list, at("logs"), at("job"), at("own{rank}.npz"), 40,
                                             ctr_job::loss_name()),
                           {"--save-persistables", at("after{rank}.npz"), "--stats",
                            at("stats{rank}.json")}));
  EXPECT_THAT(testing::bytes_of(at("stats1.json")), HasSubstr("\"steps\": 40"));
  EXPECT_EQ(floats_in(at("after0.npz")).size(), 5U);
}

TEST_F(FleetJobs, SavedAndGoneOnWithItEndsWithTheSameBits) {
  transpile("job", "sync", {"127.0.0.1:7200", "127.0.0.1:7201"});
  write_feeds(0, 6);
  succeed("run-program",
          joined(cluster("job", 6, "whole.npz"), {"--save-persistables", at("whole_after.npz")}));
  write_feeds(0, 3);
  const Words save{"--allow-dir", folder_.path(), "--save-params", at("saved")};
  succeed("run-program", joined(cluster("job", 3, "first.npz"), save));
  EXPECT_TRUE(fs::exists(at("saved.manifest.json")));
  EXPECT_EQ(
      run("run-program", joined(cluster("job", 3, "first.npz"), {"--save-params", at("other")}))
          .code,
      3);  // no folder is allowed
  write_feeds(3, 6);
  const Arrays whole = floats_in(at("whole.npz"));
  for (const int servers : {2, 3}) {
    std::vector<std::string> endpoints;
    for (int i = 0; i < servers; ++i) endpoints.push_back(fmt::format("127.0.0.1:{}", 7300 + i));
    transpile("later", "sync", endpoints);
    succeed("run-program",
            joined(cluster("later", 3, "later.npz"),
                   {"--params", at("saved"), "--save-persistables", at("later_after.npz")}));
    const Arrays later = floats_in(at("later.npz"));
    EXPECT_EQ(later.size(), 6U);
    for (const auto& [name, value] : later) {
      std::string then = name;
      then[name.find("step") + 4] = static_cast<char>(name[name.find("step") + 4] + 3);
      EXPECT_EQ(value, whole.at(then)) << name << " " << servers;
    }
    EXPECT_EQ(floats_in(at("later_after.npz")), floats_in(at("whole_after.npz"))) << servers;
  }
}

std::string halved_rate() {
  return fmt::format(R"({{"losses": ["{}"], "optimizer": [{{"type": "sgd", "schedule": {{
                     "type": "exponential", "learning_rate": 0.5, "decay_steps": 1,
                     "decay_rate": 0.5}}}}]}})",
                     ctr_job::loss_name());
}

// A scheduler object, whose steps the trainer counts.
std::string stepped_rate() {
  return fmt::format(R"({{"losses": ["{}"], "optimizer": [{{"type": "sgd", "schedule": {{
                     "type": "exponential_scheduler", "learning_rate": 0.5, "gamma": 0.25}}}}]}})",
                     ctr_job::loss_name());
}

// The counter of the schedule is saved with the job, in ordinary and in hybrid ones.
TEST_F(FleetJobs, ASavedScheduleContinues) {
  for (const std::string more : {"", R"(, "dense_gradients": "all_reduce")"}) {
    SCOPED_TRACE(more);
    write_configs("sync", {"127.0.0.1:7200", "127.0.0.1:7201"}, kWorkers, more);
    write("min.json", halved_rate());
    transpile_configured("job");
    write_feeds(0, 4);
    succeed("run-program", cluster("job", 4, "whole.npz"));
    write_feeds(0, 2);
    succeed("run-program", joined(cluster("job", 2, "first.npz"),
                                  {"--allow-dir", folder_.path(), "--save-params", at("saved")}));
    write_feeds(2, 4);
    succeed("run-program", joined(cluster("job", 2, "later.npz"), {"--params", at("saved")}));
    const Arrays whole = floats_in(at("whole.npz"));
    const Arrays later = floats_in(at("later.npz"));
    // the rate of step 2 makes the loss of step 3
    for (const int step : {2, 3}) {
      const auto name = [](int k) { return fmt::format("t1/step{}/{}", k, ctr_job::loss_name()); };
      EXPECT_EQ(later.at(name(step - 2)), whole.at(name(step))) << step;
    }
  }
}

// Trainers hold the counter, so that servers alone cannot continue the schedule.
TEST_F(FleetJobs, AScheduleThatOnlyServersContinueIsWarnedOf) {
  const std::string list = spawn::free_endpoints(2);
  write_configs("sync", {list.substr(0, list.find(',')), list.substr(list.find(',') + 1)}, kWorkers,
                "");
  write_feeds(0, 5);
  const std::string trained = "the servers have loaded a saved job, this trainer has not";
  for (const std::string& rate : {halved_rate(), stepped_rate()}) {
    write("min.json", rate);
    transpile_configured("job");
    succeed("run-program", joined(cluster("job", 5, "first.npz"),
                                  {"--allow-dir", folder_.path(), "--save-params", at("saved")}));
    for (const bool both : {false, true}) {
      std::vector<std::unique_ptr<spawn::Process>> processes;
      for (int i = 0; i < 2; ++i)
        processes.push_back(std::make_unique<spawn::Process>(
            Words{spawn::tool("pserver"), "--program",
                  at(fmt::format("job/pserver_{}/__model__", i)), "--params", at("saved")}));
      for (int t = 0; t < kWorkers; ++t)
        processes.push_back(std::make_unique<spawn::Process>(
            trainer(t, joined({"--force"}, both ? Words{"--params", at("saved")} : Words{}))));
      for (const auto& process : processes)
        EXPECT_EQ(process->wait(kTimeoutMs), 0) << process->output();
      for (size_t t = 2; t < processes.size(); ++t) {
        if (both)
          EXPECT_THAT(processes[t]->output(), Not(HasSubstr(trained)));
        else
          EXPECT_THAT(processes[t]->output(), HasSubstr(trained));
      }
    }
  }
}

// The file beside the folder says how far schedule.json is.
TEST_F(FleetJobs, ASavedScheduleOfSchedulerObjectsContinues) {
  const Words saves{"--allow-dir", folder_.path(), "--save-params", at("saved")};
  for (const std::string more : {"", R"(, "dense_gradients": "all_reduce")"}) {
    SCOPED_TRACE(more);
    write_configs("sync", {"127.0.0.1:7200", "127.0.0.1:7201"}, kWorkers, more);
    write("min.json", stepped_rate());
    transpile_configured("job");
    write_feeds(0, 6);
    succeed("run-program", cluster("job", 6, "whole.npz"));
    const Arrays whole = floats_in(at("whole.npz"));
    write_feeds(0, 2);
    succeed("run-program", joined(cluster("job", 2, "first.npz"), saves));
    for (const int begin : {2, 4}) {
      write_feeds(begin, begin + 2);
      succeed("run-program",
              joined(joined(cluster("job", 2, "later.npz"), saves), {"--params", at("saved")}));
      const Arrays later = floats_in(at("later.npz"));
      for (const int step : {0, 1}) {
        const auto name = [](int k) {
          return fmt::format("t0/step{}/{}", k, ctr_job::loss_name());
        };
        EXPECT_EQ(later.at(name(step)), whole.at(name(begin + step))) << begin + step;
      }
    }
  }
  EXPECT_EQ(millrace::testing::bytes_of(at("saved.schedule.json")), "{\"steps\": 6}\n");
  write("saved.schedule.json", "{\"steps\": -1}");
  Words again = joined(cluster("job", 1, "later.npz"), {"--params", at("saved")});
  std::erase(again, "-q");
  const Ended refused = run("run-program", again);
  EXPECT_NE(refused.code, 0);
  EXPECT_THAT(refused.output, HasSubstr("'steps': expected 0 or more, found -1"));
  fs::remove(at("saved.schedule.json"));
  const Ended warned = run("run-program", again);
  EXPECT_EQ(warned.code, 0);
  EXPECT_THAT(warned.output, HasSubstr("schedule.json begins with the first step"));
}

TEST_F(FleetJobs, WholeVarsGiveEveryoneItsPart) {
  transpile("job", "sync", {"127.0.0.1:7200", "127.0.0.1:7201"});
  write_feeds(0, 3);
  succeed("run-program",
          joined(cluster("job", 3, "out.npz"), {"--save-persistables", at("after.npz")}));
  write_feeds(0, 1);
  // a step of rate 0 would not change them; here the loss of the first step shows the initial
  // values
  succeed("run-program", joined(cluster("job", 1, "later.npz"), {"--params", at("after.npz")}));
  NamedValues feeds = ctr_job::feeds_of(1, 0);
  write("one.npz", *io::npz_bytes(feeds));
  succeed("run-program", {"--program", std::string(ctr_job::kFolder) + "origin_main.pb", "--params",
                          at("after.npz"), "--feed", at("one.npz"), "--fetch", ctr_job::loss_name(),
                          "--output", at("alone.npz"), "--threads", "1"});
  EXPECT_EQ(floats_in(at("later.npz")).at("t1/step0/" + ctr_job::loss_name()),
            floats_in(at("alone.npz")).at(ctr_job::loss_name()));
}

TEST_F(FleetJobs, TheModelThatIsSavedIsServed) {
  transpile("job", "sync", {"127.0.0.1:7200", "127.0.0.1:7201"});
  write_feeds(0, 4);
  const std::string main = std::string(ctr_job::kFolder) + "origin_main.pb";
  succeed("run-program", joined(cluster("job", 4, "out.npz"),
                                {"--save-persistables", at("after.npz"), "--save-model",
                                 at("model"), "--model-program", main, "--model-feeds",
                                 "emb_slot0,emb_slot1,dense", "--model-fetches", kFetch}));
  EXPECT_THAT(millrace::testing::names_in(at("model")),
              ElementsAre("__model__", "emb", "fc_0.b_0", "fc_0.w_0", "fc_1.b_0", "fc_1.w_0"));
  NamedValues feeds = ctr_job::feeds_of(0, 9);
  write("one.npz", *io::npz_bytes(feeds));
  succeed("run-program", {"--model-dir", at("model"), "--feed", at("one.npz"), "--output",
                          at("served.npz"), "--threads", "1"});
  succeed("run-program", {"--program", main, "--params", at("after.npz"), "--feed", at("one.npz"),
                          "--fetch", kFetch, "--output", at("alone.npz"), "--threads", "1"});
  const Arrays served = floats_in(at("served.npz"));
  EXPECT_EQ(served.size(), 1U);
  EXPECT_EQ(served, floats_in(at("alone.npz")));
}

// Trainers of a geo job train locally; they send their differences to the servers after every
// second step.
TEST_F(FleetJobs, AGeoJobIsSavedServedAndGoesOn) {
  const std::string k_steps = R"(, "a_sync_configs": {"k_steps": 2})";
  transpile("job", "geo", {"127.0.0.1:7200", "127.0.0.1:7201"}, kWorkers, k_steps);
  write_feeds(0, 40);
  const std::string main = std::string(ctr_job::kFolder) + "origin_main.pb";
  succeed("run-program",
          joined(cluster("job", 40, "out.npz"),
                 {"--allow-dir", folder_.path(), "--save-persistables", at("after.npz"),
                  "--save-params", at("saved"), "--save-model", at("model"), "--model-program",
                  main, "--model-feeds", "emb_slot0,emb_slot1,dense", "--model-fetches", kFetch}));
  const Arrays losses = floats_in(at("out.npz"));
  const std::string loss = ctr_job::loss_name();
  for (const int t : {0, 1})
    EXPECT_LT(losses.at(fmt::format("t{}/step39/{}", t, loss))[0],
              0.5F * losses.at(fmt::format("t{}/step0/{}", t, loss))[0]);
  write("one.npz", *io::npz_bytes(ctr_job::feeds_of(1, 0)));
  succeed("run-program", {"--model-dir", at("model"), "--feed", at("one.npz"), "--output",
                          at("served.npz"), "--threads", "1"});
  succeed("run-program",
          {"--program", main, "--params", at("after.npz"), "--feed", at("one.npz"), "--fetch",
           kFetch + std::string(",") + loss, "--output", at("alone.npz"), "--threads", "1"});
  const Arrays alone = floats_in(at("alone.npz"));
  EXPECT_EQ(floats_in(at("served.npz")).at(kFetch), alone.at(kFetch));
  // the servers, in another number, and their trainers start from the saved values
  transpile("later", "geo", {"127.0.0.1:7300", "127.0.0.1:7301", "127.0.0.1:7302"}, kWorkers,
            k_steps);
  write_feeds(0, 1);
  succeed("run-program", joined(cluster("later", 1, "later.npz"), {"--params", at("saved")}));
  EXPECT_EQ(floats_in(at("later.npz")).at("t1/step0/" + loss), alone.at(loss));
}

TEST_F(FleetJobs, ARateFollowsItsSchedule) {
  const auto transpile_stepped = [&](const std::string& out, const std::string& schedule) {
    write_configs("sync", {"127.0.0.1:7200", "127.0.0.1:7201"});
    write("min.json",
          fmt::format(R"({{"losses": ["{}"], "optimizer": [{{"type": "sgd", "schedule": {}}}]}})",
                      ctr_job::loss_name(), schedule));
    transpile_configured(out);
  };
  const auto trained = [&](const std::string& job, int steps) {
    succeed("run-program",
            joined(cluster(job, steps, "out.npz"), {"--save-persistables", at("after.npz")}));
    return floats_in(at("after.npz"));
  };
  write_feeds(0, 4);
  transpile_stepped("noam", R"({"type": "noam_scheduler", "d_model": 4, "warmup_steps": 2})");
  const Arrays one = trained("noam", 1);
  EXPECT_NE(trained("noam", 2).at("fc_0.w_0"), one.at("fc_0.w_0"));

  transpile_stepped("job",
                    R"({"type": "exponential_scheduler", "learning_rate": 0.5, "gamma": 0.25})");
  const Arrays stepped = trained("job", 4);
  // The same rates as feeds.
  for (const int t : {0, 1}) fs::remove(at(fmt::format("job/trainer_{}/schedule.json", t)));
  const Ended ended =
      run("run-program", joined(cluster("job", 4, "out.npz"), {"--deadline-ms", "1000"}));
  EXPECT_NE(ended.code, 0);
  EXPECT_THAT(ended.output,
              HasSubstr("the learning rate 'learning_rate_0' must be set in every step"));
  NamedValues feeds = *io::read_values(at("feeds.npz"));
  for (int t = 0; t < kWorkers; ++t) {
    for (int step = 0; step < 4; ++step) {
      auto& rate = feeds[fmt::format("t{}/step{}/learning_rate_0", t, step)].as<Tensor>();
      check(rate.resize(DType::kFloat32, {1}));
      *rate.data<float>() = static_cast<float>(0.5 * std::pow(0.25, step));
    }
  }
  write("feeds.npz", *io::npz_bytes(feeds));
  EXPECT_EQ(trained("job", 4), stepped);
}

// 1000 rows of 8 weights and 5 statistics are shared equally, and so are 122 dense parameters.
TEST_F(FleetJobs, APageShowsWhatItsServersHold) {
  transpile("job", "sync", {"127.0.0.1:7200", "127.0.0.1:7201"});
  write_feeds(0, 3);
  succeed("run-program", joined(cluster("job", 3, "out.npz"), {"--report", at("page.html")}));
  const std::string page = testing::bytes_of(at("page.html"));
  EXPECT_THAT(page, HasSubstr("<b>2 x 2</b><span>trainers x servers"));
  EXPECT_THAT(page, HasSubstr("<th>tables</th>"));
  EXPECT_THAT(page, HasSubstr("<tr><td>127.0.0.1:7201</td><td>2</td>"));
  EXPECT_THAT(page, HasSubstr("Loss, mean of the trainers"));
}

TEST_F(FleetJobs, WhatIsNotThereIsRefusedByName) {
  transpile("job", "sync", {"127.0.0.1:7200"});
  write_feeds(0, 1);
  const std::string server = at("job/pserver_0/__model__");
  const std::string trainer = at("job/trainer_1/__model__");
  struct Case {
    std::string tool;
    Words words;
    int code;
    std::string said;
  };
  const std::vector<Case> cases{
      {"run-program",
       {"--role", "trainer", "--program", trainer},
       2,
       "trainer 0: found the folder of trainer 1"},
      {"run-program",
       {"--role", "trainer", "--program", server},
       2,
       "trainer 0: found the folder of server 0"},
      {"pserver",
       {"--program", trainer},
       2,
       "expected the folder of a server, found that of a trainer"},
      {"run-program",
       {"--role", "trainer", "--transpiled", at("job"), "--worker-threads", "2"},
       7,
       "--worker-threads above 1 in a synchronous fleet job"},
      {"run-program", joined(cluster("job", 1, "out.npz"), {"--save-model", at("model")}), 2,
       "--model-program"},
      {"run-program", {"--program", trainer, "--stats", at("stats.json")}, 2, "--stats"},
      {"run-program", {"--program", trainer, "--report", at("page.html")}, 2, "--report"},
      {"run-program",
       {"--role", "pserver", "--program", server, "--stats", at("stats.json")},
       2,
       "--stats: expected --role trainer"},
      {"run-program", joined(cluster("job", 1, "out.npz"), {"--role", "trainer"}), 2,
       "expected only one of --cluster and --role"},
      {"run-program", joined(cluster("job", 1, "out.npz"), {"--metrics", "7190"}), 2,
       "--metrics: expected a role of a job with servers"},
      {"pserver", {"--program", trainer, "--deadline-ms", "9"}, 2, "--deadline-ms has no effect"},
      {"pserver",
       {"--program", server, "--params", at("feeds.npz"), "--start-timeout-ms", "200",
        "--insecure-listen", "--endpoint", "127.0.0.1:0"},
       5,
       "trainer 0"},
      {"run-program",
       {"--role", "trainer", "--transpiled", at("job"), "--deadline-ms", "300",
        "--reconnect-timeout-ms", "100"},
       5,
       "127.0.0.1:7200"}};
  for (const Case& each : cases) {
    const Ended ended = run(each.tool, each.words);
    EXPECT_EQ(ended.code, each.code) << each.said << "\n" << ended.output;
    EXPECT_THAT(ended.output, HasSubstr(each.said));
  }
}

TEST_F(FleetJobs, ATrainerThatIsLostEndsTheJob) {
  const std::string server = spawn::free_endpoints(1);
  transpile("job", "sync", {server});
  write_feeds(0, 5);
  spawn::Process serving({spawn::tool("pserver"), "--program", at("job/pserver_0/__model__"),
                          "--silence-timeout-ms", "3000"});
  ASSERT_TRUE(serving.has_written("ready ", kTimeoutMs)) << serving.output();
  std::vector<std::unique_ptr<spawn::Process>> trainers;
  for (int t = 0; t < kWorkers; ++t) {
    Words words = trainer(t, {"--silence-timeout-ms", "3000", "--reconnect-timeout-ms", "500"});
    if (t == 0) words = joined(words, {"--kill-point", "trainer/before-complete"});
    trainers.push_back(std::make_unique<spawn::Process>(words));
  }
  // the other one waits until this one ends
  EXPECT_EQ(trainers[0]->wait(kTimeoutMs), 128 + SIGKILL) << trainers[0]->output();
  EXPECT_EQ(serving.wait(kTimeoutMs), 5) << serving.output();
  EXPECT_THAT(serving.output(), HasSubstr("trainer 0"));
  EXPECT_EQ(trainers[1]->wait(kTimeoutMs), 5) << trainers[1]->output();
  EXPECT_FALSE(fs::exists(at("after_1.npz")));
}

}  // namespace
}  // namespace millrace::tools

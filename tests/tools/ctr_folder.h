#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "executor/feed_values.h"
#include "io/npz.h"
#include "tests/fleet/ctr_job.h"
#include "tests/io/temp_folder.h"
#include "tests/support/process.h"

/// Helpers to run tools as processes on folders of the job of tests/fleet/ctr_job.h.
namespace millrace::tools {

namespace ctr_job = fleet::ctr_job;
using ctr_job::check;
using executor::NamedValues;
using Words = std::vector<std::string>;

inline constexpr int kWorkers = 2;
inline constexpr int kTimeoutMs = 60'000;
/// The prediction of the model, before softmax.
inline constexpr const char* kFetch = "fc_1.tmp_1";

struct Ended {
  int code = -1;
  std::string output;
};

inline Ended run(const std::string& name, const Words& words) {
  Words command{spawn::tool(name)};
  command.insert(command.end(), words.begin(), words.end());
  spawn::Process process(command);
  const int code = process.wait(kTimeoutMs);
  return {code, process.output()};
}

inline void succeed(const std::string& name, const Words& words) {
  const Ended ended = run(name, words);
  EXPECT_EQ(ended.code, 0) << name << " " << fmt::format("{}", fmt::join(words, " ")) << "\n"
                           << ended.output;
}

inline std::vector<float> floats_of(const Value& value) {
  const auto values = value.get_if<Tensor>()->values<float>();
  return {values.begin(), values.end()};
}

using Arrays = std::map<std::string, std::vector<float>>;

inline Arrays floats_in(const std::string& path) {
  Arrays arrays;
  const auto values = io::read_values(path);
  EXPECT_TRUE(values.ok()) << values.status().to_string();
  if (!values.ok()) return arrays;
  for (const auto& [name, value] : *values) arrays[name] = floats_of(value);
  return arrays;
}

inline Words joined(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

/// The words after `launch` that start the trainers of a job on these servers; {rank} in paths is
/// that of the trainer.
inline Words launched_trainers(const std::string& servers, const std::string& logs,
                               const std::string& job, const std::string& feeds, int steps,
                               const std::string& loss) {
  return {"--servers",
          servers,
          "--trainer_num",
          "2",
          "--log_dir",
          logs,
          "--",
          spawn::tool("run-program"),
          "--role",
          "auto",
          "--transpiled",
          job,
          "--feed-steps",
          feeds,
          "--steps",
          std::to_string(steps),
          "--fetch",
          loss};
}

class CtrFolder : public ::testing::Test {
 protected:
  [[nodiscard]] std::string at(const std::string& name) const { return folder_ / name; }

  // The files of --minimize and --fleet.
  void write_configs(const std::string& mode, const std::vector<std::string>& servers,
                     int workers = kWorkers, const std::string& more = "") const {
    write("min.json", fmt::format(R"({{"losses": ["{}"], "optimizer": [{{"type": "adam",
                                  "learning_rate": 0.1}}]}})",
                                  ctr_job::loss_name()));
    write("fleet.json", fmt::format(R"({{"mode": "{}", "pservers": "{}", "trainers": {}{}}})", mode,
                                    fmt::join(servers, ","), workers, more));
  }
  // Writes a fleet job into a folder.
  void transpile(const std::string& out, const std::string& mode,
                 const std::vector<std::string>& servers, int workers = kWorkers,
                 const std::string& more = "") const {
    write_configs(mode, servers, workers, more);
    transpile_configured(out);
  }
  // The same with the files that write_configs() has written.
  void transpile_configured(const std::string& out) const {
    succeed("transpile-program",
            {"--program", std::string(ctr_job::kFolder) + "origin_main.pb", "--startup",
             std::string(ctr_job::kFolder) + "origin_startup.pb", "--minimize", at("min.json"),
             "--fleet", at("fleet.json"), "-o", at(out), "--force", "-q"});
  }
  void write(const std::string& name, const std::string& bytes) const {
    check(write_file_atomically(at(name), bytes, Replace::kYes));
  }
  // Feeds of steps [begin, end) as step0, ...; of all workers with prefixes, and of each worker
  // separately.
  void write_feeds(int begin, int end) const {
    NamedValues all;
    for (int worker = 0; worker < kWorkers; ++worker) {
      NamedValues own;
      for (int step = begin; step < end; ++step) {
        for (auto& [name, value] : ctr_job::feeds_of(worker, step)) {
          const std::string member = fmt::format("step{}/{}", step - begin, name);
          check(executor::copy_value(value, own[member]));
          all[fmt::format("t{}/", worker) + member] = std::move(value);
        }
      }
      write(fmt::format("feeds_{}.npz", worker), *io::npz_bytes(own));
    }
    write("feeds.npz", *io::npz_bytes(all));
  }
  [[nodiscard]] Words cluster(const std::string& job, int steps, const std::string& out) const {
    return {"--cluster",    "inproc",
            "--transpiled", at(job),
            "--feed-steps", at("feeds.npz"),
            "--steps",      std::to_string(steps),
            "--fetch",      ctr_job::loss_name(),
            "--output",     at(out),
            "--threads",    "1",
            "--force",      "-q"};
  }

  testing::TempFolder folder_;
};

}  // namespace millrace::tools

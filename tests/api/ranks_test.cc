// Ranks of collective training by the installed library: programs with collective ops, and programs
// that devices of several ranks train together, end with the values of one process.

#include <functional>
#include <thread>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/dataset.h"
#include "api/executor.h"
#include "api/parallel_executor.h"
#include "api/training.h"
#include "fleet/launch/free_ports.h"
#include "framework/program.h"
#include "tests/api/nets.h"
#include "tests/io/temp_folder.h"
#include "transpiler/distribute_transpiler.h"

namespace millrace::api {
namespace ranks_test {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using testing::TempFolder;

constexpr int kRanks = 2;
constexpr int kStepsOfRanks = 5;

// Rows of some ranks, 4 for each.
Arrays rows_of(int step, int first, int count) {
  const Arrays all = batch(step, 4 * kRanks);
  Arrays feeds;
  for (const auto& [name, array] : all) {
    const auto values = array.values<float>();
    const auto width = static_cast<size_t>(array.dims[1]);
    const auto from = values.begin() + static_cast<std::ptrdiff_t>(4 * width) * first;
    const auto to = from + static_cast<std::ptrdiff_t>(4 * width) * count;
    feeds[name] = Array::of<float>({4 * count, array.dims[1]}, std::vector<float>(from, to));
  }
  return feeds;
}

std::vector<std::string> free_endpoints() {
  std::vector<std::string> endpoints;
  for (const int port : value_of(fleet::free_ports(kRanks)))
    endpoints.push_back(fmt::format("127.0.0.1:{}", port));
  return endpoints;
}

// Runs the work of each rank in a thread.
void run_ranks(const std::string& engine,
               const std::function<void(const Ranks& ranks, int rank)>& work) {
  const std::vector<std::string> endpoints = free_endpoints();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      const Ranks ranks =
          value_of(Ranks::open({.rank = rank, .endpoints = endpoints, .engine = engine}));
      EXPECT_EQ(ranks.rank(), rank);
      EXPECT_EQ(ranks.size(), kRanks);
      work(ranks, rank);
      check(ranks.barrier());
    });
  }
  for (std::thread& thread : threads) thread.join();
}

struct Programs {
  std::shared_ptr<const Program> main;
  std::shared_ptr<const Program> startup;
};

const MinimizeOptions kOptions{.method = Momentum{.momentum = 0.9}, .learning_rate = 0.05};

// The training program of a small network.
struct Training {
  Training() {
    const MinimizeResult made =
        value_of(minimize(net.net.main(), net.net.startup(), net.loss.name(), kOptions));
    programs = {made.main, made.startup};
    for (const auto& [param, grad] : made.param_grads) params.push_back(param);
  }
  [[nodiscard]] std::vector<float> params_in(const Scope& scope) const {
    std::vector<float> all;
    for (const std::string& name : params) {
      const Array array = value_of(scope.get(name));
      const auto values = array.values<float>();
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  }
  // Parameters of one process with the rows of all ranks.
  [[nodiscard]] std::vector<float> alone() const {
    Executor executor = value_of(Executor::create());
    const Scope scope;
    check(executor.run(*programs.startup, scope).status());
    for (int step = 0; step < kStepsOfRanks; ++step)
      check(executor.run(*programs.main, scope, rows_of(step, 0, kRanks)).status());
    return params_in(scope);
  }
  // With collective ops, for one of the ranks.
  [[nodiscard]] Programs collective(int rank) const {
    transpiler::DistributeTranspilerConfig config;
    config.mode = "collective";
    config.collective_mode = "grad_allreduce";
    transpiler::DistributeTranspiler transpiler(config);
    transpiler::TranspileArguments arguments;
    arguments.trainer_id = rank;
    arguments.trainers = "127.0.0.1:1,127.0.0.1:2";
    arguments.current_endpoint = fmt::format("127.0.0.1:{}", rank + 1);
    check(transpiler.transpile(*programs.main, *programs.startup, arguments));
    return {value_of(transpiler.get_trainer_program()),
            value_of(transpiler.get_trainer_startup_program())};
  }

  SmallNet net{/*dropout=*/false, /*trains=*/false};
  Programs programs;
  std::vector<std::string> params;
};

void expect_near(const std::vector<float>& found, const std::vector<float>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-6F) << i;
}

TEST(ApiRanks, ProgramsWithCollectiveOpsTrainLikeOneProcess) {
  const Training training;
  for (const char* const engine : {"auto", "shm", "gloo"}) {
    SCOPED_TRACE(engine);
    std::vector<std::vector<float>> params(kRanks);
    run_ranks(engine, [&](const Ranks& ranks, int rank) {
      const Programs own = training.collective(rank);
      Executor executor = value_of(Executor::create({.ranks = ranks}));
      const Scope scope;
      check(executor.run(*own.startup, scope).status());
      PreparedProgram prepared = value_of(executor.prepare(*own.main, scope));
      for (int step = 0; step < kStepsOfRanks; ++step)
        check(prepared.run(rows_of(step, rank, 1)).status());
      params[static_cast<size_t>(rank)] = training.params_in(scope);
    });
    EXPECT_EQ(params[0], params[1]);
    expect_near(params[0], training.alone());
  }
}

TEST(ApiRanks, DevicesOfAllRanksTrainLikeOneProcess) {
  const Training training;
  std::vector<std::vector<float>> params(kRanks);
  run_ranks("shm", [&](const Ranks& ranks, int rank) {
    // seeds of their own: all begin with the values of rank 0
    Executor executor = value_of(Executor::create({.ranks = ranks}));
    const Scope scope;
    check(executor.run(*training.programs.startup, scope).status());
    ParallelOptions options{.devices = 2, .loss_name = training.net.loss.name(), .ranks = ranks};
    options.build_strategy.num_trainers = kRanks;
    ParallelExecutor parallel =
        value_of(ParallelExecutor::create(*training.programs.main, scope, options));
    for (int step = 0; step < kStepsOfRanks; ++step)
      check(parallel.run(rows_of(step, rank, 1), {}).status());
    params[static_cast<size_t>(rank)] = training.params_in(scope);
  });
  EXPECT_EQ(params[0], params[1]);
  expect_near(params[0], training.alone());
}

TEST(ApiRanks, AnErrorOfOneRankEndsTheOthers) {
  const Training training;
  std::vector<Status> ends(kRanks);
  std::vector<Status> later(kRanks);
  const std::vector<std::string> endpoints = free_endpoints();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      const Ranks ranks = value_of(Ranks::open({.rank = rank, .endpoints = endpoints}));
      const Programs own = training.collective(rank);
      Executor executor = value_of(Executor::create({.ranks = ranks}));
      const Scope scope;
      check(executor.run(*own.startup, scope).status());
      PreparedProgram prepared = value_of(executor.prepare(*own.main, scope));
      const auto index = static_cast<size_t>(rank);
      ends[index] = prepared.run(rank == 1 ? Arrays() : rows_of(0, 0, 1)).status();
      later[index] = prepared.run(rows_of(0, rank, 1)).status();
      EXPECT_EQ(ranks.barrier().code(), StatusCode::kDistributed);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(ends[1].ok());
  EXPECT_EQ(ends[0].code(), StatusCode::kDistributed) << ends[0].to_string();
  EXPECT_THAT(ends[0].message(), HasSubstr("rank 1"));
  for (const Status& each : later) EXPECT_EQ(each.code(), StatusCode::kDistributed);
}

TEST(ApiRanks, EpochsHaveTheSameNumberOfBatches) {
  const TempFolder folder;
  const Training training;
  const auto examples = [&](int lines, bool in_memory) {
    std::string text;
    for (int i = 0; i < lines; ++i) text += fmt::format("3 0.1 0.2 {} 1 0.5\n", i % 3);
    const std::string file = folder / fmt::format("part-{}", lines);
    testing::put_file(file, text);
    Dataset data = value_of(Dataset::create(
        *training.programs.main,
        {.files = {file}, .use_vars = {"x", "t"}, .in_memory = in_memory, .batch_size = 4}));
    if (in_memory) check(data.load_into_memory());
    return data;
  };
  struct Case {
    int lines[kRanks];
    bool in_memory;
    int threads;
    StatusCode code;
  };
  for (const Case& each : {Case{{12, 11}, true, 1, StatusCode::kOk},
                           {{12, 13}, true, 1, StatusCode::kInvalidData},
                           {{12, 12}, false, 1, StatusCode::kUnimplemented},
                           {{12, 12}, true, 2, StatusCode::kUnimplemented}}) {
    SCOPED_TRACE(fmt::format("{} lines, {} threads", each.lines[1], each.threads));
    const std::vector<std::string> endpoints = free_endpoints();
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kRanks; ++rank) {
      Dataset data = examples(each.lines[rank], each.in_memory);
      threads.emplace_back([&, rank, data = std::move(data)]() mutable {
        const Ranks ranks = value_of(Ranks::open({.rank = rank, .endpoints = endpoints}));
        const Programs own = training.collective(rank);
        Executor executor = value_of(Executor::create({.ranks = ranks}));
        const Scope scope;
        check(executor.run(*own.startup, scope).status());
        const auto epoch =
            executor.train_from_dataset(*own.main, scope, data, {.threads = each.threads});
        EXPECT_EQ(epoch.status().code(), each.code) << epoch.status().to_string();
        EXPECT_EQ(epoch.ok() ? epoch->batches : 3, 3);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

TEST(ApiRanks, WhatDoesNotFitIsNamed) {
  const std::vector<std::string> two = free_endpoints();
  const auto refused = [](const RankOptions& options) {
    return Ranks::open(options).status().to_string();
  };
  EXPECT_THAT(refused({.rank = 2, .endpoints = two}), HasSubstr("options.rank: expected a rank"));
  EXPECT_THAT(refused({.rank = -2}), HasSubstr("options.rank"));
  EXPECT_THAT(refused({.rank = 0, .endpoints = two, .engine = "ring"}), HasSubstr("'ring'"));
  EXPECT_THAT(refused({.rank = 0, .endpoints = two, .join = std::chrono::milliseconds(200)}),
              AnyOf(HasSubstr("rank 1"), HasSubstr("1 of 2")));
  EXPECT_THAT(refused({.rank = 0, .endpoints = two, .job_key_file = "/nothing"}),
              HasSubstr("/nothing"));
  const Ranks alone = value_of(Ranks::open());
  EXPECT_EQ(alone.size(), 1);
  check(alone.barrier());
  const Training training;
  const Programs own = training.collective(0);
  for (const std::optional<Ranks>& ranks : {std::optional<Ranks>(), std::optional<Ranks>(alone)}) {
    Executor executor = value_of(Executor::create({.ranks = ranks}));
    const Scope scope;
    EXPECT_THAT(executor.run(*own.startup, scope).status().to_string(), HasSubstr("no peers"));
  }
  ParallelOptions options{.loss_name = training.net.loss.name(), .ranks = alone};
  options.build_strategy.num_trainers = 2;
  EXPECT_THAT(ParallelExecutor::create(*training.programs.main, {}, options).status().message(),
              HasSubstr("build_strategy.num_trainers: expected 1"));
  options.build_strategy.num_trainers = 1;
  options.build_strategy.trainer_id = 1;
  EXPECT_THAT(ParallelExecutor::create(*training.programs.main, {}, options).status().message(),
              HasSubstr("build_strategy.trainer_id: expected 0"));
}

// Each rank has a file of its own; after an exchange both have as many examples.
TEST(ApiRanks, ExchangeTheExamplesOfTheirFiles) {
  const testing::TempFolder folder;
  const SmallNet net;
  run_ranks("shm", [&](const Ranks& ranks, int rank) {
    std::string text;
    for (int row = 0; row < 10 + 4 * rank; ++row) text += fmt::format("3 {} 0 1 1 0\n", row);
    const std::string path = folder / fmt::format("part-{}", rank);
    testing::put_file(path, text);
    Dataset data = value_of(Dataset::create(
        net.net.main(), {.files = {path}, .use_vars = {"x", "t"}, .in_memory = true}));
    check(data.load_into_memory());
    check(data.global_shuffle(ranks));
    EXPECT_EQ(data.examples_in_memory(), 12);
  });
}

}  // namespace
}  // namespace ranks_test
}  // namespace millrace::api

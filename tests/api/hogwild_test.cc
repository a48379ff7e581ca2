// Threads that train one model at the same time with the same variables.

#include <fstream>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/dataset.h"
#include "api/executor.h"
#include "api/parallel_executor.h"
#include "executor/array_values.h"
#include "executor/executor.h"
#include "executor/feed_values.h"
#include "executor/parallel/worker_programs.h"
#include "executor/standard_runtime.h"
#include "framework/program.h"
#include "framework/program_file.h"
#include "jobs/run/run_steps.h"
#include "tests/api/nets.h"
#include "tests/io/temp_folder.h"

namespace millrace::api {
namespace {

using ::testing::HasSubstr;

constexpr int kThreads = 8;
constexpr int kExamples = 2000;
constexpr int kRows = 5;
constexpr size_t kWidth = 60'000;  // updates take long enough to meet each other

// Every update subtracts whole numbers from parameters that begin at 0, so that their sums are
// exact in any order, and every lost update shows.
struct CountingNet {
  CountingNet() {
    const ParamAttr zeros{.initializer = init::Constant{0}};
    const VarRef x = net.data("x", {-1, 2});
    const VarRef id = net.data("id", {-1, 1}, DType::kInt64);
    const VarRef dense = layers::fc(x, kWidth, {.param = zeros, .bias = zeros});
    const VarRef row = layers::embedding(id, kRows, kWidth, {.is_sparse = true, .param = zeros});
    loss = layers::reduce_sum(layers::concat({dense, row}, 1));
    check(net.minimize(loss, {.learning_rate = 1.0}).status());
  }
  Network net;
  VarRef loss;
};

class Hogwild : public ::testing::Test {
 protected:
  Hogwild() {
    std::string text;
    for (int i = 0; i < kExamples; ++i) {
      text += fmt::format("2 {} {} 1 {}\n", i % 3, i % 2, i % kRows);
      sum_0_ += i % 3;
      sum_1_ += i % 2;
    }
    testing::put_file(folder_ / "part-0", text);
    options_.files = {folder_ / "part-*"};
    options_.use_vars = {"x", "id"};
    options_.batch_size = 1;
  }
  [[nodiscard]] Dataset open() const {
    return value_of(Dataset::create(net_.net.main(), options_));
  }
  void expect_all_updates(const std::function<std::vector<float>(const std::string&)>& values) {
    int found = 0;
    for (const Var& var : net_.net.main().root().vars()) {
      const std::string name = var.name().str();
      if (!var.persistable() || name.find("learning_rate") != std::string::npos) continue;
      const std::vector<float> got = values(name);
      const auto all = static_cast<float>(kExamples);
      int wrong = 0;
      for (size_t i = 0; i < got.size(); ++i) {
        const float expected = got.size() == kWidth           ? -all  // the bias
                               : got.size() == kWidth * kRows ? -all / kRows
                               : i < kWidth                   ? -sum_0_
                                                              : -sum_1_;
        wrong += got[i] == expected ? 0 : 1;
      }
      EXPECT_EQ(wrong, 0) << name << " with " << got.size() << " elements";
      ++found;
    }
    EXPECT_EQ(found, 3);
  }

  testing::TempFolder folder_;
  CountingNet net_;
  DatasetOptions options_;
  float sum_0_ = 0;
  float sum_1_ = 0;
};

std::vector<float> floats_of(const Array& array) {
  const auto values = array.values<float>();
  return {values.begin(), values.end()};
}

TEST_F(Hogwild, NoUpdateIsLost) {
  Executor executor = value_of(Executor::create());
  Scope scope;
  check(executor.run(net_.net.startup(), scope).status());
  Dataset data = open();
  int printed = 0;
  EpochOptions how{.fetches = {net_.loss.name()}, .print_period = 100, .threads = kThreads};
  how.on_print = [&](const EpochStep& step) {
    printed += static_cast<int>(step.fetches.size());
    return Ok();
  };
  const EpochResult done = value_of(executor.train_from_dataset(net_.net.main(), scope, data, how));
  EXPECT_EQ(done.batches, kExamples);
  EXPECT_EQ(done.examples, kExamples);
  EXPECT_EQ(printed, kExamples / 100);
  expect_all_updates([&](const std::string& name) { return floats_of(value_of(scope.get(name))); });
}

// The callback sees every variable between two ops, and what it sets is not overwritten.
TEST_F(Hogwild, CallbacksMayUseTheVariables) {
  Executor executor = value_of(Executor::create());
  Scope scope;
  check(executor.run(net_.net.startup(), scope).status());
  Dataset data = open();
  EpochOptions how{.print_period = 10, .threads = kThreads};
  how.on_print = [&](const EpochStep&) -> Status {
    for (const Var& var : net_.net.main().root().vars()) {
      const std::string name = var.name().str();
      if (!var.persistable() || name.find("learning_rate") != std::string::npos) continue;
      MILLRACE_ASSIGN_OR_RETURN(const Array value, scope.get(name));
      MILLRACE_RETURN_IF_ERROR(scope.set(name, value));
    }
    return Ok();
  };
  check(executor.train_from_dataset(net_.net.main(), scope, data, how).status());
  expect_all_updates([&](const std::string& name) { return floats_of(value_of(scope.get(name))); });
}

TEST_F(Hogwild, AnErrorEndsAllThreads) {
  std::string text;
  for (int i = 0; i < 20; ++i) text += "2 1 1 1 0\n";
  testing::put_file(folder_ / "short", text + "2 1 1 1 99\n");
  options_.files = {folder_ / "short"};
  Executor executor = value_of(Executor::create());
  Scope scope;
  check(executor.run(net_.net.startup(), scope).status());
  Dataset data = open();
  const Status status =
      executor.train_from_dataset(net_.net.main(), scope, data, {.threads = 3}).status();
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(status.to_string(), HasSubstr("in batch 20 of the data set"));
}

TEST_F(Hogwild, SeveralDevicesHaveNoThreads) {
  Scope scope;
  Executor executor = value_of(Executor::create());
  check(executor.run(net_.net.startup(), scope).status());
  ParallelExecutor devices = value_of(ParallelExecutor::create(
      net_.net.main(), scope, {.devices = 2, .loss_name = net_.loss.name()}));
  Dataset data = open();
  EXPECT_EQ(devices.train_from_dataset(data, {.threads = 2}).status().code(),
            StatusCode::kUnimplemented);
}

// Runs as run-program does.
class HogwildSteps : public Hogwild {
 protected:
  HogwildSteps() {
    testing::put_file(folder_ / "slots.json", R"(["x", "id"])");
    check(save_program(net_.net.main(), folder_ / "main.pb", true));
    check(save_program(net_.net.startup(), folder_ / "startup.pb", true));
    how_.program = folder_ / "main.pb";
    how_.startup = folder_ / "startup.pb";
    how_.reads_parameters = true;
    feeds_.files = options_.files;
    feeds_.slots = folder_ / "slots.json";
    feeds_.batch_size = 1;
    steps_.workers = kThreads;
    steps_.fetches = {net_.loss.name()};
  }
  StatusOr<jobs::StepsResult> run() {
    MILLRACE_ASSIGN_OR_RETURN(session_, jobs::open_session(how_, executor::make_runtime()));
    MILLRACE_ASSIGN_OR_RETURN(jobs::Feeder feeder, jobs::Feeder::open(feeds_, session_.program()));
    jobs::StopTogether stop([] { return 0; }, nullptr);
    return jobs::run_steps(session_, feeder, steps_, stop);
  }
  Status failure() { return run().status(); }

  jobs::Session session_;
  jobs::SessionOptions how_;
  jobs::FeedOptions feeds_;
  jobs::StepsOptions steps_;
};

TEST_F(HogwildSteps, NoUpdateAndNoLineIsLost) {
  steps_.dump.fields = {"id"};
  steps_.dump.folder = folder_ / "dump";
  steps_.print_period = 100;
  int printed = 0;
  steps_.log = [&](LogLevel, std::string_view line) {
    printed += line.starts_with("step ") ? 1 : 0;
  };
  const jobs::StepsResult result = value_of(run());
  EXPECT_EQ(result.losses.size(), static_cast<size_t>(kExamples));
  EXPECT_EQ(result.results.size(), 1U);
  EXPECT_EQ(printed, kExamples / 100);
  const auto params = value_of(executor::to_arrays(value_of(jobs::persistables(session_))));
  expect_all_updates([&](const std::string& name) { return floats_of(params.at(name)); });
  std::ifstream dump(folder_ / "dump/part-000");
  std::vector<bool> seen(kExamples);
  int lines = 0;
  for (std::string line; std::getline(dump, line); ++lines) {
    const auto step = static_cast<size_t>(std::stoi(line));
    ASSERT_LT(step, seen.size());
    EXPECT_FALSE(seen[step]) << line;
    seen[step] = true;
    EXPECT_EQ(line, fmt::format("{}:0\tid:1:{}", step, step % kRows));
  }
  EXPECT_EQ(lines, kExamples);
}

// Convolutions keep filters in other layouts between the ops of a step, also for batches of another
// size; a thread that read a filter while another one converts it would compute something else.
TEST_F(HogwildSteps, LayoutsOfFiltersDoNotDisturbOtherThreads) {
  Network net(/*random_seed=*/3);
  const VarRef x = net.data("x", {-1, 8, 10, 10});
  const VarRef t = net.data("t", {-1, 1});
  VarRef hidden = layers::conv2d(x, 16, {3, 3}, {.padding = {1, 1}, .act = "relu"});
  hidden = layers::conv2d(hidden, 32, {3, 3}, {.act = "relu"});
  const VarRef loss =
      layers::mean(layers::square(layers::elementwise_sub(layers::fc(hidden, 1), t)));
  check(net.minimize(loss, {.learning_rate = 0.0}).status());  // parameters keep their values
  check(save_program(net.main(), how_.program, true));
  check(save_program(net.startup(), how_.startup, true));
  testing::put_file(folder_ / "slots.json", R"(["x", "t"])");
  std::string text;
  for (int row = 0; row < 50; ++row) {
    text += "800";
    for (int i = 0; i < 800; ++i) text += fmt::format(" {}", (row * 7 + i * 3) % 11 - 5);
    text += fmt::format(" 1 {}\n", row % 3);
  }
  testing::put_file(folder_ / "part-0", text);
  feeds_.batch_size = 4;
  feeds_.epochs = 6;
  steps_.fetches = {loss.name()};
  steps_.workers = 1;
  const std::vector<double> expected = value_of(run()).losses;
  ASSERT_EQ(expected.size(), 6U * 13U);
  steps_.workers = 4;
  const std::vector<double> losses = value_of(run()).losses;
  ASSERT_EQ(losses.size(), expected.size());
  for (size_t i = 0; i < losses.size(); ++i)
    EXPECT_NEAR(losses[i], expected[i], 1e-6 * expected[i]) << i;
}

TEST_F(HogwildSteps, WhatIsNotThereSaysSo) {
  steps_.observed = true;
  EXPECT_THAT(failure().message(), HasSubstr("options.workers above 1 with records"));
  steps_.observed = false;
  steps_.checkpoints.save_every = 5;
  EXPECT_THAT(failure().message(), HasSubstr("options.workers above 1 with checkpoints"));
  steps_.checkpoints.save_every = 0;
  how_.executor.inter_op = true;
  EXPECT_THAT(failure().message(), HasSubstr("with inter_op"));
  EXPECT_EQ(failure().code(), StatusCode::kUnimplemented);
  how_.executor.inter_op = false;
  feeds_.files.clear();
  EXPECT_THAT(failure().message(), HasSubstr("options.workers: expected options.files"));
}

// ---- the programs of the workers

struct TwoSessions {
  TwoSessions() : net(/*dropout=*/true) {
    for (millrace::Scope* const scope : {&plain_scope, &shared_scope}) {
      std::vector<Value> none;
      check(value_of(executor.prepare(net.net.startup(), *scope))->run({}, {}, none));
    }
    plain = value_of(executor.prepare(net.net.main(), plain_scope));
    shared = value_of(executor.prepare(net.net.main(), shared_scope));
  }
  SmallNet net;
  std::shared_ptr<const executor::Runtime> runtime = executor::make_runtime();
  executor::Executor executor{runtime, {.seed = 11}};
  millrace::Scope plain_scope;
  millrace::Scope shared_scope;
  std::unique_ptr<executor::PreparedProgram> plain;
  std::unique_ptr<executor::PreparedProgram> shared;
};

TEST(WorkerPrograms, OneWorkerComputesThePlainRunBitForBit) {
  TwoSessions both;
  const std::vector<std::string> fetches = {both.net.loss.name()};
  for (int epoch = 0; epoch < 2; ++epoch) {  // random numbers continue
    auto workers = value_of(executor::WorkerPrograms::create(*both.shared, 1, fetches));
    for (int step = 0; step < 5; ++step) {
      const Arrays given = batch(step);
      executor::NamedValues feeds;
      check(executor::borrow_values(views_of(given), feeds));
      std::vector<Value> expected;
      std::vector<Value> got;
      check(both.plain->run(feeds, fetches, expected));
      check(workers->run(0, feeds, got));
      EXPECT_EQ(value_of(executor::to_array("", got[0])).bytes,
                value_of(executor::to_array("", expected[0])).bytes);
    }
    workers->finish();
  }
  for (const std::string& name : both.plain_scope.names()) {
    const Value& value = *both.plain_scope.find_local(name);
    if (!value.initialized()) continue;
    EXPECT_EQ(value_of(executor::to_array(name, *both.shared_scope.find_local(name))).bytes,
              value_of(executor::to_array(name, value)).bytes)
        << name;
  }
}

TEST(WorkerPrograms, WorkersDrawDifferentNumbers) {
  TwoSessions both;
  std::string mask;
  for (const Op& op : both.net.net.main().root().ops())
    if (op.type() == "dropout") mask = op.first_output("Mask").str();
  auto workers = value_of(executor::WorkerPrograms::create(*both.shared, 2, {mask}));
  std::vector<std::string> masks;
  for (int worker = 0; worker < 2; ++worker) {
    const Arrays given = batch(0, 64);
    executor::NamedValues feeds;
    check(executor::borrow_values(views_of(given), feeds));
    std::vector<Value> got;
    check(workers->run(worker, feeds, got));
    const Array array = value_of(executor::to_array(mask, got[0]));
    masks.emplace_back(reinterpret_cast<const char*>(array.bytes.data()), array.bytes.size());
  }
  EXPECT_NE(masks[0], masks[1]);
}

TEST(WorkerPrograms, SharedVariablesAreNotFed) {
  TwoSessions both;
  auto workers = value_of(executor::WorkerPrograms::create(*both.shared, 2, {}));
  const Arrays given = batch(0);
  executor::NamedValues feeds;
  check(executor::borrow_values(views_of(given), feeds));
  const std::string rate = "learning_rate_0";
  ASSERT_NE(both.shared_scope.find_local(rate), nullptr);
  check(executor::copy_value(*both.shared_scope.find_local(rate), feeds[rate]));
  std::vector<Value> none;
  EXPECT_EQ(workers->run(0, feeds, none).code(), StatusCode::kInvalidArgument);
}

TEST(WorkerPrograms, ProgramsWithBranchesAreRefused) {
  TwoSessions both;
  const auto program = both.net.net.main().clone();
  program->add_block(0);
  auto prepared = value_of(both.executor.prepare(*program, both.shared_scope));
  const Status status = executor::WorkerPrograms::create(*prepared, 2, {}).status();
  EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
  EXPECT_THAT(status.message(), HasSubstr("with loops or branches"));
}

TEST(WorkerPrograms, VariablesWithCommonMemoryAreRefused) {
  TwoSessions both;
  std::vector<std::string> names = both.shared_scope.names();
  for (const std::string& name : names) {
    const auto* const tensor = both.shared_scope.find_local(name)->get_if<Tensor>();
    if (tensor == nullptr || !tensor->initialized()) continue;
    both.shared_scope.local("alias").as<Tensor>() = tensor->share();
    break;
  }
  const Status status = executor::WorkerPrograms::create(*both.shared, 2, {}).status();
  EXPECT_THAT(status.message(), HasSubstr("which have memory in common"));
}

}  // namespace
}  // namespace millrace::api

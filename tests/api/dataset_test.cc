// Training and inference from files by the installed library, compared with what run-program does.

#include "api/dataset.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "api/executor.h"
#include "api/parallel_executor.h"
#include "executor/array_values.h"
#include "executor/standard_runtime.h"
#include "framework/program.h"
#include "framework/program_file.h"
#include "jobs/run/run_steps.h"
#include "tests/api/nets.h"
#include "tests/io/temp_folder.h"

namespace millrace::api {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// One line of a file for SmallNet, in MultiSlot text.
std::string small_net_line(int row) {
  return fmt::format("3 {} {} {} 1 {}\n", row % 7 * 0.2 - 0.6, row % 5 * 0.3 - 0.5,
                     row % 3 * 0.5 - 0.4, row % 3 * 0.5);
}

class ApiDataset : public ::testing::Test {
 protected:
  ApiDataset() {
    std::string first;
    std::string second;
    for (int row = 0; row < 19; ++row) first += small_net_line(row);
    for (int row = 19; row < 30; ++row) second += small_net_line(row);
    testing::put_file(folder_ / "part-0", first);
    testing::put_file(folder_ / "part-1", second);
    options_.files = {folder_ / "part-*"};
    options_.use_vars = {"x", "t"};
    options_.batch_size = 8;
    options_.seed = 5;
  }

  [[nodiscard]] Dataset open() const {
    return value_of(Dataset::create(net_.net.main(), options_));
  }
  [[nodiscard]] Status refused() const {
    return Dataset::create(net_.net.main(), options_).status();
  }

  // Losses and final parameters of the tools.
  jobs::StepsResult expected(int64_t epochs, std::map<std::string, Array>& params) {
    testing::put_file(folder_ / "slots.json", R"(["x", "t"])");
    check(save_program(net_.net.main(), folder_ / "main.pb", true));
    check(save_program(net_.net.startup(), folder_ / "startup.pb", true));
    jobs::SessionOptions how;
    how.program = folder_ / "main.pb";
    how.startup = folder_ / "startup.pb";
    how.fetches = {net_.loss.name()};
    how.reads_parameters = true;
    jobs::Session session = value_of(jobs::open_session(how, executor::make_runtime()));
    jobs::FeedOptions feeds;
    feeds.files = options_.files;
    feeds.slots = folder_ / "slots.json";
    feeds.in_memory = options_.in_memory;
    feeds.batch_size = options_.batch_size;
    feeds.seed = options_.seed;
    feeds.epochs = epochs;
    jobs::Feeder feeder = value_of(jobs::Feeder::open(feeds, session.program()));
    jobs::StopTogether stop([] { return 0; }, nullptr);
    jobs::StepsOptions steps;
    steps.fetches = {net_.loss.name()};
    jobs::StepsResult result = value_of(jobs::run_steps(session, feeder, steps, stop));
    params = value_of(executor::to_arrays(value_of(jobs::persistables(session))));
    return result;
  }

  testing::TempFolder folder_;
  SmallNet net_;
  DatasetOptions options_;
};

TEST_F(ApiDataset, TrainsLikeRunProgram) {
  constexpr int kEpochs = 3;
  const std::string loss = net_.loss.name();
  for (const bool in_memory : {false, true}) {
    options_.in_memory = in_memory;
    std::map<std::string, Array> params;
    const jobs::StepsResult result = expected(kEpochs, params);
    Dataset data = open();
    if (in_memory) check(data.load_into_memory());
    Executor executor = value_of(Executor::create());
    Scope scope;
    check(executor.run(net_.net.startup(), scope).status());
    PreparedProgram training = value_of(executor.prepare(net_.net.main(), scope));
    std::vector<double> losses;
    EpochOptions how{.fetches = {loss}, .print_period = 1};
    how.on_print = [&](const EpochStep& step) {
      losses.push_back(step.fetches.at(loss).values<float>()[0]);
      return Ok();
    };
    for (int epoch = 0; epoch < kEpochs; ++epoch) {
      if (in_memory) check(data.local_shuffle());
      const EpochResult done = value_of(training.train_from_dataset(data, how));
      EXPECT_EQ(done.batches, 4);
      EXPECT_EQ(done.examples, 30);
      EXPECT_EQ(done.left_out, 0);
      EXPECT_EQ(done.last.at(loss).values<float>()[0], losses.back());
    }
    EXPECT_EQ(losses, result.losses) << in_memory;
    for (const auto& [name, value] : params)
      EXPECT_EQ(value_of(scope.get(name)).bytes, value.bytes) << name << in_memory;
  }
}

TEST_F(ApiDataset, MeansWeighBatchesByTheirExamples) {
  const SmallNet forward(/*dropout=*/false, /*trains=*/false);
  const std::string loss = forward.loss.name();
  Dataset data = open();
  Executor executor = value_of(Executor::create());
  Scope scope;
  check(executor.run(forward.net.startup(), scope).status());
  const EpochResult batches = value_of(executor.infer_from_dataset(
      forward.net.main(), scope, data, {.fetches = {loss, forward.guess.name()}}));
  options_.batch_size = 30;
  Dataset whole = open();
  const EpochResult once =
      value_of(executor.infer_from_dataset(forward.net.main(), scope, whole, {.fetches = {loss}}));
  EXPECT_NEAR(batches.means.at(loss), once.means.at(loss), 1e-6);
  EXPECT_EQ(once.batches, 1);
  EXPECT_EQ(batches.means.count(forward.guess.name()), 0U);
  EXPECT_THAT(batches.last.at(forward.guess.name()).dims, ElementsAre(6, 1));
}

TEST_F(ApiDataset, InferenceRefusesAProgramThatUpdatesParameters) {
  Dataset data = open();
  Executor executor = value_of(Executor::create());
  Scope scope;
  check(executor.run(net_.net.startup(), scope).status());
  const Status status = executor.infer_from_dataset(net_.net.main(), scope, data, {}).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("infer_from_dataset: the program updates 'fc_"));
  ParallelExecutor parallel = value_of(ParallelExecutor::create(
      net_.net.main(), scope, {.devices = 2, .loss_name = net_.loss.name()}));
  EXPECT_EQ(parallel.infer_from_dataset(data, {}).status().message(), status.message());
}

TEST_F(ApiDataset, SeveralDevicesDivideEveryBatch) {
  options_.drop_last = true;
  Dataset data = open();
  Executor executor = value_of(Executor::create());
  Scope scope;
  check(executor.run(net_.net.startup(), scope).status());
  ParallelExecutor parallel = value_of(ParallelExecutor::create(
      net_.net.main(), scope, {.devices = 2, .loss_name = net_.loss.name()}));
  const EpochResult done =
      value_of(parallel.train_from_dataset(data, {.fetches = {net_.loss.name()}}));
  EXPECT_EQ(done.batches, 3);
  EXPECT_EQ(done.left_out, 6);
  EXPECT_THAT(done.last.at(net_.loss.name()).dims, ElementsAre(2));
  EXPECT_EQ(parallel.runs(), 3);
}

// Losses of an epoch, one per batch.
std::vector<float> guesses_of(Executor& executor, const SmallNet& net, const Scope& scope,
                              Dataset& data, int64_t first_batch = 0) {
  std::vector<float> all;
  EpochOptions how{.fetches = {net.loss.name()}, .print_period = 1, .first_batch = first_batch};
  how.on_print = [&](const EpochStep& step) {
    all.push_back(step.fetches.at(net.loss.name()).values<float>()[0]);
    return Ok();
  };
  check(executor.infer_from_dataset(net.net.main(), scope, data, how).status());
  return all;
}

TEST_F(ApiDataset, AnEpochContinuesAtABatch) {
  const SmallNet forward(/*dropout=*/false, /*trains=*/false);
  Executor executor = value_of(Executor::create());
  Scope scope;
  check(executor.run(forward.net.startup(), scope).status());
  Dataset data = open();
  std::vector<float> all = guesses_of(executor, forward, scope, data);
  ASSERT_EQ(all.size(), 4U);
  all.erase(all.begin(), all.begin() + 2);
  EXPECT_EQ(guesses_of(executor, forward, scope, data, 2), all);
}

TEST_F(ApiDataset, CallbacksEndAnEpochAndHaveTheTextOfTheTools) {
  Dataset data = open();
  Executor executor = value_of(Executor::create());
  Scope scope;
  check(executor.run(net_.net.startup(), scope).status());
  std::string text;
  EpochOptions how{.fetches = {net_.loss.name()}, .print_period = 2};
  how.on_print = [&](const EpochStep& step) {
    EXPECT_EQ(step.examples, 8);
    EXPECT_EQ(data.set_files({folder_ / "part-1"}).message(),
              "set_files: an epoch is running over the data set");
    EXPECT_EQ(executor.train_from_dataset(net_.net.main(), scope, data, {}).status().message(),
              "a new epoch: an epoch is running over the data set");
    text = step.text;
    return Status(StatusCode::kUsage, "enough");
  };
  const Status status = executor.train_from_dataset(net_.net.main(), scope, data, how).status();
  EXPECT_EQ(status.message(), "enough");
  EXPECT_THAT(text, ::testing::StartsWith("step 2: " + net_.loss.name() + " = "));
}

TEST_F(ApiDataset, MemoryIsLoadedAndReleased) {
  options_.in_memory = true;
  Dataset data = open();
  EXPECT_THAT(data.fed_vars(), ElementsAre("x", "t"));
  EXPECT_EQ(data.examples_in_memory(), 0);
  EXPECT_THAT(data.local_shuffle().message(), HasSubstr("load them first"));
  check(data.preload());
  EXPECT_THAT(data.release_memory().message(), HasSubstr("call wait_preload() first"));
  EXPECT_THAT(data.set_files({"a"}).message(), HasSubstr("call wait_preload() first"));
  check(data.wait_preload());
  EXPECT_THAT(data.wait_preload().message(), HasSubstr("expected a call of preload()"));
  EXPECT_EQ(data.examples_in_memory(), 30);
  check(data.global_shuffle());
  check(data.set_files({folder_ / "part-1"}));
  EXPECT_EQ(data.examples_in_memory(), 0);
  check(data.load_into_memory());
  EXPECT_EQ(data.examples_in_memory(), 11);
  check(data.release_memory());
  Executor executor = value_of(Executor::create());
  Scope scope;
  check(executor.run(net_.net.startup(), scope).status());
  const Status status = executor.train_from_dataset(net_.net.main(), scope, data, {}).status();
  EXPECT_EQ(status.message(), "the examples are not in memory, load them first");
  EXPECT_EQ(data.set_files({folder_ / "none-*"}).code(), StatusCode::kNotFound);
  EXPECT_THAT(data.set_files({}).message(), HasSubstr("set_files: expected at least one file"));
  check(data.load_into_memory());  // the earlier files are still those of the data set
  EXPECT_EQ(data.examples_in_memory(), 11);
}

TEST_F(ApiDataset, AQueueHasNoMemory) {
  Dataset data = open();
  for (const Status& status : {data.load_into_memory(), data.preload(), data.release_memory(),
                               data.local_shuffle(), data.global_shuffle()}) {
    EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
    EXPECT_THAT(status.message(), HasSubstr("of a data set that is not in memory"));
  }
}

TEST_F(ApiDataset, TrainersShareTheExamples) {
  options_.in_memory = true;
  options_.divide = DatasetDivide::kExamples;
  options_.trainers = 2;
  int64_t sum = 0;
  for (options_.trainer = 0; options_.trainer < 2; ++options_.trainer) {
    Dataset data = open();
    check(data.load_into_memory());
    check(data.global_shuffle(2));
    EXPECT_THAT(data.global_shuffle(3).message(), HasSubstr("expected 2 trainers"));
    sum += data.examples_in_memory();
  }
  EXPECT_EQ(sum, 30);
  options_.divide = DatasetDivide::kFiles;
  options_.trainer = 1;
  Dataset data = open();
  check(data.load_into_memory());
  EXPECT_EQ(data.examples_in_memory(), 11);
  const Status status = data.global_shuffle(2);
  EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
  EXPECT_THAT(status.message(), HasSubstr("an exchange of examples between 2 trainers"));
  EXPECT_THAT(data.global_shuffle(0).message(), HasSubstr("expected at least 1 trainer"));
}

TEST_F(ApiDataset, GlobalShufflesReadTheSharesOfRunProgram) {
  const SmallNet forward(/*dropout=*/false, /*trains=*/false);
  testing::put_file(folder_ / "slots.json", R"(["x", "t"])");
  options_.in_memory = true;
  options_.divide = DatasetDivide::kExamples;
  options_.trainers = 2;
  options_.trainer = 1;
  options_.reshuffle_epochs = true;
  jobs::FeedOptions feeds;
  feeds.files = options_.files;
  feeds.slots = folder_ / "slots.json";
  feeds.in_memory = true;
  feeds.batch_size = options_.batch_size;
  feeds.seed = options_.seed;
  feeds.epochs = 3;
  feeds.divide = jobs::Divide::kExamples;
  feeds.trainers = 2;
  feeds.trainer = 1;
  feeds.reshuffle_epochs = true;
  jobs::Feeder feeder = value_of(jobs::Feeder::open(feeds, forward.net.main()));
  std::vector<Array> expected;
  for (int64_t step = 0; !feeder.ends_at(step); ++step) {
    const executor::NamedValues* const values = value_of(feeder.feeds(step));
    ASSERT_NE(values, nullptr);
    expected.push_back(value_of(executor::to_array("x", values->at("x"))));
  }
  Dataset data = open();
  EXPECT_THAT(data.global_shuffle(2).message(), HasSubstr("load them first"));
  check(data.load_into_memory());
  Executor executor = value_of(Executor::create());
  Scope scope;
  check(executor.run(forward.net.startup(), scope).status());
  size_t at = 0;
  EpochOptions how{.fetches = {"x"}, .print_period = 1};
  how.on_print = [&](const EpochStep& step) {
    EXPECT_LT(at, expected.size());
    if (at < expected.size()) {
      EXPECT_EQ(step.fetches.at("x").bytes, expected[at].bytes) << at;
    }
    ++at;
    return Ok();
  };
  for (int epoch = 0; epoch < 3; ++epoch) {
    check(data.global_shuffle(2));
    check(executor.infer_from_dataset(forward.net.main(), scope, data, how).status());
  }
  EXPECT_EQ(at, expected.size());
}

TEST_F(ApiDataset, FilesGoThroughACommand) {
  Executor executor = value_of(Executor::create());
  Scope scope;
  check(executor.run(net_.net.startup(), scope).status());
  options_.pipe_command = "head -n 3";
  Dataset data = open();
  EXPECT_EQ(value_of(executor.train_from_dataset(net_.net.main(), scope, data, {})).examples, 6);
  options_.pipe_command = "cat; echo no >&2; exit 9";
  Dataset failing = open();
  const Status status = executor.train_from_dataset(net_.net.main(), scope, failing, {}).status();
  EXPECT_THAT(status.to_string(), HasSubstr("part-0: the pipe_command ended with status 9: no"));
}

TEST_F(ApiDataset, DelimitedTextWithHashedIds) {
  Network net;
  const VarRef ids = net.data("ids", {-1, 1}, DType::kInt64);
  const VarRef y = net.data("y", {-1, 1});
  const VarRef sum = layers::elementwise_add(layers::cast(ids, DType::kFloat32), y);
  check(net.status());
  testing::put_file(folder_ / "log", "0.5\tanna\n1.5\tmoritz\n");
  options_ = {.files = {folder_ / "log"}, .slots_text = R"({"format": "delimited", "slots": [
                  {"name": "y", "columns": 0},
                  {"name": "ids", "columns": 1, "hash": {"function": "crc32", "buckets": 10}}]})"};
  Dataset data = value_of(Dataset::create(net.main(), options_));
  EXPECT_THAT(data.fed_vars(), ElementsAre("y", "ids"));
  Executor executor = value_of(Executor::create());
  Scope scope;
  const EpochResult done =
      value_of(executor.infer_from_dataset(net.main(), scope, data, {.fetches = {sum.name()}}));
  // zlib.crc32(b"anna") % 10 is 3, zlib.crc32(b"moritz") % 10 is 1
  EXPECT_THAT(done.last.at(sum.name()).values<float>(), ElementsAre(3.5F, 2.5F));
}

// Standard input is a file, until the end of the scope.
class InputFrom {
 public:
  explicit InputFrom(const std::string& path) : kept_(::dup(0)) {
    const int file = ::open(path.c_str(), O_RDONLY);
    ::dup2(file, 0);
    ::close(file);
  }
  ~InputFrom() {
    ::dup2(kept_, 0);
    ::close(kept_);
  }

 private:
  int kept_;
};

TEST_F(ApiDataset, StandardInputIsReadOnce) {
  options_.files = {"-"};
  Executor executor = value_of(Executor::create());
  Scope scope;
  check(executor.run(net_.net.startup(), scope).status());
  const auto train = [&](Dataset& data) {
    return executor.train_from_dataset(net_.net.main(), scope, data, {});
  };
  {
    const InputFrom input(folder_ / "part-0");
    Dataset data = open();
    EXPECT_EQ(value_of(train(data)).examples, 19);
    EXPECT_EQ(train(data).status().code(), StatusCode::kUnimplemented);
    EXPECT_THAT(train(data).status().message(), HasSubstr("options.in_memory keeps it"));
  }
  const InputFrom input(folder_ / "part-1");
  options_.in_memory = true;
  Dataset data = open();
  check(data.load_into_memory());
  for (int epoch = 0; epoch < 2; ++epoch) EXPECT_EQ(value_of(train(data)).examples, 11);
  check(data.release_memory());
  EXPECT_EQ(data.load_into_memory().message(),
            "standard input cannot be read again after its examples were dropped");
}

TEST_F(ApiDataset, ErrorsOfPreloadingComeWithTheWait) {
  testing::put_file(folder_ / "part-1", "3 1 2 x\n");
  options_.in_memory = true;
  Dataset data = open();
  check(data.preload());
  EXPECT_THAT(data.wait_preload().message(), HasSubstr("line 1: slot 'x'"));
  EXPECT_EQ(data.examples_in_memory(), 0);
  testing::put_file(folder_ / "part-1", small_net_line(1));
  check(data.preload());
  check(data.wait_preload());
  EXPECT_EQ(data.examples_in_memory(), 20);
}

TEST_F(ApiDataset, BadOptionsAreNamed) {
  const DatasetOptions good = options_;
  const auto message = [&](const auto& change) {
    options_ = good;
    change(options_);
    return refused().message();
  };
  using Options = DatasetOptions;
  EXPECT_THAT(message([](Options& o) { o.files.clear(); }), HasSubstr("options.files"));
  EXPECT_THAT(message([](Options& o) { o.use_vars.clear(); }), HasSubstr("found 0"));
  EXPECT_THAT(message([](Options& o) { o.slots_text = "[]"; }), HasSubstr("found 2"));
  EXPECT_THAT(message([](Options& o) {
                o.use_vars = {"x", "none"};
              }),
              HasSubstr("options.use_vars: the program has no var 'none'"));
  EXPECT_THAT(message([](Options& o) { o.batch_size = -1; }), HasSubstr("options.batch_size"));
  EXPECT_THAT(message([](Options& o) { o.reader_threads = -1; }),
              HasSubstr("options.reader_threads"));
  EXPECT_THAT(message([](Options& o) { o.trainers = 2; }), HasSubstr("no effect without divide"));
  EXPECT_THAT(message([](Options& o) {
                o.divide = DatasetDivide::kFiles;
                o.trainer = 1;
              }),
              HasSubstr("options.trainer: expected less than 1"));
  EXPECT_THAT(message([](Options& o) { o.files = {"none-*"}; }), HasSubstr("no file matches"));
  options_ = good;
  options_.use_vars.clear();
  options_.slots_text = "[";
  EXPECT_THAT(refused().to_string(), HasSubstr("not valid JSON"));
  EXPECT_THAT(refused().to_string(), HasSubstr("in options.slots_text"));
  options_.slots_text = R"({"slots": ["x"], "pipe_command": "awk 1"})";
  EXPECT_EQ(refused().code(), StatusCode::kUsage);
  EXPECT_THAT(refused().to_string(), HasSubstr("would run the pipe_command 'awk 1'"));
  options_.allow_pipe_command = true;
  EXPECT_TRUE(refused().ok());
  options_.pipe_command = "awk 2";
  EXPECT_THAT(refused().to_string(), HasSubstr("the description of the slots has another one"));
  options_ = good;
  options_.allow_pipe_command = true;
  EXPECT_THAT(refused().to_string(), HasSubstr("options.allow_pipe_command has no effect"));
  options_ = good;
  options_.reshuffle_epochs = true;
  EXPECT_THAT(refused().to_string(), HasSubstr("options.reshuffle_epochs: expected"));
  options_ = good;
  options_.use_vars.clear();
  options_.slots = folder_ / "none.json";
  EXPECT_EQ(refused().code(), StatusCode::kNotFound);
}

TEST_F(ApiDataset, BadOptionsOfAnEpochAreNamed) {
  Dataset data = open();
  Executor executor = value_of(Executor::create());
  Scope scope;
  check(executor.run(net_.net.startup(), scope).status());
  const auto refused = [&](const EpochOptions& how) {
    return executor.train_from_dataset(net_.net.main(), scope, data, how).status();
  };
  EXPECT_THAT(refused({.threads = 0}).message(), HasSubstr("options.threads"));
  EXPECT_THAT(refused({.print_period = 0}).message(), HasSubstr("options.print_period"));
  EXPECT_THAT(refused({.first_batch = -1}).message(), HasSubstr("options.first_batch"));
  EXPECT_THAT(refused({.first_batch = 5}).message(), HasSubstr("first_batch: expected at most 4"));
  EXPECT_TRUE(refused({.first_batch = 4}).ok());
  const Status unknown = refused({.fetches = {"none"}});
  EXPECT_EQ(unknown.code(), StatusCode::kNotFound);
  EXPECT_THAT(unknown.to_string(), HasSubstr("in batch 0 of the data set"));
}

TEST_F(ApiDataset, TheBatchesBeforeABadLineAreTrained) {
  testing::put_file(folder_ / "part-1", small_net_line(1) + "3 1 2 x\n");
  Dataset data = open();
  Executor executor = value_of(Executor::create());
  Scope scope;
  check(executor.run(net_.net.startup(), scope).status());
  int batches = 0;
  EpochOptions how{.print_period = 1};
  how.on_print = [&](const EpochStep&) {
    ++batches;
    return Ok();
  };
  const Status status = executor.train_from_dataset(net_.net.main(), scope, data, how).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidData);
  EXPECT_THAT(status.to_string(), HasSubstr("part-1"));
  EXPECT_THAT(status.message(), HasSubstr("line 2: slot 'x'"));
  EXPECT_EQ(batches, 2);
}

}  // namespace
}  // namespace millrace::api

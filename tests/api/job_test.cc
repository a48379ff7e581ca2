// Servers and trainers inside one process, by the installed library, compared with
// jobs::run_cluster.

#include "api/job.h"

#include <cstdlib>
#include <filesystem>
#include <thread>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/checkpoints.h"
#include "api/communicator.h"
#include "api/dataset.h"
#include "api/executor.h"
#include "api/live_model.h"
#include "api/server.h"
#include "api/trainer.h"
#include "executor/array_values.h"
#include "framework/base/file.h"
#include "framework/program_file.h"
#include "io/npz.h"
#include "jobs/ps/cluster.h"
#include "tests/api/nets.h"

namespace millrace::api {
namespace {

namespace fs = std::filesystem;
using ::testing::Contains;
using ::testing::HasSubstr;

constexpr int kSteps = 4;

class ApiJob : public ::testing::Test {
 protected:
  void SetUp() override { fs::remove_all(folder_); }
  void TearDown() override { fs::remove_all(folder_); }
  [[nodiscard]] std::string at(const std::string& name) const { return folder_ + "/" + name; }

  WrittenJob write(const std::string& name, const std::string& servers, const std::string& trainers,
                   bool sync = true) {
    fs::create_directories(folder_);
    WriteJobOptions options;
    options.arguments.pservers = servers;
    options.arguments.trainers = trainers;
    options.arguments.sync_mode = sync;
    options.config.sync_mode = sync;
    return value_of(write_job(net_.net.main(), net_.net.startup(), at(name), options));
  }

  std::string folder_ = ::testing::TempDir() + "/api_job_" +
                        ::testing::UnitTest::GetInstance()->current_test_info()->name();
  SmallNet net_;
};

// Servers of a folder, each in a thread.
class Serving {
 public:
  Serving(const std::string& folder, int servers, const Connection& connection,
          const ServerOptions& options = {}) {
    for (int i = 0; i < servers; ++i)
      servers_.push_back(
          value_of(ParameterServer::open(server_files(folder, i), connection, options)));
    for (ParameterServer& server : servers_)
      threads_.emplace_back([&server] { check(server.serve()); });
  }
  void join() {
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }
  ~Serving() {
    for (ParameterServer& server : servers_) server.stop();
    join();
  }

 private:
  std::vector<ParameterServer> servers_;
  std::vector<std::thread> threads_;
};

// Runs the trainers of a folder; the feeds of trainer t in step s are batch(10 t + s).
std::vector<Arrays> train(const std::string& folder, int trainers, const Connection& connection,
                          const std::string& loss, Arrays& gathered) {
  std::vector<Arrays> losses(static_cast<size_t>(trainers));
  std::vector<std::thread> threads;
  for (int t = 0; t < trainers; ++t) {
    threads.emplace_back([&, t] {
      Trainer trainer =
          value_of(Trainer::open(trainer_files(folder, t), connection, {.trainer = t}));
      for (int step = 0; step < kSteps; ++step) {
        EXPECT_EQ(trainer.next_step(), step);
        const Arrays results = value_of(trainer.step(batch(10 * t + step), {loss}));
        losses[static_cast<size_t>(t)]["step" + std::to_string(step)] = results.at(loss);
      }
      EXPECT_EQ(trainer.stats().steps, kSteps);
      EXPECT_EQ(trainer.stats().losses.size(), static_cast<size_t>(kSteps));
      const Arrays values = value_of(trainer.finish({.gather = t == 0}));
      if (t == 0) gathered = values;
    });
  }
  for (std::thread& thread : threads) thread.join();
  return losses;
}

TEST_F(ApiJob, TrainsLikeTheClusterOfTheTools) {
  const WrittenJob job = write("job", "a:1,b:1", "2");
  EXPECT_EQ(job.trainers, 2);
  EXPECT_EQ(job.servers, 2);
  EXPECT_THAT(job.endpoints, Contains("b:1"));
  const std::string loss = net_.loss.name();
  Arrays gathered;
  const Connection connection = Connection::in_process("the job");
  Serving serving(at("job"), 2, connection);
  const std::vector<Arrays> losses = train(at("job"), 2, connection, loss, gathered);
  serving.join();

  executor::NamedValues feeds;
  for (int t = 0; t < 2; ++t) {
    for (int step = 0; step < kSteps; ++step) {
      for (const auto& [name, array] : batch(10 * t + step))
        feeds["t" + std::to_string(t) + "/step" + std::to_string(step) + "/" + name].as<Tensor>() =
            value_of(executor::to_tensor(name, array));
    }
  }
  check(write_file_atomically(at("feeds.npz"), value_of(io::npz_bytes(feeds))));
  jobs::ClusterOptions options;
  options.folder = value_of(jobs::open_job_folder(at("job")));
  options.steps_file = at("feeds.npz");
  options.steps = kSteps;
  options.fetches = {loss};
  options.threads = 2;
  options.gathers = true;
  const jobs::ClusterResult expected = value_of(jobs::run_cluster(options));
  for (int t = 0; t < 2; ++t) {
    for (const auto& [step, array] : losses[static_cast<size_t>(t)]) {
      const auto found = expected.fetched.find("t" + std::to_string(t) + "/" + step + "/" + loss);
      ASSERT_NE(found, expected.fetched.end());
      EXPECT_EQ(value_of(executor::to_array(loss, found->second)).bytes, array.bytes);
    }
  }
  EXPECT_EQ(gathered.size(), expected.gathered.size());
  for (const auto& [name, value] : expected.gathered)
    EXPECT_EQ(value_of(executor::to_array(name, value)).bytes, gathered.at(name).bytes) << name;
}

TEST_F(ApiJob, SnapshotsOfServersAreReshardedAndLoaded) {
  write("job", "a:1,b:1", "1");
  write("three", "c:1,d:1,e:1", "1");
  const std::string loss = net_.loss.name();
  Arrays gathered;
  {
    const Connection connection = Connection::in_process();
    ServerOptions options;
    options.snapshot_root = at("snapshots");
    options.snapshot_every = kSteps;
    Serving serving(at("job"), 2, connection, options);
    train(at("job"), 1, connection, loss, gathered);
    serving.join();
  }
  const ServerCheckpoint checkpoint =
      value_of(ServerCheckpoint::open(at("snapshots"), at("job/slices.json")));
  EXPECT_EQ(checkpoint.step(), kSteps);
  EXPECT_EQ(checkpoint.servers(), 2);
  EXPECT_THAT(checkpoint.names(), Contains("fc_0.w_0"));
  for (const char* const name : {"fc_0.w_0", "fc_1.b_0"})
    EXPECT_EQ(value_of(checkpoint.get(name)).bytes, gathered.at(name).bytes) << name;
  EXPECT_EQ(checkpoint.get("none").status().code(), StatusCode::kNotFound);

  check(checkpoint.reshard(at("three/slices.json"), at("resharded")));
  EXPECT_EQ(checkpoint.reshard(at("three/slices.json"), at("resharded")).code(),
            StatusCode::kUsage);
  const Connection connection = Connection::in_process();
  ServerOptions options;
  options.snapshot_root = at("resharded");
  Serving serving(at("three"), 3, connection, options);
  Trainer trainer = value_of(Trainer::open(trainer_files(at("three"), 0), connection));
  EXPECT_EQ(trainer.next_step(), 0);
  const Arrays values = value_of(trainer.finish({.gather = true}));
  for (const auto& [name, array] : gathered) EXPECT_EQ(values.at(name).bytes, array.bytes) << name;
}

TEST_F(ApiJob, AnAsynchronousTrainerHasWorkersAndDevices) {
  write("async", "a:1", "1", /*sync=*/false);
  const std::string loss = net_.loss.name();
  for (const bool devices : {false, true}) {
    const Connection connection = Connection::in_process();
    Serving serving(at("async"), 1, connection);
    TrainerOptions options;
    if (devices) {
      options.devices = TrainerDevices{.devices = 2, .loss_name = loss};
    } else {
      options.workers = 2;
    }
    Trainer trainer = value_of(Trainer::open(trainer_files(at("async"), 0), connection, options));
    if (devices) {
      EXPECT_EQ(value_of(trainer.step(batch(0), {loss})).at(loss).values<float>().size(), 2U);
      EXPECT_THAT(trainer.worker_step(0, 0, batch(0)).status().message(), HasSubstr("step()"));
    } else {
      EXPECT_THAT(trainer.step(batch(0)).status().message(), HasSubstr("worker_step()"));
      EXPECT_THAT(trainer.worker_step(2, 0, batch(0)).status().message(),
                  HasSubstr("worker 2: expected one of 2 workers"));
      std::vector<std::thread> threads;
      for (int worker = 0; worker < 2; ++worker) {
        threads.emplace_back([&, worker] {
          for (int step = 0; step < 3; ++step)
            check(trainer.worker_step(worker, step, batch(step), {loss}).status());
          check(trainer.worker_leaves());
        });
      }
      for (std::thread& thread : threads) thread.join();
      EXPECT_EQ(trainer.stats().steps, 6);
    }
    check(trainer.finish().status());
    EXPECT_THAT(trainer.finish().status().message(), HasSubstr("the trainer has finished"));
    EXPECT_THAT(trainer.step({}).status().message(), HasSubstr("the trainer has finished"));
  }
}

TEST_F(ApiJob, ALiveModelUsesTheVariablesOfRunningServers) {
  write("async", "a:1,b:1", "2", /*sync=*/false);
  const Connection connection = Connection::in_process();
  Serving serving(at("async"), 2, connection);
  Trainer trainer = value_of(Trainer::open(trainer_files(at("async"), 0), connection));
  LiveModel model =
      value_of(LiveModel::open(trainer_files(at("async"), 1), {"x"}, {net_.guess.name()},
                               connection, {.trainer = 1, .optimize = false}));
  Arrays feeds = batch(3);
  feeds.erase("t");
  const Array before = value_of(model.run(feeds)).at(net_.guess.name());
  for (int step = 0; step < kSteps; ++step) check(trainer.step(batch(step)).status());
  EXPECT_EQ(value_of(model.run(feeds)).at(net_.guess.name()).bytes, before.bytes);
  check(model.refresh());
  const Array after = value_of(model.run(feeds)).at(net_.guess.name());
  EXPECT_NE(after.bytes, before.bytes);
  check(model.close());
  EXPECT_THAT(model.run(feeds).status().message(), HasSubstr("the model was closed"));
  const Arrays values = value_of(trainer.finish({.gather = true}));
  serving.join();

  const SmallNet forward(/*dropout=*/false, /*trains=*/false);
  Scope scope;
  for (const char* const name : {"fc_0.w_0", "fc_0.b_0", "fc_1.w_0", "fc_1.b_0"})
    check(scope.set(name, values.at(name)));
  Executor executor = value_of(Executor::create({.optimize = false}));
  const Arrays expected =
      value_of(executor.run(forward.net.main(), scope, batch(3), {forward.guess.name()}));
  EXPECT_EQ(expected.at(forward.guess.name()).bytes, after.bytes);
}

// The rows of batch(0), batch(1), ... as MultiSlot text.
std::string small_net_lines(int steps) {
  std::string text;
  for (int step = 0; step < steps; ++step) {
    const Arrays feeds = batch(step);
    for (size_t row = 0; row < 8; ++row) {
      const float* const x = feeds.at("x").values<float>().data() + row * 3;
      text +=
          fmt::format("3 {} {} {} 1 {}\n", x[0], x[1], x[2], feeds.at("t").values<float>()[row]);
    }
  }
  return text;
}

TEST_F(ApiJob, ATrainerAndALiveModelReadADataset) {
  write("job", "a:1", "2", /*sync=*/false);
  ASSERT_TRUE(write_file_atomically(at("part-0"), small_net_lines(kSteps), Replace::kNo).ok());
  const std::string loss = net_.loss.name();
  const Connection connection = Connection::in_process();
  Serving serving(at("job"), 1, connection);
  Dataset data = value_of(Dataset::create(
      net_.net.main(), {.files = {at("part-0")}, .use_vars = {"x", "t"}, .batch_size = 8}));
  Trainer trainer = value_of(Trainer::open(trainer_files(at("job"), 0), connection));
  const EpochResult first = value_of(trainer.train_from_dataset(data, {.fetches = {loss}}));
  EXPECT_EQ(first.batches, kSteps);
  EXPECT_EQ(trainer.next_step(), kSteps);
  EXPECT_EQ(trainer.stats().examples, 8 * kSteps);
  const EpochResult second = value_of(trainer.train_from_dataset(data, {.fetches = {loss}}));
  EXPECT_LT(second.means.at(loss), first.means.at(loss));
  LiveModel model = value_of(LiveModel::open(trainer_files(at("job"), 1), {"x"},
                                             {net_.guess.name()}, connection, {.trainer = 1}));
  const EpochResult inferred =
      value_of(model.infer_from_dataset(data, {.fetches = {net_.guess.name()}}));
  EXPECT_EQ(inferred.examples, 8 * kSteps);
  Arrays feeds = batch(kSteps - 1);
  feeds.erase("t");
  EXPECT_EQ(value_of(model.run(feeds)).at(net_.guess.name()).bytes,
            inferred.last.at(net_.guess.name()).bytes);
  check(model.close());
  EXPECT_THAT(model.infer_from_dataset(data, {}).status().message(),
              HasSubstr("the model was closed"));
  check(trainer.finish().status());
  EXPECT_THAT(trainer.train_from_dataset(data, {}).status().message(),
              HasSubstr("the trainer has finished"));
  serving.join();
}

TEST_F(ApiJob, WorkersShareADataset) {
  WriteJobOptions options;
  options.config.runtime_split_send_recv = true;
  options.config.sync_mode = false;
  options.arguments.sync_mode = false;
  options.arguments.pservers = "a:1";
  fs::create_directories(folder_);
  for (const bool half_async : {false, true}) {
    options.config.half_async = half_async;
    const std::string job = at(half_async ? "half_async" : "async");
    check(write_job(net_.net.main(), net_.net.startup(), job, options).status());
    const std::string part = job + "_part";
    ASSERT_TRUE(write_file_atomically(part, small_net_lines(5), Replace::kNo).ok());
    const Connection connection = Connection::in_process();
    Serving serving(job, 1, connection);
    Dataset data = value_of(Dataset::create(
        net_.net.main(), {.files = {part}, .use_vars = {"x", "t"}, .batch_size = 8}));
    Trainer trainer = value_of(Trainer::open(trainer_files(job, 0), connection, {.workers = 3}));
    int printed = 0;
    EpochOptions how{.fetches = {net_.loss.name()}, .print_period = 1};
    how.on_print = [&](const EpochStep& step) {
      EXPECT_EQ(step.batch % 5, ++printed % 5);
      return Ok();
    };
    // in the second epoch barriers wait for all workers again
    for (int epoch = 0; epoch < 2; ++epoch)
      EXPECT_EQ(value_of(trainer.train_from_dataset(data, how)).examples, 40);
    EXPECT_EQ(printed, 10);
    EXPECT_EQ(trainer.next_step(), 10);
    EXPECT_EQ(trainer.stats().steps, 10);
    how.on_print = [](const EpochStep&) { return Status(StatusCode::kUsage, "enough"); };
    EXPECT_EQ(trainer.train_from_dataset(data, how).status().message(), "enough");
    check(trainer.finish().status());
    serving.join();
  }
}

TEST_F(ApiJob, ALiveModelOfASynchronousJobIsRefused) {
  write("sync", "a:1", "1");
  const Connection connection = Connection::in_process();
  Serving serving(at("sync"), 1, connection);
  const Status status =
      LiveModel::open(trainer_files(at("sync"), 0), {"x"}, {net_.guess.name()}, connection)
          .status();
  EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
  EXPECT_THAT(status.message(), HasSubstr("live model"));
  serving.join();
}

TEST_F(ApiJob, ACommunicatorSendsGradientsThatTheCallerComputes) {
  Network net(/*random_seed=*/1);
  const VarRef x = net.data("x", {-1, 2});
  const VarRef loss = layers::mean(layers::fc(x, 1));
  check(net.minimize(loss, {.learning_rate = 0.5}).status());
  WriteJobOptions options;
  options.config.runtime_split_send_recv = true;
  options.config.sync_mode = false;
  options.arguments.sync_mode = false;
  options.arguments.pservers = "a:1";
  fs::create_directories(folder_);
  check(write_job(net.main(), net.startup(), at("split"), options).status());
  const Connection connection = Connection::in_process();
  Serving serving(at("split"), 1, connection);
  const auto program = value_of(load_program(trainer_files(at("split"), 0).program));
  Communicator communicator = value_of(Communicator::open(*program, connection));
  EXPECT_THAT(communicator.sent_vars(), Contains("fc_0.w_0@GRAD"));
  EXPECT_THAT(communicator.received_vars(), Contains("fc_0.w_0"));
  const Array one = Array::of<float>({2, 1}, std::vector<float>{1, 2});
  EXPECT_THAT(communicator.send("fc_0.w_0@GRAD", one).message(), HasSubstr("does not run"));
  check(communicator.start());
  EXPECT_TRUE(communicator.is_running());
  Scope scope;
  check(communicator.recv(scope));
  const Array before = value_of(scope.get("fc_0.w_0"));
  for (int step = 0; step < 3; ++step) {
    check(communicator.send("fc_0.w_0@GRAD", one));
    check(communicator.barrier());
    check(communicator.finish_step(scope));
  }
  EXPECT_EQ(communicator.send("none", one).code(), StatusCode::kNotFound);
  EXPECT_FALSE(communicator.close().ok());
  check(communicator.stop());
  EXPECT_EQ(communicator.counts().merged, 3);
  check(communicator.recv(scope));
  const Array after = value_of(scope.get("fc_0.w_0"));
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_NEAR(after.values<float>()[i],
                before.values<float>()[i] - 0.5F * 3 * static_cast<float>(i + 1), 1e-5);
  }
  check(communicator.close());
  serving.join();
  const Status status = Communicator::open(net.main(), connection).status();
  EXPECT_THAT(status.message(), HasSubstr("sends nothing through a communicator"));
}

TEST_F(ApiJob, ServersAndTrainersOfOneProcessMayUseTheNetwork) {
  write("job", "127.0.0.1:1", "1");
  const Connection connection = value_of(Connection::open({.job = "net", .kind = WireKind::kTcp}));
  ParameterServer server = value_of(
      ParameterServer::open(server_files(at("job"), 0), connection, {.endpoint = "127.0.0.1:0"}));
  std::string endpoint;
  server.on_ready([&](const std::string& ready) {
    endpoint = ready;
    server.stop();
  });
  check(server.serve());
  EXPECT_THAT(endpoint, HasSubstr("127.0.0.1:"));
  EXPECT_EQ(server.serve().code(), StatusCode::kInvalidArgument);
}

TEST_F(ApiJob, RefusesWhatHasNoEffect) {
  write("job", "a:1", "1");
  EXPECT_EQ(Connection::open({.advertise = "a:1"}).status().code(), StatusCode::kInvalidArgument);
  const Connection connection = Connection::in_process();
  EXPECT_THAT(ParameterServer::open(server_files(at("job"), 0), connection, {.snapshot_every = 2})
                  .status()
                  .message(),
              HasSubstr("options.snapshot_root"));
  EXPECT_EQ(ParameterServer::open(server_files(at("job"), 7), connection).status().code(),
            StatusCode::kNotFound);
  EXPECT_THAT(
      Trainer::open(trainer_files(at("job"), 0), connection, {.threads = 0}).status().message(),
      HasSubstr("options.threads"));
  RoleFiles files = trainer_files(at("job"), 0);
  files.load_program = "x";
  EXPECT_THAT(Trainer::open(files, connection).status().message(), HasSubstr("load_program"));
  WriteJobOptions options;
  EXPECT_EQ(write_job(net_.net.main(), net_.net.startup(), at("job"), options).status().code(),
            StatusCode::kUsage);
  options.sparse_tables = "{}";
  options.transpiler = "geo";
  EXPECT_EQ(write_job(net_.net.main(), net_.net.startup(), at("geo"), options).status().code(),
            StatusCode::kUnimplemented);
}

TEST_F(ApiJob, WritesTheFilesOfTheTool) {
  write("job", "a:1,b:1", "2");
  const char* const bin = std::getenv("MILLRACE_BIN_DIR");
  if (bin == nullptr) GTEST_SKIP() << "MILLRACE_BIN_DIR is not set";
  check(save_program(net_.net.main(), at("main")));
  check(save_program(net_.net.startup(), at("startup")));
  const std::string command =
      std::string(bin) + "/transpile-program --program " + at("main") + " --startup " +
      at("startup") + " --pservers a:1,b:1 --trainers 2 --trainer-id all -q -o " + at("tool");
  ASSERT_EQ(std::system(command.c_str()), 0);
  for (const char* const name :
       {"slices.json", "trainer_0/__model__", "trainer_0/__startup__", "trainer_1/__model__",
        "pserver_0/__model__", "pserver_1/__model__", "pserver_1/__startup__"}) {
    EXPECT_EQ(value_of(read_file(at(std::string("job/") + name), 1 << 24)),
              value_of(read_file(at(std::string("tool/") + name), 1 << 24)))
        << name;
  }
}

}  // namespace
}  // namespace millrace::api

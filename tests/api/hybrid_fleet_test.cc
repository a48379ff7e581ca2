// Hybrid jobs by the installed library: servers have embeddings, workers average dense gradients by
// all-reduce. They train like one process, are saved, continue, and refuse what does not fit.

#include <algorithm>
#include <functional>
#include <map>
#include <thread>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/dataset.h"
#include "api/executor.h"
#include "api/fleet.h"
#include "api/training.h"
#include "fleet/launch/free_ports.h"
#include "framework/program.h"
#include "framework/program_file.h"
#include "tests/api/nets.h"
#include "tests/io/temp_folder.h"

namespace millrace::api {
namespace hybrid_fleet_test {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using testing::TempFolder;

constexpr int kHybridWorkers = 2;
constexpr const char* kMain = R"(# millrace program 1

block 0 {
  param emb: f32(20, 4)
  param w: f32(4, 3)
  param b: f32(3)
  var ids: i64(-1, 1)
  var x: f32(-1, 4)
  var e: f32(-1, 4)
  var s: f32(-1, 4)
  var h: f32(-1, 3)
  var o: f32(-1, 3)
  var q: f32(-1, 3)
  var loss: f32(1)
  lookup_table Ids=ids W=emb -> Out=e {is_sparse: true, remote_prefetch: true, padding_idx: -1l}
  elementwise_add X=e Y=x -> Out=s {axis: -1}
  mul X=s Y=w -> Out=h {x_num_col_dims: 1, y_num_col_dims: 1}
  elementwise_add X=h Y=b -> Out=o {axis: 1}
  square X=o -> Out=q
  mean X=q -> Out=loss
}
)";
constexpr const char* kStartup = R"(# millrace program 1

block 0 {
  persist emb: f32(20, 4)
  persist w: f32(4, 3)
  persist b: f32(3)
  fill_constant -> Out=emb {shape: [20l, 4l], value: 0.5, dtype: 5}
  uniform_random -> Out=w {shape: [4l, 3l], seed: 2, min: -0.5, max: 0.5, dtype: 5}
  fill_constant -> Out=b {shape: [3l], value: 0.25, dtype: 5}
}
)";

std::shared_ptr<const Program> program_of(const char* text) {
  return value_of(parse_program_bytes(text, "text"));
}

constexpr int64_t kRowsOfWorker = 4;

// The rows of some workers, one after another.
Arrays hybrid_batch(int step, int first, int workers) {
  const int64_t rows = workers * kRowsOfWorker;
  std::vector<int64_t> ids;
  std::vector<float> x;
  for (int64_t row = first * kRowsOfWorker; row < first * kRowsOfWorker + rows; ++row) {
    ids.push_back((row * 3 + step * 5) % 20);
    for (int i = 0; i < 4; ++i)
      x.push_back(static_cast<float>((row * 7 + i * 3 + step) % 11) * 0.1F - 0.5F);
  }
  return {{"ids", Array::of<int64_t>({rows, 1}, ids)}, {"x", Array::of<float>({rows, 4}, x)}};
}

using Params = std::map<std::string, std::vector<float>>;

std::vector<float> floats_of(const Array& array) {
  const auto values = array.values<float>();
  return {values.begin(), values.end()};
}

MinimizeOptions by(const UpdateMethod& method) {
  return {.method = method, .learning_rate = 0.1};
}

// Where the processes of a job are, and how they are opened.
struct Place {
  std::function<Connection()> connect;  ///< called for each process
  FleetRole role;                       ///< endpoints, number of workers
  FleetWorkerOptions worker = {.wait_for_servers = std::nullopt};
  std::string loads = {};  ///< folder that servers begin with
  std::string root = {};   ///< of files that servers save
};

Place in_one_process(int servers = 2) {
  const Connection connection = Connection::in_process();
  Place place{[connection] { return connection; }, {.worker_num = kHybridWorkers}};
  for (int i = 0; i < servers; ++i) place.role.server_endpoints.push_back(fmt::format("s{}:1", i));
  return place;
}

Place by_tcp(const std::string& engine) {
  const std::vector<int> ports = value_of(fleet::free_ports(2 + kHybridWorkers));
  Place place{[] { return value_of(Connection::open()); }, {.worker_num = kHybridWorkers}};
  for (size_t i = 0; i < ports.size(); ++i)
    (i < 2 ? place.role.server_endpoints : place.role.worker_endpoints)
        .push_back(fmt::format("127.0.0.1:{}", ports[i]));
  place.worker.engine = engine;
  return place;
}

Fleet process_of(const Place& place, bool is_server, int id, const UpdateMethod& method,
                 FleetStrategy strategy = {.a_sync = false}) {
  FleetRole role = place.role;
  role.is_server = is_server;
  role.id = id;
  strategy.dense_gradients = "all_reduce";
  Fleet fleet(place.connect());
  check(fleet.init(role));
  check(fleet.distributed_optimizer(by(method), strategy));
  check(fleet.minimize(*program_of(kMain), *program_of(kStartup), "loss"));
  return fleet;
}

using Work = std::function<void(Fleet& fleet, int worker)>;

// Runs a job: each worker does its work. Returns the dense parameters of the workers.
std::vector<Params> run_job(const Place& place, const UpdateMethod& method, const Work& work) {
  std::vector<std::thread> threads;
  for (int i = 0; i < static_cast<int>(place.role.server_endpoints.size()); ++i) {
    threads.emplace_back([&, i] {
      Fleet server = process_of(place, true, i, method);
      check(server.init_server(place.loads, {}, {}, {.files_root = place.root}));
      check(server.run_server());
    });
  }
  std::vector<Params> params(kHybridWorkers);
  for (int t = 0; t < kHybridWorkers; ++t) {
    threads.emplace_back([&, t] {
      Fleet worker = process_of(place, false, t, method);
      check(worker.init_worker(place.worker));
      work(worker, t);
      for (const char* const name : {"w", "b"})
        params[static_cast<size_t>(t)][name] = floats_of(value_of(worker.get(name)));
      check(worker.stop_worker());
    });
  }
  for (std::thread& thread : threads) thread.join();
  return params;
}

// Runs steps and keeps the losses.
Work steps(int first, int last, std::vector<float>* losses = nullptr) {
  return [=](Fleet& fleet, int worker) {
    for (int step = first; step < last; ++step) {
      const Arrays got = value_of(fleet.step(hybrid_batch(step, worker, 1), {"loss"}));
      if (losses != nullptr && worker == 0) losses->push_back(floats_of(got.at("loss"))[0]);
    }
  };
}

Params alone(int count, const UpdateMethod& method) {
  const MinimizeResult training =
      value_of(minimize(*program_of(kMain), *program_of(kStartup), "loss", by(method)));
  Executor executor = value_of(Executor::create());
  const Scope scope;
  check(executor.run(*training.startup, scope).status());
  for (int step = 0; step < count; ++step)
    check(executor.run(*training.main, scope, hybrid_batch(step, 0, kHybridWorkers)).status());
  return {{"w", floats_of(value_of(scope.get("w")))}, {"b", floats_of(value_of(scope.get("b")))}};
}

TEST(ApiHybridFleet, TrainsLikeOneProcess) {
  const std::vector<Params> found = run_job(in_one_process(), Sgd{}, steps(0, 6));
  EXPECT_EQ(found[0], found[1]);
  for (const auto& [name, values] : alone(6, Sgd{})) {
    for (size_t i = 0; i < values.size(); ++i)
      EXPECT_NEAR(found[0].at(name)[i], values[i], 2e-6F) << name << " " << i;
  }
  EXPECT_NE(found[0], run_job(in_one_process(), Sgd{}, steps(0, 5))[0]);
}

TEST(ApiHybridFleet, HasTheSameBitsByEachEngine) {
  const std::vector<Params> expected = run_job(in_one_process(), Adam{}, steps(0, 4));
  for (const char* const engine : {"auto", "shm", "gloo"}) {
    SCOPED_TRACE(engine);
    EXPECT_EQ(run_job(by_tcp(engine), Adam{}, steps(0, 4)), expected);
  }
  const TempFolder folder;
  Place meeting = by_tcp("auto");
  meeting.role.worker_endpoints.clear();
  meeting.worker.rendezvous = folder / "meet";
  meeting.worker.join_deadline = std::chrono::seconds(60);
  EXPECT_EQ(run_job(meeting, Adam{}, steps(0, 4)), expected);
}

TEST(ApiHybridFleet, SavedAndContinuedItEndsWithTheSameBits) {
  const TempFolder folder;
  const FleetFolder saved{.root = folder.path(), .folder = "saved"};
  std::vector<float> losses;
  const auto expected = run_job(in_one_process(), Adam{}, steps(0, 6, &losses));
  Place first = in_one_process();
  first.root = folder.path();
  std::vector<float> again;
  const auto after_loading = run_job(first, Adam{}, [&](Fleet& fleet, int worker) {
    steps(0, 3, &again)(fleet, worker);
    check(fleet.barrier_worker());
    check(fleet.save_persistables(saved));
    check(fleet.barrier_worker());
    steps(1, 3)(fleet, worker);
    check(fleet.load_model(saved));
    steps(3, 6, &again)(fleet, worker);
  });
  EXPECT_EQ(after_loading, expected);
  EXPECT_EQ(again, losses);
  Place later = in_one_process(/*servers=*/3);
  later.loads = later.worker.folder = folder / "saved";
  std::vector<float> rest;
  EXPECT_EQ(run_job(later, Adam{}, steps(3, 6, &rest)), expected);
  EXPECT_EQ(rest, std::vector<float>(losses.begin() + 3, losses.end()));
}

// Worker 0 fails before worker 1 comes. In the next job worker 1 is the first to come.
TEST(ApiHybridFleet, AJobThatNeverBeganDoesNotDisturbTheNextOne) {
  Place place = in_one_process();
  Place short_wait = place;
  short_wait.worker.deadline = std::chrono::milliseconds(100);
  {
    Fleet first = process_of(place, false, 0, Sgd{});
    EXPECT_EQ(first.init_worker(short_wait.worker).code(), StatusCode::kDistributed);
  }
  Fleet server = process_of(place, true, 0, Sgd{});
  check(server.init_server());
  Fleet other = process_of(place, true, 1, Sgd{});
  check(other.init_server());
  std::vector<std::thread> threads;
  threads.emplace_back([&] { check(server.run_server()); });
  threads.emplace_back([&] { check(other.run_server()); });
  for (const int worker : {1, 0}) {
    threads.emplace_back([&, worker] {
      Fleet fleet = process_of(place, false, worker, Sgd{});
      check(fleet.init_worker(
          {.wait_for_servers = std::nullopt, .deadline = std::chrono::seconds(20)}));
      check(fleet.step(hybrid_batch(0, worker, 1)).status());
      check(fleet.stop_worker());
    });
    if (worker == 1) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  for (std::thread& thread : threads) thread.join();
}

// What is started with one half of a saved job ends before its first step.
TEST(ApiHybridFleet, OneHalfOfASavedJobIsRefused) {
  const TempFolder folder;
  Place first = in_one_process();
  first.root = folder.path();
  run_job(first, Sgd{}, [&](Fleet& fleet, int worker) {
    steps(0, 2)(fleet, worker);
    check(fleet.wait_for_all());
    check(fleet.save_persistables({.root = folder.path(), .folder = "saved"}));
  });
  Place later = in_one_process(/*servers=*/1);
  later.role.worker_num = 1;
  later.loads = folder / "saved";
  Fleet server = process_of(later, true, 0, Sgd{});
  check(server.init_server(later.loads));
  std::thread serving([&] { check(server.run_server()); });
  Fleet worker = process_of(later, false, 0, Sgd{});
  const Status refused = worker.init_worker(later.worker);
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.message(), HasSubstr("no parameters of a saved job"));
  server.stop_server();
  serving.join();
}

// The other worker, which waits for its gradients, learns of the error.
TEST(ApiHybridFleet, AnErrorOfOneWorkerEndsTheJob) {
  std::vector<Status> ends(kHybridWorkers);
  run_job(in_one_process(), Sgd{}, [&](Fleet& fleet, int worker) {
    steps(0, 2)(fleet, worker);
    Arrays feeds = hybrid_batch(2, worker, 1);
    if (worker == 1) feeds["w"] = Array::of<float>({4, 3}, std::vector<float>(12));
    ends[static_cast<size_t>(worker)] = fleet.step(feeds).status();
  });
  EXPECT_EQ(ends[1].code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(ends[1].message(), HasSubstr("must have the same 'w'"));
  EXPECT_EQ(ends[0].code(), StatusCode::kDistributed);
  EXPECT_THAT(ends[0].message(), AnyOf(HasSubstr("trainer 1"), HasSubstr("rank 1")));
}

// Each learns at once how many steps the other has made.
TEST(ApiHybridFleet, LoopsOfDifferentLengthsEndWithAnError) {
  std::vector<Status> ends(kHybridWorkers);
  run_job(in_one_process(), Sgd{}, [&](Fleet& fleet, int worker) {
    steps(0, 2)(fleet, worker);
    ends[static_cast<size_t>(worker)] =
        worker == 1 ? fleet.wait_for_all() : fleet.step(hybrid_batch(2, worker, 1)).status();
  });
  EXPECT_EQ(ends[0].code(), StatusCode::kDistributed);
  EXPECT_THAT(ends[0].message(), HasSubstr("trainer 1 has ended after 2 steps, trainer 0 begins"));
  EXPECT_THAT(ends[1].message(), HasSubstr("trainer 0 begins another step after 2 steps"));
}

std::string lines_of(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += fmt::format("1 {} 4 0.1 0.2 {} 0.4\n", i % 20, i % 3);
  return text;
}

Dataset examples(const std::string& file, bool in_memory) {
  Dataset data = value_of(Dataset::create(
      *program_of(kMain),
      {.files = {file}, .use_vars = {"ids", "x"}, .in_memory = in_memory, .batch_size = 4}));
  if (in_memory) check(data.load_into_memory());
  return data;
}

TEST(ApiHybridFleet, WorkersMakeTheSameNumberOfStepsOverFiles) {
  const TempFolder folder;
  for (const int lines : {16, 17, 20})
    testing::put_file(folder / fmt::format("part-{}", lines), lines_of(lines));
  run_job(in_one_process(), Sgd{}, [&](Fleet& fleet, int worker) {
    Dataset own = examples(folder / (worker == 0 ? "part-17" : "part-20"), true);
    EXPECT_EQ(value_of(fleet.train_from_dataset(own, {})).batches, 5);
    EXPECT_EQ(value_of(fleet.train_from_dataset(own, {.first_batch = 2})).batches, 3);
  });
  std::vector<Status> ends(kHybridWorkers);
  run_job(in_one_process(), Sgd{}, [&](Fleet& fleet, int worker) {
    Dataset own = examples(folder / (worker == 0 ? "part-16" : "part-17"), true);
    ends[static_cast<size_t>(worker)] = fleet.train_from_dataset(own, {}).status();
  });
  for (const Status& end : ends) EXPECT_THAT(end.message(), HasSubstr("ranks have 4 to 5 batches"));
  run_job(in_one_process(), Sgd{}, [&](Fleet& fleet, int) {
    Dataset own = examples(folder / "part-16", false);
    EXPECT_EQ(fleet.train_from_dataset(own, {}).status().code(), StatusCode::kUnimplemented);
  });
}

// ---- refused

std::string refusal(const FleetStrategy& strategy, const MinimizeOptions& optimizer = by(Sgd{})) {
  Fleet fleet(Connection::in_process());
  check(fleet.init({.worker_num = 2, .server_endpoints = {"a:1"}}));
  const Status set = fleet.distributed_optimizer(optimizer, strategy);
  if (!set.ok()) return set.message();
  return fleet.minimize(*program_of(kMain), *program_of(kStartup), "loss").message();
}

TEST(ApiHybridFleet, WhatItCannotBeCombinedWithIsRefused) {
  EXPECT_THAT(refusal({.dense_gradients = "rings"}), HasSubstr("expected servers or all_reduce"));
  EXPECT_THAT(refusal({.dense_gradients = "all_reduce"},
                      {.method = Sgd{}, .learning_rate = SteppedRate{0.1}}),
              HasSubstr("sets in each step with dense_gradients all_reduce"));
  EXPECT_THAT(
      refusal({.a_sync_configs = {{"k_steps", int64_t{2}}}, .dense_gradients = "all_reduce"}),
      HasSubstr("in a geo job"));
  const FleetStrategy hybrid{.dense_gradients = "all_reduce"};
  EXPECT_THAT(TranspilerStrategy::from(hybrid).status().message(),
              HasSubstr("strategy.dense_gradients"));
  const Place place = in_one_process();
  Fleet server = process_of(place, true, 0, Sgd{});
  EXPECT_THAT(server.init_server({}, {}, {}, {.elastic = true}).message(),
              HasSubstr("service.elastic with dense_gradients all_reduce"));
  const std::chrono::milliseconds second(1000);
  EXPECT_THAT(
      server.init_server({}, {}, {}, {.snapshot_root = "x", .snapshot_interval = second}).message(),
      HasSubstr("service.snapshot_interval with dense_gradients all_reduce"));
  EXPECT_THAT(server.init_server({}, {}, {}, {.snapshot_root = "x"}).message(),
              HasSubstr("expected service.snapshot_every"));
  Fleet other = process_of(place, true, 0, Sgd{}, FleetStrategy{});
  EXPECT_THAT(
      other.init_server({}, {}, {}, {.snapshot_root = "x", .snapshot_every = 1}).message(),
      HasSubstr("service.snapshot_root with dense_gradients all_reduce in an asynchronous"));
  EXPECT_THAT(server.init_worker().message(), HasSubstr("expected a worker"));
}

TEST(ApiHybridFleet, OptionsThatNoWorkerReadsAreRefused) {
  using Options = FleetWorkerOptions;
  const std::chrono::milliseconds second(1000);
  const auto refused = [](const Place& place, const Options& options) {
    return process_of(place, false, 0, Sgd{}).init_worker(options).message();
  };
  EXPECT_THAT(refused(in_one_process(), {.engine = "shm"}), HasSubstr("options.engine"));
  EXPECT_THAT(refused(in_one_process(), {.rendezvous = "x"}), HasSubstr("options.rendezvous"));
  EXPECT_THAT(refused(in_one_process(), {.join_deadline = second}),
              HasSubstr("options.join_deadline"));
  Place unknown = by_tcp("auto");
  unknown.role.worker_endpoints.clear();
  EXPECT_THAT(refused(unknown, {}), HasSubstr("cannot find each other"));
  EXPECT_THAT(refused(by_tcp("auto"), {.engine = "mpi"}), HasSubstr("options.engine mpi"));
  EXPECT_THAT(refused(by_tcp("auto"), {.engine = "ring"}), HasSubstr("found 'ring'"));
  Fleet ordinary(Connection::in_process());
  check(ordinary.init({.server_endpoints = {"a:1"}}));
  check(ordinary.distributed_optimizer(by(Sgd{}), FleetStrategy{}));
  check(ordinary.minimize(*program_of(kMain), *program_of(kStartup), "loss"));
  for (const Options& options : {Options{.folder = "x"}, Options{.engine = "gloo"},
                                 Options{.rendezvous = "x"}, Options{.join_deadline = second}})
    EXPECT_THAT(ordinary.init_worker(options).message(), HasSubstr("only for workers of a job"));
}

}  // namespace
}  // namespace hybrid_fleet_test
}  // namespace millrace::api

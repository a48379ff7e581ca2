// Running jobs of the fleet API: servers of tables and workers in one process, each in a thread.

#include <cmath>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "executor/standard_runtime.h"
#include "fleet/runtime/described_bytes.h"
#include "fleet/runtime/fleet_server.h"
#include "ps/transport/inproc.h"
#include "tests/fleet/nets.h"
#include "tests/fleet/training_job.h"

namespace millrace::fleet {
namespace {

using ::testing::HasSubstr;

// Two lookups of one table, and a layer.
constexpr const char* kTwoLookups[2] = {R"(# millrace program 1

block 0 {
  param emb: f32(50, 4)
  param w: f32(4, 3)
  param b: f32(3)
  var ids: i64(-1, 1)
  var more: i64(-1, 1)
  var e: f32(-1, 4)
  var f: f32(-1, 4)
  var s: f32(-1, 4)
  var h: f32(-1, 3)
  var o: f32(-1, 3)
  var q: f32(-1, 3)
  var loss: f32(1)
  lookup_table Ids=ids W=emb -> Out=e {is_sparse: true, remote_prefetch: true, padding_idx: -1l}
  lookup_table Ids=more W=emb -> Out=f {is_sparse: true, remote_prefetch: true, padding_idx: -1l}
  elementwise_add X=e Y=f -> Out=s {axis: -1}
  mul X=s Y=w -> Out=h {x_num_col_dims: 1, y_num_col_dims: 1}
  elementwise_add X=h Y=b -> Out=o {axis: 1}
  square X=o -> Out=q
  mean X=q -> Out=loss
}
)",
                                        R"(# millrace program 1

block 0 {
  persist emb: f32(50, 4)
  persist w: f32(4, 3)
  persist b: f32(3)
  uniform_random -> Out=emb {shape: [50l, 4l], seed: 1, min: -0.1, max: 0.1, dtype: 5}
  uniform_random -> Out=w {shape: [4l, 3l], seed: 2, min: -0.5, max: 0.5, dtype: 5}
  fill_constant -> Out=b {shape: [3l], value: 0.5, dtype: 5}
}
)"};

executor::NamedValues feeds_of_runtime(int worker, int step) {
  executor::NamedValues feeds;
  constexpr int64_t kRows = 6;
  for (const char* const name : {"ids", "more"}) {
    auto& ids = feeds[name].as<Tensor>();
    check_ok(ids.resize(DType::kInt64, {kRows, 1}));
    for (int64_t i = 0; i < kRows; ++i)
      ids.data<int64_t>()[i] = (i * 7 + step * 3 + worker * 11 + (name[0] == 'm' ? 5 : 0)) % 50;
  }
  auto& x = feeds["x"].as<Tensor>();
  check_ok(x.resize(DType::kFloat32, {kRows, 4}));
  for (int64_t i = 0; i < kRows * 4; ++i)
    x.data<float>()[i] = static_cast<float>((i * 5 + step + worker) % 9) * 0.1F - 0.3F;
  return feeds;
}

// A job that trains a few steps and ends.
struct Outcome {
  std::vector<std::vector<float>> losses;                         ///< by worker
  std::vector<std::map<std::string, std::vector<float>>> params;  ///< by worker, at the end
};

class Job {
 public:
  Job(const TrainingNet& model, bool sync, int workers, int servers,
      const std::vector<std::string>& endpoints = {}, int64_t k_steps = 0) {
    JobSpec spec;
    spec.strategy.set_a_sync(!sync);
    const Status set =
        k_steps > 0 ? spec.strategy.set_a_sync_configs({{"k_steps", ConfigValue(k_steps)}}) : Ok();
    check_ok(set);
    spec.workers = workers;
    for (int i = 0; i < servers; ++i)
      spec.servers.push_back(endpoints.empty() ? "127.0.0.1:" + std::to_string(7000 + i)
                                               : endpoints[static_cast<size_t>(i)]);
    auto made = FleetJob::create(*model.main, *model.startup, std::move(spec));
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    job_.emplace(*std::move(made));
  }

  Outcome run(const std::shared_ptr<ps::Transport>& transport, int steps) {
    Outcome out;
    const int workers = job_->spec().workers;
    out.losses.resize(static_cast<size_t>(workers));
    out.params.resize(static_cast<size_t>(workers));
    std::vector<std::thread> threads;
    for (size_t i = 0; i < job_->spec().servers.size(); ++i)
      threads.emplace_back([&, i] { serve(*transport, static_cast<int>(i)); });
    for (int i = 0; i < workers; ++i)
      threads.emplace_back([&, i] { work(transport, i, steps, out); });
    for (std::thread& thread : threads) thread.join();
    return out;
  }

 private:
  void serve(ps::Transport& transport, int index) {
    const auto role = job_->role({true, index});
    ASSERT_TRUE(role.ok()) << role.status().to_string();
    ServerSetup setup;
    setup.description = role->ps_desc;
    setup.workers = job_->spec().workers;
    setup.server = index;
    setup.servers = static_cast<int>(job_->spec().servers.size());
    const auto server = FleetServer::create(std::move(setup));
    ASSERT_TRUE(server.ok()) << server.status().to_string();
    check_ok((*server)->serve(transport, job_->spec().servers[static_cast<size_t>(index)]));
  }

  void work(const std::shared_ptr<ps::Transport>& transport, int index, int steps, Outcome& out) {
    const auto role = job_->role({false, index});
    ASSERT_TRUE(role.ok()) << role.status().to_string();
    const auto made = FleetWorker::create(worker_setup(*job_, *role, index), transport);
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    FleetWorker& worker = **made;
    check_ok(worker.start());
    for (int step = 0; step < steps; ++step) {
      std::vector<Value> results(1);
      const Status done = worker.step(feeds_of_runtime(index, step), {"loss"}, results);
      check_ok(done);
      if (!done.ok()) break;
      out.losses[static_cast<size_t>(index)].push_back(
          results[0].get_if<Tensor>()->data<float>()[0]);
    }
    check_ok(worker.wait_for_all());
    check_ok(worker.stop());
    for (const char* const name : {"w", "b"}) {
      const auto values = worker.scope().find(name)->get_if<Tensor>()->values<float>();
      out.params[static_cast<size_t>(index)][name] = {values.begin(), values.end()};
    }
  }

  std::optional<FleetJob> job_;
};

// The same steps in one process.
std::map<std::string, std::vector<float>> train_alone(const TrainingNet& model, int workers,
                                                      int steps) {
  const auto runtime = executor::make_runtime("");
  const executor::Executor executor(runtime, {});
  Scope scope;
  std::vector<Value> none;
  check_ok((*executor.prepare(*model.startup, scope))->run({}, {}, none));
  const auto prepared = executor.prepare(*model.main, scope);
  EXPECT_TRUE(prepared.ok()) << prepared.status().to_string();
  for (int step = 0; step < steps; ++step) {
    for (int worker = 0; worker < workers; ++worker)
      check_ok((*prepared)->run(feeds_of_runtime(worker, step), {}, none));
  }
  std::map<std::string, std::vector<float>> out;
  for (const char* const name : {"w", "b"}) {
    const auto values = scope.find(name)->get_if<Tensor>()->values<float>();
    out[name] = {values.begin(), values.end()};
  }
  return out;
}

TEST(FleetRuntime, OneSynchronousWorkerTrainsAsOneProcess) {
  for (const UpdateMethod& method : {UpdateMethod(Sgd{}), UpdateMethod(Adam{})}) {
    const TrainingNet model(kLayerAlone, optimizer_of(method, 0.1));
    Job job(model, true, 1, 2);
    const Outcome run = job.run(std::make_shared<ps::InprocTransport>(), 5);
    const auto wanted = train_alone(model, 1, 5);
    for (const auto& [name, values] : wanted) {
      const std::vector<float>& found = run.params[0].at(name);
      ASSERT_EQ(found.size(), values.size());
      for (size_t i = 0; i < values.size(); ++i)
        EXPECT_NEAR(found[i], values[i], 1e-6F) << name << " " << i;
    }
  }
}

TEST(FleetRuntime, WorkersOfASynchronousJobEndWithTheSameParameters) {
  const TrainingNet model(kTwoLookups, optimizer_of(Sgd{}, 0.1));
  Job job(model, true, 2, 2);
  const Outcome run = job.run(std::make_shared<ps::InprocTransport>(), 20);
  EXPECT_EQ(run.params[0], run.params[1]);
  for (const auto& losses : run.losses) EXPECT_LT(losses.back(), 0.5F * losses.front());
}

TEST(FleetRuntime, AnAsynchronousJobTrainsAndEnds) {
  const TrainingNet model(kTwoLookups, optimizer_of(Sgd{}, 0.1));
  Job job(model, false, 2, 2);
  const Outcome run = job.run(std::make_shared<ps::InprocTransport>(), 200);
  for (const auto& losses : run.losses) {
    EXPECT_TRUE(std::isfinite(losses.back()));
    EXPECT_LT(losses.back(), 0.5F * losses.front());
  }
}

// With one worker the servers add up only its differences: they end with its values.
TEST(FleetRuntime, AGeoJobOfOneWorkerTrainsAsOneProcess) {
  for (const auto* const texts : {&kTwoLookups, &kLayerAlone}) {
    const TrainingNet model(*texts, optimizer_of(Adam{}, 0.1));
    Job job(model, false, 1, 2, {}, 2);
    const Outcome run = job.run(std::make_shared<ps::InprocTransport>(), 6);
    const auto wanted = train_alone(model, 1, 6);
    for (const auto& [name, values] : wanted) {
      const std::vector<float>& found = run.params[0].at(name);
      ASSERT_EQ(found.size(), values.size());
      for (size_t i = 0; i < values.size(); ++i)
        EXPECT_NEAR(found[i], values[i], 1e-5F) << name << " " << i;
    }
  }
}

TEST(FleetRuntime, WorkersOfAGeoJobLearnFromEachOther) {
  const TrainingNet model(kTwoLookups, optimizer_of(Sgd{}, 0.1));
  Job job(model, false, 2, 3, {}, 4);
  const Outcome run = job.run(std::make_shared<ps::InprocTransport>(), 200);
  EXPECT_EQ(run.params[0], run.params[1]);  // the parameters of the servers
  for (const auto& losses : run.losses) {
    EXPECT_TRUE(std::isfinite(losses.back()));
    EXPECT_LT(losses.back(), 0.5F * losses.front());
  }
}

TEST(DescribedTables, RefuseWhatServersDoNotHave) {
  const auto message = [](const std::string& table, const std::string& common = "") {
    return make_described_tables("server_param { downpour_server_param { downpour_table_param { " +
                                     table + " common { trainer_num: 2 " + common + " } } } }",
                                 {})
        .status()
        .message();
  };
  EXPECT_EQ(make_described_tables("", {}).status().message(),
            "ps_desc: no table has the number of workers");
  EXPECT_THAT(make_described_tables("nonsense {", {}).status().message(), HasSubstr("line 1"));
  EXPECT_THAT(message("table_id: 3 type: PS_SPARSE_TABLE table_class: 'Odd'"),
              HasSubstr("sparse table 3 of class 'Odd'"));
  EXPECT_THAT(message("table_id: 4 type: PS_OTHER_TABLE table_class: 'GlobalStepTable'"),
              HasSubstr("table 4 of class 'GlobalStepTable'"));
  EXPECT_THAT(message("table_id: 5 type: PS_DENSE_TABLE table_class: 'Odd'"),
              HasSubstr("dense table 5 of class 'Odd'"));
  const std::string dense = "table_id: 6 type: PS_DENSE_TABLE table_class: 'MemoryDenseTable'";
  const auto dense_message = [&](const std::string& rate, const std::string& attrs) {
    return message(dense, "name: 'adam' table_name: 'd' params: 'LearningRate' initializers: '" +
                              rate + "' attr: '" + attrs + "' dims: 4");
  };
  EXPECT_THAT(dense_message("uniform_random&7&0.5&1", ""),
              HasSubstr("table 'd': LearningRate starts with 'uniform_random&7&0.5&1', expected a "
                        "constant"));
  EXPECT_THAT(dense_message("fill_constant&1", "beta1&0.9#beta2&?"),
              HasSubstr("ps_desc: expected a number for 'beta2', found '?'"));
  EXPECT_THAT(message("table_id: 7 type: PS_SPARSE_TABLE table_class: 'MemorySparseTable' "
                      "accessor { accessor_class: 'CtrCommonAccessor' embed_sgd_param { name: "
                      "'SparseNaiveSGDRule' naive { weight_bounds: -1 } } }"),
              HasSubstr("ps_desc: expected two weight_bounds or none, found 1"));
}

TEST(DescribedBytes, AreThoseOfParametersAndTheirState) {
  const TrainingNet net(kRowsAndLayer, optimizer_of(Momentum{}, 0.1));
  JobSpec spec;
  spec.strategy.set_a_sync(false);
  spec.strategy.set_all_optimizers(true);
  spec.servers = {"127.0.0.1:7200", "127.0.0.1:7201"};
  const auto job = FleetJob::create(*net.main, *net.startup, spec);
  ASSERT_TRUE(job.ok()) << job.status().to_string();
  const auto bytes = [&](int server) {
    return *described_bytes(job->role({true, server})->ps_desc, server, 2);
  };
  // the first server has all 12 rows, each with 4 weights, velocities, and 5 statistics, and 8 of
  // 15 dense parameters
  const DescribedBytes first = bytes(0);
  EXPECT_EQ(first.param_bytes, 4 * (12 * 4 + 8));
  EXPECT_EQ(first.state_bytes, 4 * (12 * (4 + 5) + 8));
  EXPECT_EQ(first.tables, 2);
  const DescribedBytes second = bytes(1);
  EXPECT_EQ(second.param_bytes, 4 * 7);
  EXPECT_EQ(second.state_bytes, 4 * 7);
  EXPECT_EQ(second.tables, 1);
  EXPECT_EQ(described_bytes("x", 0, 2).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace millrace::fleet

#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "executor/collective/shared_group.h"
#include "executor/standard_runtime.h"
#include "fleet/runtime/fleet_server.h"
#include "ps/transport/inproc.h"
#include "tests/fleet/nets.h"
#include "tests/fleet/training_job.h"

/// A synchronous fleet job in this process, and one process that gets the batches of all its
/// workers.
namespace millrace::fleet {

inline constexpr double kEqualRate = 0.05;
inline constexpr int64_t kBatch = 8;

// Some rows occur twice in a batch, some in both batches.
inline int64_t id_at(int worker, int step, int64_t i) {
  return (worker * 6 + i * (i == 7 ? 0 : 1) + step) % 12;
}

// All rows, and some of them again.
constexpr int64_t kWholeBatch = 14;

inline void add_all_ids(int first_worker, int workers, int step, executor::NamedValues& feeds) {
  auto& ids = feeds["all_ids"].as<Tensor>();
  check_ok(ids.resize(DType::kInt64, {workers * kWholeBatch, 1}));
  for (int64_t i = 0; i < workers * kWholeBatch; ++i)
    ids.data<int64_t>()[i] = (i % kWholeBatch + (first_worker + i / kWholeBatch) * 5 + step) % 12;
}

inline executor::NamedValues equal_feeds(int first_worker, int workers, int step) {
  executor::NamedValues feeds;
  auto& ids = feeds["ids"].as<Tensor>();
  auto& x = feeds["x"].as<Tensor>();
  auto& more = feeds["more"].as<Tensor>();
  check_ok(ids.resize(DType::kInt64, {workers * kBatch, 1}));
  check_ok(more.resize(DType::kInt64, {workers * kBatch, 1}));
  check_ok(x.resize(DType::kFloat32, {workers * kBatch, 4}));
  for (int64_t i = 0; i < workers * kBatch; ++i) {
    const int worker = first_worker + static_cast<int>(i / kBatch);
    ids.data<int64_t>()[i] = id_at(worker, step, i % kBatch);
    more.data<int64_t>()[i] = (worker + i % kBatch * 5 + step * 7) % 12;
    for (int64_t k = 0; k < 4; ++k)
      x.data<float>()[i * 4 + k] =
          static_cast<float>((i % kBatch * 5 + step + worker * 3 + k * 2) % 9) * 0.1F - 0.3F;
  }
  add_all_ids(first_worker, workers, step, feeds);
  return feeds;
}

// The feeds of the program.
inline executor::NamedValues feeds_for(const Program& main, int first_worker, int workers,
                                       int step) {
  executor::NamedValues feeds = equal_feeds(first_worker, workers, step);
  std::erase_if(feeds,
                [&](const auto& feed) { return main.root().find_var(feed.first) == nullptr; });
  return feeds;
}

using EqualParams = std::map<std::string, std::vector<float>>;

inline std::vector<float> elements_of(const Value& value) {
  const auto values = value.get_if<Tensor>()->values<float>();
  return {values.begin(), values.end()};
}

inline EqualParams train_together(const TrainingNet& net, int workers, int steps) {
  const executor::Executor executor(executor::make_runtime(""), {});
  Scope scope;
  std::vector<Value> none;
  check_ok((*executor.prepare(*net.startup, scope))->run({}, {}, none));
  const auto prepared = executor.prepare(*net.main, scope);
  check_ok(prepared.status());
  for (int step = 0; step < steps; ++step)
    check_ok((*prepared)->run(feeds_for(*net.main, 0, workers, step), {}, none));
  EqualParams out;
  for (const char* const name : {"emb", "w", "b"}) {
    if (net.main->root().find_var(name) != nullptr) out[name] = elements_of(*scope.find(name));
  }
  return out;
}

inline JobSpec equal_spec(int workers, int servers = 2) {
  JobSpec spec;
  spec.strategy.set_a_sync(false);
  spec.strategy.set_all_optimizers(true);
  spec.workers = workers;
  for (int i = 0; i < servers; ++i) spec.servers.push_back("127.0.0.1:" + std::to_string(7200 + i));
  return spec;
}

// Some servers and workers, each in a thread.
class EqualJob {
 public:
  EqualJob(const TrainingNet& net, int workers, int servers = 2)
      : EqualJob(net, equal_spec(workers, servers)) {}
  EqualJob(const TrainingNet& net, JobSpec spec) : net_(net) {
    auto job = FleetJob::create(*net.main, *net.startup, std::move(spec));
    check_ok(job.status());
    job_.emplace(*std::move(job));
    if (!job_->spec().all_reduces_dense) return;
    auto groups = executor::make_thread_groups(job_->spec().workers, 30'000);
    check_ok(groups.status());
    groups_ = *std::move(groups);
  }

  EqualParams train(int steps) {
    const int servers = static_cast<int>(job_->spec().servers.size());
    for (int i = 0; i < servers; ++i) threads_.emplace_back([this, i] { serve(i); });
    for (int i = 0; i < job_->spec().workers; ++i)
      threads_.emplace_back([this, i, steps] { work(i, steps); });
    for (std::thread& thread : threads_) thread.join();
    return params_;
  }
  // The initial rows of the servers.
  std::vector<float> first_rows;
  bool gives_rows = true;   // servers start with the rows of the one process
  bool same_batch = false;  // all workers have the batches of worker 0
  // The parameters of each worker at its end, without rows.
  std::map<int, EqualParams> of_workers;

 private:
  void serve(int index) {
    const auto role = job_->role({true, index});
    ASSERT_TRUE(role.ok()) << role.status().to_string();
    ServerSetup setup;
    setup.description = role->ps_desc;
    setup.workers = job_->spec().workers;
    setup.server = index;
    setup.servers = static_cast<int>(job_->spec().servers.size());
    const auto server = FleetServer::create(std::move(setup));
    ASSERT_TRUE(server.ok()) << server.status().to_string();
    check_ok((*server)->serve(*transport_, job_->spec().servers[static_cast<size_t>(index)]));
  }

  void give_rows(FleetWorker& worker) {
    const auto& [id, entry] = *worker.tables()->all().begin();
    const auto gathered = worker.tables()->gather(entry);
    ASSERT_TRUE(gathered.ok()) << gathered.status().to_string();
    first_rows = elements_of(*gathered);
    if (!gives_rows) return;
    std::vector<int64_t> rows(12);
    for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<int64_t>(i);
    check_ok(
        worker.table_client().set_sparse(entry.layout, rows, train_together(net_, 1, 0).at("emb")));
  }

  // Connects the workers of a job that averages dense gradients by all-reduce.
  std::shared_ptr<executor::Rings> rings_of(int index) {
    if (groups_.empty()) return nullptr;
    return std::make_shared<executor::Rings>(
        [this, index]() -> StatusOr<std::unique_ptr<executor::CollectiveGroup>> {
          return std::move(groups_[static_cast<size_t>(index)]);
        });
  }

  void work(int index, int steps) {
    const auto role = job_->role({false, index});
    ASSERT_TRUE(role.ok()) << role.status().to_string();
    WorkerSetup setup = worker_setup(*job_, *role, index);
    setup.rings = rings_of(index);
    const auto made = FleetWorker::create(setup, transport_);
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    FleetWorker& worker = **made;
    check_ok(worker.start());
    if (index == 0 && worker.tables() != nullptr) give_rows(worker);
    check_ok(worker.table_client().barrier(ps::CommBarrier::kWorker));
    std::vector<Value> none;
    for (int step = 0; step < steps; ++step) {
      const Status done =
          worker.step(feeds_for(*net_.main, same_batch ? 0 : index, 1, step), {}, none);
      check_ok(done);
      if (!done.ok()) break;
    }
    check_ok(worker.wait_for_all());
    keep_dense(index, worker);
    if (index == 0) keep(worker);
    check_ok(worker.stop());
  }

  void keep(FleetWorker& worker) {
    if (worker.tables() != nullptr) {
      const auto gathered = worker.tables()->gather(worker.tables()->all().begin()->second);
      ASSERT_TRUE(gathered.ok()) << gathered.status().to_string();
      params_["emb"] = elements_of(*gathered);
    }
    const std::lock_guard lock(keeping_);
    for (const auto& [name, values] : of_workers[0]) params_[name] = values;
  }

  void keep_dense(int index, FleetWorker& worker) {
    const std::lock_guard lock(keeping_);
    for (const char* const name : {"w", "b"}) {
      if (net_.main->root().find_var(name) != nullptr)
        of_workers[index][name] = elements_of(*worker.scope().find(name));
    }
  }

  const TrainingNet& net_;
  std::optional<FleetJob> job_;
  std::shared_ptr<ps::Transport> transport_ = std::make_shared<ps::InprocTransport>();
  std::vector<std::thread> threads_;
  EqualParams params_;
  std::mutex keeping_;
  std::vector<std::unique_ptr<executor::CollectiveGroup>> groups_;  // by worker; empty: none
};

inline void expect_equal_params(const EqualParams& found, const EqualParams& wanted) {
  ASSERT_EQ(found.size(), wanted.size());
  for (const auto& [name, values] : wanted) {
    const std::vector<float>& own = found.at(name);
    ASSERT_EQ(own.size(), values.size()) << name;
    for (size_t i = 0; i < values.size(); ++i)
      EXPECT_NEAR(own[i], values[i], 2e-6F) << name << " " << i;
  }
}

inline void expect_equal_job(const TrainingNet& net, int workers, int servers = 2) {
  EqualJob job(net, workers, servers);
  expect_equal_params(job.train(5), train_together(net, workers, 5));
}

}  // namespace millrace::fleet

// A ParallelExecutor on several GPUs, on emulated devices: each has memory that only its own work
// can access, so a value that reaches the wrong device crashes the test.

#include <chrono>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "executor/collective/device_group.h"
#include "executor/collective/group_link.h"
#include "executor/collective/shared_group.h"
#include "executor/feed_values.h"
#include "executor/gpu/gpu_ops.h"
#include "executor/standard_runtime.h"
#include "kernels/gpu/context.h"
#include "kernels/gpu/host_device.h"
#include "tests/executor/parallel/random_net.h"
#include "tests/executor/parallel/small_job.h"

namespace millrace::executor {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Change = void (*)(ParallelOptions&);

// \param last_limit  bytes of memory of the last device; 0: all
ParallelOptions on_gpus(int count, int64_t last_limit = 0) {
  ParallelOptions options = devices(count);
  for (int d = 0; d < count; ++d)
    options.gpus.push_back(std::make_shared<gpu::Context>(
        gpu::open_host_device({.memory_limit = d + 1 == count ? last_limit : 0})));
  options.wait_timeout_ms = 60'000;
  return options;
}

std::vector<float> of_device(const Job& job, int device, const std::string& name) {
  Value copy;
  EXPECT_TRUE(copy_value(*job.executor->local_scope(device).find(name), copy).ok());
  return floats(copy);
}

void expect_near_on_gpus(const std::vector<float>& found, const std::vector<float>& expected,
                         const std::string& what) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  float largest = 1;
  for (const float value : expected) largest = std::max(largest, std::abs(value));
  for (size_t i = 0; i < found.size(); ++i)
    ASSERT_NEAR(found[i], expected[i], 2e-5F * largest) << what << " " << i;
}

TEST(SeveralGpus, TrainAsCpuDevicesDo) {
  const Change changes[] = {
      [](ParallelOptions&) {},
      [](ParallelOptions& o) { o.build_strategy.reduce_strategy = ReduceStrategy::kReduce; },
      [](ParallelOptions& o) { o.build_strategy.fuse_all_reduce_ops = false; },
      [](ParallelOptions& o) { o.build_strategy.micro_batches = 2; },
      [](ParallelOptions& o) { o.build_strategy.enable_backward_optimizer_op_deps = false; },
      [](ParallelOptions& o) {
        o.build_strategy.gradient_scale_strategy = GradientScale::kWeighted;
      },
      [](ParallelOptions& o) { o.exec_strategy.num_iteration_per_drop_scope = 2; },
      [](ParallelOptions& o) { o.exec_strategy.num_iteration_per_run = 2; },
      [](ParallelOptions& o) { o.optimize = false; }};
  for (const Change change : changes) {
    const std::string what = "variant " + std::to_string(&change - changes);
    ParallelOptions options = devices(3);
    change(options);
    Job here(options);
    options = on_gpus(3);
    change(options);
    Job there(options);
    const auto expected = here.train(4, 13);
    const auto found = there.train(4, 13);
    ASSERT_EQ(found.size(), expected.size()) << what;
    for (size_t step = 0; step < found.size(); ++step)
      expect_near_on_gpus(found[step], expected[step], what + " loss");
    for (int d = 0; d < 3; ++d) {
      expect_near_on_gpus(of_device(there, d, "w"), of_device(here, d, "w"), what + " w");
      EXPECT_EQ(of_device(there, d, "w"), of_device(there, 0, "w")) << what;
    }
  }
}

// Gradients do not leave the devices, and steps are recorded around the exchanges.
TEST(SeveralGpus, SteadyStepsCopyFeedsAndFetchesOnly) {
  const ParallelOptions options = on_gpus(2);
  Job job(options);
  job.train(4, 8);
  std::vector<gpu::Traffic> before;
  for (const auto& gpu : options.gpus) before.push_back(gpu->memory().traffic());
  job.train(1, 8);
  for (size_t d = 0; d < 2; ++d) {
    const gpu::Traffic& after = options.gpus[d]->memory().traffic();
    EXPECT_EQ(after.copies_in - before[d].copies_in, 2);    // x and t
    EXPECT_EQ(after.copies_out - before[d].copies_out, 1);  // the loss
    EXPECT_GT(job.executor->gpu(static_cast<int>(d))->replays().recorded_ops(), 0);
    EXPECT_EQ(job.executor->gpu(static_cast<int>(d))->counts().on_cpu, 0);
  }
  EXPECT_THAT(job.executor->plan_text(), HasSubstr("[cpu: exchanges values between devices]"));
}

TEST(SeveralGpus, TrainRandomNets) {
  constexpr int64_t kRows = 12;
  for (uint32_t seed = 0; seed < 8; ++seed) {
    const RandomNet net(seed);
    const RandomNet::Run here = net.start(devices(2));
    ParallelOptions options = on_gpus(2);
    if (seed % 2 == 1) options.build_strategy.reduce_strategy = ReduceStrategy::kReduce;
    const RandomNet::Run there = net.start(options);
    std::vector<Value> expected;
    std::vector<Value> found;
    for (int step = 0; step < 2; ++step) {
      const NamedValues feeds = net.feeds(kRows, step);
      const ParallelFeeds split = ParallelFeeds::split(feeds);
      ASSERT_TRUE(here.executor->run(split, {net.loss()}, expected).ok());
      const Status status = there.executor->run(split, {net.loss()}, found);
      ASSERT_TRUE(status.ok()) << net.describe() << "\n" << status.to_string();
      expect_near_on_gpus(floats(found[0]), floats(expected[0]), net.describe());
    }
  }
}

// The rows of a table whose gradient is sparse; those of device 1 are wrong in one step.
constexpr const char* kLookup = R"(# millrace
block 0 {
    persist w: f32(3, 1)
    persist lr: f32(1)
    var ids: i64(-1, 1)
    var y: f32(-1, 1)
    var loss: f32(1)
    var loss@GRAD: f32(1)
    var y@GRAD: f32(-1, 1)
    var w@GRAD: selected_rows f32(3, 1)
    lookup_table Ids=ids W=w -> Out=y {is_sparse: true}
    mean X=y -> Out=loss
    fill_constant -> Out=loss@GRAD {dtype: 5, op_role: 257, shape: [1], value: 1.0}
    mean_grad Out@GRAD=loss@GRAD X=y -> X@GRAD=y@GRAD {op_role: 1}
    lookup_table_grad Ids=ids Out@GRAD=y@GRAD W=w -> W@GRAD=w@GRAD {is_sparse: true, op_role: 1, op_role_var: ["w", "w@GRAD"]}
    sgd Grad=w@GRAD LearningRate=lr Param=w -> ParamOut=w {op_role: 2, op_role_var: ["w", "w@GRAD"]}
  })";

NamedValues ids(const std::vector<int64_t>& values) {
  NamedValues feeds;
  auto& tensor = feeds["ids"].as<Tensor>();
  EXPECT_TRUE(tensor.resize(DType::kInt64, {static_cast<int64_t>(values.size()), 1}).ok());
  std::copy(values.begin(), values.end(), tensor.data<int64_t>());
  return feeds;
}

TEST(SeveralGpus, GoOnAfterAnErrorOnOneDevice) {
  Job here(devices(2), program_of(kLookup));
  Job there(on_gpus(2), program_of(kLookup));
  std::vector<Value> results;
  for (const bool bad : {false, true, false}) {
    const NamedValues feeds = ids({0, 1, 1, bad ? 7 : 2});
    const Status expected = here.executor->run(ParallelFeeds::split(feeds), {"loss"}, results);
    const Status status = there.executor->run(ParallelFeeds::split(feeds), {"loss"}, results);
    EXPECT_EQ(status.code(), expected.code()) << status.to_string();
    if (bad) {
      EXPECT_THAT(status.to_string(),
                  AllOf(HasSubstr("lookup_table"), HasSubstr("on device 1 in step 1"),
                        HasSubstr("parameters are unchanged by the step")));
    }
    for (int d = 0; d < 2; ++d)
      EXPECT_EQ(of_device(there, d, "w"), of_device(here, d, "w")) << status.to_string();
  }
}

TEST(SeveralGpus, FullMemoryOfOneDeviceEndsTheStepOnAll) {
  for (const bool reduce : {false, true}) {
    ParallelOptions options = on_gpus(3, 900);
    if (reduce) options.build_strategy.reduce_strategy = ReduceStrategy::kReduce;
    Job job(options);
    std::vector<Value> results;
    const auto start = std::chrono::steady_clock::now();
    for (int step = 0; step < 2; ++step) {
      const NamedValues feeds = batch(300, step);
      const Status status = job.executor->run(ParallelFeeds::split(feeds), {"loss"}, results);
      EXPECT_EQ(status.code(), StatusCode::kResource) << status.to_string();
      EXPECT_THAT(status.to_string(),
                  AllOf(HasSubstr("no device memory for 'x': 1200 bytes wanted"), HasSubstr("mul"),
                        HasSubstr("on device 2 in step")));
    }
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
    job.train(2, 9);  // smaller batches fit
    EXPECT_EQ(of_device(job, 2, "w"), of_device(job, 0, "w"));
  }
}

// Processes sum the gradients of their GPUs in host memory.
TEST(SeveralGpus, TrainWithOtherProcesses) {
  for (const int count : {1, 2}) {
    auto groups = make_thread_groups(2, 20'000);
    ASSERT_TRUE(groups.ok());
    std::vector<std::vector<float>> found(2);
    const auto train = [&](int trainer) {
      auto link = make_group_link(*(*groups)[static_cast<size_t>(trainer)], 0);
      ASSERT_TRUE(link.ok()) << link.status().to_string();
      ParallelOptions options = on_gpus(count);
      options.trainers = link->get();
      options.build_strategy.num_trainers = 2;
      options.build_strategy.trainer_id = trainer;
      Job job(options);
      job.train(3, 8);
      found[static_cast<size_t>(trainer)] = of_device(job, count - 1, "w");
    };
    std::jthread first(train, 0);
    std::jthread second(train, 1);
    first.join();
    second.join();
    Job here(devices(count));  // both trainers have the same rows
    here.train(3, 8);
    EXPECT_EQ(found[0], found[1]);
    expect_near_on_gpus(found[0], of_device(here, 0, "w"), "w");
  }
}

TrainerLink& no_link() {
  static const auto groups = make_thread_groups(1, 1'000);
  static const auto link = make_group_link(*groups->front(), 0);
  return **link;
}

// One process with one GPU; its gradients travel from GPU to GPU.
struct GpuRank {
  GpuRank(CollectiveGroup& host, int inter_ranks,
          const std::function<void(ParallelOptions&)>& set) {
    options = on_gpus(1);
    auto group = make_device_group(host, options.gpus.front());
    EXPECT_TRUE(group.ok()) << group.status().to_string();
    on_gpu = *std::move(group);
    link = *make_group_link(host, inter_ranks);
    gpu_link = *make_group_link(*on_gpu, inter_ranks);
    options.trainers = link.get();
    options.trainers_on_gpu = gpu_link.get();
    options.build_strategy.num_trainers = host.size();
    options.build_strategy.trainer_id = host.rank();
    set(options);
  }
  ParallelOptions options;
  std::unique_ptr<CollectiveGroup> on_gpu;
  std::unique_ptr<TrainerLink> link;
  std::unique_ptr<TrainerLink> gpu_link;
};

using Ranks = std::vector<std::unique_ptr<CollectiveGroup>>;

void on_ranks(const Ranks& groups, const std::function<void(CollectiveGroup& host)>& body) {
  std::vector<std::jthread> threads;
  for (const auto& group : groups)
    threads.emplace_back([&body, host = group.get()] { body(*host); });
}

TEST(SeveralGpus, TrainWithOtherProcessesFromGpuToGpu) {
  const Change changes[] = {
      [](ParallelOptions&) {},
      [](ParallelOptions& o) { o.build_strategy.reduce_strategy = ReduceStrategy::kReduce; },
      [](ParallelOptions& o) { o.build_strategy.fuse_all_reduce_ops = false; },
      [](ParallelOptions& o) { o.build_strategy.micro_batches = 2; }};
  for (const Change& change : changes) {
    for (const int ranks : {2, 4}) {
      auto groups = make_thread_groups(ranks, 20'000);
      ASSERT_TRUE(groups.ok());
      std::vector<std::vector<float>> found(static_cast<size_t>(ranks));
      on_ranks(*groups, [&](CollectiveGroup& host) {
        GpuRank rank(host, ranks == 4 ? 2 : 0, change);
        Job job(rank.options);
        job.train(5, 8);
        const GpuOps& ops = *job.executor->gpu(0);
        if (rank.options.build_strategy.micro_batches == 1) {
          EXPECT_GT(ops.replays().recorded_ops(), 0);
          // the losses that were fetched; gradients stay on the device
          EXPECT_LE(ops.context().memory().traffic().bytes_out, 5 * 4);
        }
        found[static_cast<size_t>(host.rank())] = of_device(job, 0, "w");
      });
      Job here(devices(1));  // all ranks have the same rows
      here.train(5, 8);
      for (const auto& values : found) {
        EXPECT_EQ(values, found[0]);
        expect_near_on_gpus(values, of_device(here, 0, "w"), "w");
      }
    }
  }
}

TEST(SeveralGpus, ALostProcessIsNamedByThoseThatExchangeWithIt) {
  auto groups = make_thread_groups(3, 5'000);
  ASSERT_TRUE(groups.ok());
  on_ranks(*groups, [&](CollectiveGroup& host) {
    GpuRank rank(host, 0, [](ParallelOptions&) {});
    Job job(rank.options);
    job.train(2, 8);
    if (host.rank() == 1) return;
    const NamedValues feeds = batch(8, 2);
    std::vector<Value> results;
    const Status status = job.executor->run(ParallelFeeds::split(feeds), {"loss"}, results);
    EXPECT_EQ(status.code(), StatusCode::kDistributed) << status.to_string();
    EXPECT_THAT(status.to_string(), HasSubstr("rank 1"));
  });
}

TEST(SeveralGpus, RefuseOptionsOfCpuDevices) {
  const std::tuple<Change, StatusCode, const char*> cases[] = {
      {[](ParallelOptions& o) { o.devices = 3; }, StatusCode::kInvalidArgument,
       "expected a GPU for each of 3 devices, found 2"},
      {[](ParallelOptions& o) { o.gpus[1] = o.gpus[0]; }, StatusCode::kInvalidArgument,
       "devices 0 and 1 are the same GPU"},
      {[](ParallelOptions& o) { o.exec_strategy.num_threads = 1; }, StatusCode::kUnimplemented,
       "exec_strategy.num_threads 1 with 2 GPUs"},
      {[](ParallelOptions& o) { o.debug_memory = true; }, StatusCode::kUnimplemented,
       "debug_memory with GPUs"},
      {[](ParallelOptions& o) { o.build_strategy.async_mode = true; }, StatusCode::kUnimplemented,
       "build_strategy.async_mode with GPUs"},
      {[](ParallelOptions& o) { o.trainers_on_gpu = o.trainers = &no_link(); },
       StatusCode::kUnimplemented, "expected one GPU in each, found 2"}};
  for (const auto& [change, code, message] : cases) {
    ParallelOptions options = on_gpus(2);
    change(options);
    Scope scope;
    const Status status =
        ParallelExecutor::create(standard_runtime(), *linear_regression(), scope, options).status();
    EXPECT_EQ(status.code(), code) << message;
    EXPECT_THAT(status.to_string(), HasSubstr(message));
  }
}

}  // namespace
}  // namespace millrace::executor

// Collective ops of two ranks in two threads, each with an emulated GPU.

#include <thread>

#include <gtest/gtest.h>

#include "executor/collective/rings.h"
#include "executor/collective/shared_group.h"
#include "executor/executor.h"
#include "executor/standard_runtime.h"
#include "kernels/gpu/context.h"
#include "kernels/gpu/host_device.h"
#include "tests/executor/parallel/random_net.h"
#include "tests/executor/parallel/small_job.h"

namespace millrace::executor {
namespace {

// Two ranks in threads whose collective ops run on their devices or in the memory of the process.
struct RankRun {
  std::vector<std::vector<float>> results;
  gpu::Traffic traffic;  ///< of the last step
  std::string plan;
};
std::vector<RankRun> run_two_ranks(const Program& program, const std::vector<std::string>& fetches,
                                   bool on_devices) {
  auto groups = make_thread_groups(2, 60'000);
  EXPECT_TRUE(groups.ok());
  std::vector<RankRun> runs(2);
  const auto run_rank = [&](size_t rank) {
    const auto rings = std::make_shared<Rings>(
        [&]() -> StatusOr<std::unique_ptr<CollectiveGroup>> { return std::move((*groups)[rank]); },
        std::vector<std::string>{}, static_cast<int>(rank));
    if (on_devices) rings->use_devices();
    const auto context = std::make_shared<gpu::Context>(gpu::open_host_device({}));
    Scope scope;
    scope.local("w") = tensor_value({3, 1}, {1, 2, 3});
    auto prepared = Executor(standard_runtime({}, rings), {.optimize = false, .gpu = context})
                        .prepare(program, scope);
    ASSERT_TRUE(prepared.ok()) << prepared.status().to_string();
    std::vector<Value> results;
    for (int step = 0; step < 3; ++step) {
      const gpu::Traffic before = context->memory().traffic();
      const Status status =
          (*prepared)->run(batch(4, step + static_cast<int>(rank)), fetches, results);
      ASSERT_TRUE(status.ok()) << status.to_string();
      const gpu::Traffic& after = context->memory().traffic();
      runs[rank].traffic = {after.copies_in - before.copies_in, after.bytes_in - before.bytes_in,
                            after.copies_out - before.copies_out,
                            after.bytes_out - before.bytes_out};
    }
    for (const Value& result : results) runs[rank].results.push_back(floats(result));
    runs[rank].plan = (*prepared)->plan_text();
  };
  std::jthread first(run_rank, 0);
  std::jthread second(run_rank, 1);
  first.join();
  second.join();
  return runs;
}

TEST(GpuExecutor, CollectiveOpsExchangeValuesWhereTheyLie) {
  const auto program = program_of(R"(# millrace
block 0 {
    persist w: f32(3, 1)
    var x: f32(-1, 3)
    var y: f32(-1, 1)
    var z: f32(-1, 1)
    var all: f32(-1, 1)
    var part: f32(-1, 1)
    var r: f32(-1, 1)
    c_broadcast X=w -> Out=w {root: 1}
    mul X=x Y=w -> Out=y
    c_sync_calc_stream X=y -> Out=y
    c_allreduce_sum X=y -> Out=y
    c_allreduce_max X=y -> Out=z
    c_allgather X=z -> Out=all {nranks: 2}
    c_reducescatter X=all -> Out=part {nranks: 2}
    barrier X=part -> Out=part
    relu X=part -> Out=r
  })");
  const std::vector<std::string> fetches = {"y", "z", "all", "part", "r"};
  const std::vector<RankRun> there = run_two_ranks(*program, fetches, true);
  const std::vector<RankRun> here = run_two_ranks(*program, fetches, false);
  for (size_t rank = 0; rank < 2; ++rank) {
    ASSERT_EQ(there[rank].results.size(), fetches.size());
    EXPECT_EQ(there[rank].results, here[rank].results);
    EXPECT_EQ(there[rank].results[4].size(), 4U);
    // x is copied to the device, fetched values are copied back: nothing else is copied
    EXPECT_EQ(there[rank].traffic.copies_in, 1);
    EXPECT_EQ(there[rank].traffic.copies_out, 5);
    EXPECT_GT(here[rank].traffic.copies_in, 1);
  }
  EXPECT_EQ(there[0].results[0], there[1].results[0]);
}

// Element types that GPUs cannot exchange, and rows of sparse gradients, are exchanged in the
// memory of the process.
TEST(GpuExecutor, CollectiveOpsSendOtherValuesByTheProcesses) {
  const auto program = program_of(R"(# millrace
block 0 {
    var x: f32(-1, 3)
    var n: i16(-1, 3)
    var m: f32(-1, 3)
    cast X=x -> Out=n {in_dtype: 5, out_dtype: 1}
    c_allreduce_sum X=n -> Out=n
    cast X=n -> Out=m {in_dtype: 1, out_dtype: 5}
  })");
  const std::vector<RankRun> there = run_two_ranks(*program, {"m"}, true);
  const std::vector<RankRun> here = run_two_ranks(*program, {"m"}, false);
  ASSERT_EQ(there[0].results.size(), 1U);
  EXPECT_EQ(there[0].results, here[0].results);
  EXPECT_EQ(there[0].results, there[1].results);
}

}  // namespace
}  // namespace millrace::executor

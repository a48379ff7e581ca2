// No mode may lose the gradients of a trainer. The loss is linear in the param, so its gradient
// does not depend on when it is applied, and two trainers with different batches have to move the
// param by the sum, or in synchronous modes by the mean, of what each moves it alone.

#include <fmt/format.h>

#include "tests/tools/small_job.h"

namespace millrace::tools {
namespace {

constexpr int kRounds = 3;

struct CountedMode {
  const char* name;
  float share;  ///< of each trainer's move
  std::vector<std::string> flags;
};

struct CountedTable {
  const char* name;
  const char* attrs;  ///< of the look-up
};

constexpr const char* kLinear =
    "  var e: f32(-1, 4)\n  var m: f32(-1, 4)\n  var loss: f32(1)\n"
    "  lookup_table Ids=y W=w -> Out=e {{{}}}\n"
    "  elementwise_mul X=e Y=x -> Out=m {{axis: -1}}\n"
    "  mean X=m -> Out=loss\n";

class EveryTrainer : public SmallJob,
                     public ::testing::WithParamInterface<std::tuple<CountedMode, CountedTable>> {};

TEST_P(EveryTrainer, Counts) {
  const auto& [mode, table] = GetParam();
  make_programs(fmt::format(kLinear, table.attrs), "sgd", 2, mode.flags);
  Values own[2];
  Values all;
  for (int t = 0; t < 2; ++t) {
    for (int step = 0; step < kRounds; ++step) {
      add_batch(own[t], fmt::format("step{}/", step), 10 * t + step);
      add_batch(all, fmt::format("t{}/step{}/", t, step), 10 * t + step);
    }
  }
  write("own.npz", own[0]);
  write("other.npz", own[1]);
  write("all.npz", all);
  const std::vector<float> first = train_alone(kRounds, "own.npz");
  const std::vector<float> second = train_alone(kRounds, "other.npz");
  const std::vector<float> after = train_job(kRounds, "all.npz");
  ASSERT_EQ(after.size(), first.size());
  for (size_t i = 0; i < after.size(); ++i) {
    const float start = first_value(static_cast<int64_t>(i));
    const float moved = (first[i] - start) + (second[i] - start);
    ASSERT_NEAR(after[i], start + mode.share * moved, 1e-6F) << i;
  }
}

// Geo servers have slices of a distributed table, as of every parameter.
TEST_F(SmallJob, AGeoJobTrainsADistributedTable) {
  make_programs(fmt::format(kLinear, "is_sparse: true, is_distributed: true"), "sgd", 1,
                {"--transpiler", "geo", "--geo-sgd-mode", "true", "--geo-sgd-need-push-nums", "1"});
  Values own;
  Values all;
  for (int step = 0; step < kRounds; ++step) {
    add_batch(own, fmt::format("step{}/", step), step);
    add_batch(all, fmt::format("t0/step{}/", step), step);
  }
  write("own.npz", own);
  write("all.npz", all);
  const std::vector<float> one = train_alone(kRounds, "own.npz");
  const std::vector<float> after = train_job(kRounds, "all.npz");
  ASSERT_EQ(after.size(), one.size());
  for (size_t i = 0; i < one.size(); ++i) ASSERT_NEAR(after[i], one[i], 1e-6F) << i;
}

INSTANTIATE_TEST_SUITE_P(
    Modes, EveryTrainer,
    ::testing::Combine(
        ::testing::Values(
            CountedMode{"sync", 0.5F, {}}, CountedMode{"one_by_one", 1, {"--sync-mode", "false"}},
            CountedMode{"async", 1, {"--sync-mode", "false", "--config-sync-mode", "false"}},
            CountedMode{"split_at_run_time",
                        1,
                        {"--sync-mode", "false", "--config-sync-mode", "false",
                         "--runtime-split-send-recv", "true"}},
            CountedMode{"half_async",
                        1,
                        {"--sync-mode", "false", "--config-sync-mode", "false",
                         "--runtime-split-send-recv", "true", "--half-async", "true"}},
            CountedMode{"not_async",
                        0.5F,
                        {"--sync-mode", "false", "--config-sync-mode", "false",
                         "--completely-not-async", "true"}}),
        ::testing::Values(CountedTable{"dense", "is_sparse: false"},
                          CountedTable{"sparse", "is_sparse: true"},
                          CountedTable{"by_row", "is_sparse: true, remote_prefetch: true"})),
    [](const auto& test) {
      return std::string(std::get<0>(test.param).name) + "_" + std::get<1>(test.param).name;
    });

}  // namespace
}  // namespace millrace::tools

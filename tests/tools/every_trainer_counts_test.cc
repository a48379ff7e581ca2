// No mode may lose the gradients of a trainer. The loss is linear in the param, so its gradient
// does not depend on when it is applied, and two trainers with different batches have to move the
// param by the sum, or in synchronous modes by the mean, of what each moves it alone.

#include <algorithm>

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
  const char* attrs;  ///< of the lookup
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

// A table whose rows do not divide by the servers is gathered with its own number of rows, and read
// by one process again.
TEST_F(SmallJob, ADistributedTableOfOddHeightReturnsWhole) {
  constexpr const char* kNet = "# millrace program 1\n\nblock 0 {{\n  {} w: f32(5, 4)\n{}}}\n";
  write("net", fmt::format(kNet, "param",
                           "  var x: f32(-1, 4) need_check_feed\n"
                           "  var y: i64(-1, 1) need_check_feed\n" +
                               fmt::format(kLinear, "is_sparse: true, is_distributed: true")));
  write("startup",
        fmt::format(kNet, "persist",
                    "  fill_constant -> Out=w {shape: [5l, 4l], value: 0.5, dtype: 5}\n"));
  write("min.json",
        R"({"losses": ["loss"], "optimizer": [{"type": "sgd", "learning_rate": 1.0}]})");
  succeed("transpile-program", {"--program", at("net"), "--startup", at("startup"), "--minimize",
                                at("min.json"), "-o", at("alone"), "-q"});
  const std::string programs = at("alone/main/");
  succeed("transpile-program",
          {"--program", programs + "__model__", "--startup", programs + "__startup__", "--pservers",
           "127.0.0.1:7300,127.0.0.1:7301", "--trainers", "1", "-o", at("job"), "-q"});
  for (const char* const prefix : {"step0/", "t0/step0/"}) {
    Values feeds;
    auto& x = feeds[prefix + std::string("x")].as<Tensor>();
    auto& y = feeds[prefix + std::string("y")].as<Tensor>();
    ASSERT_TRUE(x.resize(DType::kFloat32, {2, 4}).ok() && y.resize(DType::kInt64, {2, 1}).ok());
    std::fill_n(x.data<float>(), 8, 1.0F);
    y.data<int64_t>()[0] = 4;
    y.data<int64_t>()[1] = 1;
    write(prefix[0] == 't' ? "all.npz" : "own.npz", feeds);
  }
  const Words job{"--cluster", "inproc", "--transpiled", at("job"), "--feed-steps", at("all.npz")};
  succeed("run-program",
          {"--program", programs + "__model__", "--startup", programs + "__startup__",
           "--feed-steps", at("own.npz"), "--save-persistables", at("one.npz"), "-q"});
  succeed("run-program", job, {"--save-persistables", at("w.npz"), "-q"});
  const auto one = io::read_values(at("one.npz"));
  const auto all = io::read_values(at("w.npz"));
  ASSERT_TRUE(one.ok() && all.ok());
  const Tensor& expected = *one->at("w").get_if<Tensor>();
  const Tensor& found = *all->at("w").get_if<Tensor>();
  ASSERT_EQ(found.dims(), expected.dims()) << describe(all->at("w"));
  for (int64_t i = 0; i < 20; ++i)
    EXPECT_FLOAT_EQ(found.data<float>()[i], expected.data<float>()[i]) << i;
  succeed("run-program", job, {"--params", at("w.npz"), "-q"});
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

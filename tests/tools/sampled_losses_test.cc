// Losses over many classes whose weight is on servers: jobs end with the values of one process; so
// does a geo job with a distributed table, which the original refuses.
// Trainers fetch the rows of the classes or nodes of a step; geo trainers send those they trained.

#include <fmt/format.h>

#include "tests/tools/small_job.h"

namespace millrace::tools {
namespace {

constexpr int kSteps = 5;
constexpr const char* kNce =
    "nce Input=x Label=y Weight=w -> Cost=cost SampleLogits=scores SampleLabels=classes "
    "{num_total_classes: 6000, num_neg_samples: 5, sampler: 1, seed: 9, ";
constexpr const char* kTree =
    "hierarchical_sigmoid X=x Label=y W=w -> Out=cost PreOut=scores {num_classes: 6001, ";
constexpr const char* kDistributed =
    "lookup_table Ids=y W=w -> Out=cost {is_distributed: true, padding_idx: -1l, ";

struct LossJob {
  const char* name;
  const char* loss;
  int trainers;
  std::vector<std::string> flags;
  int columns = 1;  // of what the loss op computes
};

class SampledLosses : public SmallJob, public ::testing::WithParamInterface<LossJob> {};

TEST_P(SampledLosses, EndWithTheValuesOfOneProcess) {
  const LossJob& job = GetParam();
  make_programs(fmt::format("  var cost: f32(-1, {})\n  var scores: f32(-1, -1)\n"
                            "  var classes: i64(-1, 6)\n  var loss: f32(1)\n"
                            "  {}is_sparse: true, remote_prefetch: true}}\n"
                            "  mean X=cost -> Out=loss\n",
                            job.columns, job.loss),
                "adagrad", job.trainers, job.flags);
  // the same batches for the one process and for every trainer, so that means are those of one
  Values own;
  Values all;
  for (int step = 0; step < kSteps; ++step) {
    add_batch(own, fmt::format("step{}/", step), step);
    for (int t = 0; t < job.trainers; ++t)
      add_batch(all, fmt::format("t{}/step{}/", t, step), step);
  }
  write("own.npz", own);
  write("all.npz", all);
  const std::vector<float> one = train_alone(kSteps, "own.npz");
  const std::vector<float> after = train_job(kSteps, "all.npz");
  ASSERT_EQ(after.size(), one.size());
  int trained = 0;
  for (size_t i = 0; i < one.size(); ++i) {
    ASSERT_NEAR(after[i], one[i], 1e-6F) << i;
    trained += one[i] != first_value(static_cast<int64_t>(i)) ? 1 : 0;
  }
  EXPECT_GT(trained, 4 * kSteps) << "the one process trains rows";
}

const std::vector<std::string> kGeo = {
    "--transpiler", "geo", "--geo-sgd-mode", "true", "--geo-sgd-need-push-nums", "1"};
INSTANTIATE_TEST_SUITE_P(
    Jobs, SampledLosses,
    ::testing::Values(
        LossJob{"nce_sync", kNce, 2, {}}, LossJob{"tree_sync", kTree, 2, {}},
        LossJob{"nce_async", kNce, 1, {"--sync-mode", "false", "--config-sync-mode", "false"}},
        LossJob{"nce_one_by_one", kNce, 1, {"--sync-mode", "false"}},
        LossJob{"nce_geo", kNce, 1, kGeo}, LossJob{"tree_geo", kTree, 1, kGeo},
        LossJob{"distributed_geo", kDistributed, 1, kGeo, 4}),
    [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace millrace::tools

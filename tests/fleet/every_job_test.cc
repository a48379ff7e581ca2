// Synchronous fleet jobs with an embedding: every optimizer, and a schedule, with 1, 2 and 4
// workers and 1, 2 and 3 servers, ends as one process that gets the batches of all workers.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/fleet/equal_job.h"

namespace millrace::fleet {
namespace {

using ::testing::HasSubstr;

// Every worker looks up every row in every step: one process moves all rows in every step, too.
std::string all_rows_text(int width, bool is_sparse) {
  return fmt::format(R"(# millrace program 1

block 0 {{
  param emb: f32(12, {0})
  param w: f32({0}, 3)
  param b: f32(3)
  var all_ids: i64(-1, 1)
  var e: f32(-1, {0})
  var h: f32(-1, 3)
  var o: f32(-1, 3)
  var q: f32(-1, 3)
  var loss: f32(1)
  lookup_table Ids=all_ids W=emb -> Out=e {{is_sparse: {1}, remote_prefetch: {1}, padding_idx: -1l}}
  mul X=e Y=w -> Out=h {{x_num_col_dims: 1, y_num_col_dims: 1}}
  elementwise_add X=h Y=b -> Out=o {{axis: 1}}
  square X=o -> Out=q
  mean X=q -> Out=loss
}}
)",
                     width, is_sparse);
}

std::string start_text(int width) {
  return fmt::format(R"(# millrace program 1

block 0 {{
  persist emb: f32(12, {0})
  persist w: f32({0}, 3)
  persist b: f32(3)
  uniform_random -> Out=emb {{shape: [12l, {0}l], seed: 1, min: -0.5, max: 0.5, dtype: 5}}
  uniform_random -> Out=w {{shape: [{0}l, 3l], seed: 2, min: -0.5, max: 0.5, dtype: 5}}
  fill_constant -> Out=b {{shape: [3l], value: 0.5, dtype: 5}}
}}
)",
                     width);
}

TrainingNet all_rows_net(const MinimizeOptions& options, int width, bool is_sparse) {
  const std::string main = all_rows_text(width, is_sparse);
  const std::string start = start_text(width);
  const char* const texts[2] = {main.c_str(), start.c_str()};
  return TrainingNet(texts, options);
}

struct Optimized {
  const char* name;
  UpdateMethod method;
  LearningRate rate = kEqualRate;
};

std::vector<Optimized> all_optimizers() {
  return {{"sgd", Sgd{}},
          {"momentum", Momentum{.momentum = 0.8}},
          {"nesterov", Momentum{.momentum = 0.8, .use_nesterov = true}},
          {"adagrad", Adagrad{}},
          {"decayed adagrad", DecayedAdagrad{}},
          {"adadelta", Adadelta{}},
          {"rmsprop", RmsProp{.momentum = 0.5}},
          {"adam", Adam{.epsilon = 1e-3}},
          {"lazy adam", Adam{.epsilon = 1e-3, .lazy_mode = true}},
          {"adamw", AdamW{.epsilon = 1e-3, .weight_decay = 0.25}},
          {"adamax", Adamax{.epsilon = 1e-3}},
          {"ftrl", Ftrl{.l1 = 0.01, .l2 = 0.1}},
          {"sgd with a schedule", Sgd{}, Decay(ExponentialDecay{0.1, 2, 0.5})},
          {"adam with a schedule", Adam{.epsilon = 1e-3}, Decay(NoamDecay{4, 3})}};
}

// The one process looks rows up densely: its op adam corrects rows by the powers of the next step
// if their gradient is sparse, servers do not.
void expect_equal_in_all_sizes(const MinimizeOptions& options, int width) {
  const TrainingNet rows = all_rows_net(options, width, true);
  const TrainingNet dense = all_rows_net(options, width, false);
  for (const int workers : {1, 2, 4}) {
    const EqualParams wanted = train_together(dense, workers, 4);
    for (const int servers : {1, 2, 3}) {
      SCOPED_TRACE(fmt::format("{} workers, {} servers", workers, servers));
      EqualJob job(rows, workers, servers);
      expect_equal_params(job.train(4), wanted);
    }
  }
}

TEST(FleetEqual, EveryOptimizerInAllSizes) {
  for (const auto& [name, method, rate] : all_optimizers()) {
    SCOPED_TRACE(name);
    expect_equal_in_all_sizes(optimizer_of(method, rate), 4);
  }
}

TEST(FleetEqual, EmbeddingsOfOneElement) {
  for (const auto& [name, method, rate] :
       {Optimized{"sgd", Sgd{}}, {"adam", Adam{.epsilon = 1e-3}}, {"adagrad", Adagrad{}}}) {
    SCOPED_TRACE(name);
    expect_equal_in_all_sizes(optimizer_of(method, rate), 1);
  }
}

// Lamb has no rows: its norms need all of them. Dense parameters must be on one server.
TEST(FleetEqual, LambInAllSizes) {
  const MinimizeOptions lamb = optimizer_of(Lamb{.lamb_weight_decay = 0.5}, kEqualRate);
  for (const int workers : {1, 2, 4}) expect_equal_job(TrainingNet(kLayerAlone, lamb), workers, 1);
  const TrainingNet rows = all_rows_net(lamb, 4, true);
  for (const int servers : {1, 2, 3}) {
    const auto job = FleetJob::create(*rows.main, *rows.startup, equal_spec(2, servers));
    ASSERT_TRUE(job.ok()) << job.status().to_string();
    EXPECT_THAT(job->role({false, 0}).status().message(),
                HasSubstr("'emb' is updated by 'lamb', which needs all rows at once"));
  }
}

// ---- clipping by norms, on the workers

std::vector<GradientClip> norms() {
  return {ClipByNorm{0.05}, ClipByGlobalNorm{0.05}};
}

MinimizeOptions clipped(const UpdateMethod& method, const GradientClip& clip) {
  MinimizeOptions options = optimizer_of(method, kEqualRate);
  options.clip = clip;
  return options;
}

TEST(FleetEqual, RowsAreClippedByNorms) {
  for (const UpdateMethod& method : {UpdateMethod(Sgd{}), UpdateMethod(Adagrad{})}) {
    const EqualParams unclipped =
        train_together(TrainingNet(kRowsAndLayer, optimizer_of(method, kEqualRate)), 1, 5);
    for (const GradientClip& clip : norms()) {
      SCOPED_TRACE(clip.index());
      const TrainingNet net(kRowsAndLayer, clipped(method, clip));
      EXPECT_NE(train_together(net, 1, 5), unclipped);
      expect_equal_job(net, 1);
    }
  }
}

// One process also trains the padding row, which no lookup reads; servers do not have it.
TEST(FleetEqual, TheNormIsThatOfAllLookupsOfATable) {
  for (const GradientClip& clip : norms()) {
    SCOPED_TRACE(clip.index());
    const TrainingNet net(kPaddedLookups, clipped(Sgd{}, clip));
    EqualParams wanted = train_together(net, 1, 5);
    std::fill_n(wanted.at("emb").begin() + 12, 4, 0.0F);
    EqualJob job(net, 1);
    expect_equal_params(job.train(5), wanted);
  }
}

TEST(FleetEqual, RowsAreRegularizedAfterTheyAreClipped) {
  for (const GradientClip& clip : norms()) {
    SCOPED_TRACE(clip.index());
    MinimizeOptions options = clipped(Momentum{}, clip);
    options.regularization = L2Decay{0.25};
    expect_equal_job(all_rows_net(options, 4, true), 1);
  }
}

TEST(FleetEqual, OnlyTheEmbeddingIsClipped) {
  for (const GradientClip& clip : norms()) {
    MinimizeOptions options = optimizer_of(Sgd{}, kEqualRate);
    options.parameter_options["emb"].clip = clip;
    expect_equal_job(TrainingNet(kRowsAndLayer, options), 1);
  }
}

TEST(FleetEqual, EveryWorkerClipsItsOwnGradients) {
  for (const GradientClip& clip : norms()) {
    const TrainingNet net(kPaddedLookups, clipped(Sgd{}, clip));
    EqualJob one(net, 1);
    EqualJob two(net, 2);
    two.same_batch = true;
    expect_equal_params(two.train(4), one.train(4));
  }
}

}  // namespace
}  // namespace millrace::fleet

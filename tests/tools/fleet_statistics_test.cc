// Statistics of data_norm in a fleet job: a table of the servers sums them.

#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/npz.h"
#include "tests/tools/ctr_folder.h"

namespace millrace::tools {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kSummedSteps = 4;
constexpr int kSummedRows = 3;

constexpr const char* kNormalizedMain = R"(# millrace program 1

block 0 {
  param emb: f32(12, 3)
  param w: f32(2, 1)
  param dn.batch_size: f32(2)
  param dn.batch_sum: f32(2)
  param dn.batch_square_sum: f32(2)
  var ids: i64(-1, 1)
  var x: f32(-1, 2)
  var y: f32(-1, 2)
  var means: f32(2)
  var scales: f32(2)
  var e: f32(-1, 3)
  var h: f32(-1, 1)
  var rows: f32(1)
  var dense: f32(1)
  var loss: f32(1)
  lookup_table Ids=ids W=emb -> Out=e {is_sparse: true, remote_prefetch: true, padding_idx: -1l}
  reduce_sum X=e -> Out=rows {reduce_all: true}
  data_norm X=x BatchSize=dn.batch_size BatchSum=dn.batch_sum BatchSquareSum=dn.batch_square_sum -> Y=y Means=means Scales=scales {epsilon: 0.25}
  mul X=y Y=w -> Out=h {x_num_col_dims: 1, y_num_col_dims: 1}
  reduce_sum X=h -> Out=dense {reduce_all: true}
  sum X=rows, dense -> Out=loss
}
)";
constexpr const char* kNormalizedStartup = R"(# millrace program 1

block 0 {
  persist emb: f32(12, 3)
  persist w: f32(2, 1)
  persist dn.batch_size: f32(2)
  persist dn.batch_sum: f32(2)
  persist dn.batch_square_sum: f32(2)
  fill_constant -> Out=emb {shape: [12l, 3l], value: 1.0, dtype: 5}
  fill_constant -> Out=w {shape: [2l, 1l], value: 1.0, dtype: 5}
  fill_constant -> Out=dn.batch_size {shape: [2l], value: 10.0, dtype: 5}
  fill_constant -> Out=dn.batch_sum {shape: [2l], value: 5.0, dtype: 5}
  fill_constant -> Out=dn.batch_square_sum {shape: [2l], value: 20.0, dtype: 5}
}
)";

float input_of(int step, int row, int column) {
  return static_cast<float>((step * 5 + row * 3 + column * 2) % 7 - 2);
}

class FleetStatistics : public CtrFolder {
 protected:
  void SetUp() override {
    CtrFolder::SetUp();
    write("main.prog", kNormalizedMain);
    write("startup.prog", kNormalizedStartup);
    write("min.json",
          R"({"losses": ["loss"], "optimizer": [{"type": "sgd", "learning_rate": 0.5}]})");
    NamedValues all;
    for (int step = 0; step < kSummedSteps; ++step) {
      auto& ids = all[fmt::format("t0/step{}/ids", step)].as<Tensor>();
      auto& x = all[fmt::format("t0/step{}/x", step)].as<Tensor>();
      check(ids.resize(DType::kInt64, {kSummedRows, 1}));
      check(x.resize(DType::kFloat32, {kSummedRows, 2}));
      for (int row = 0; row < kSummedRows; ++row) {
        ids.data<int64_t>()[row] = (step + row) % 12;
        for (int c = 0; c < 2; ++c) x.data<float>()[row * 2 + c] = input_of(step, row, c);
      }
    }
    write("feeds.npz", *io::npz_bytes(all));
  }

  Arrays train(const Words& job) {
    const Ended made =
        run("transpile-program",
            joined({"--program", at("main.prog"), "--startup", at("startup.prog"), "-o", at("job")},
                   job));
    EXPECT_EQ(made.code, 0) << made.output;
    said_ = made.output;
    succeed("run-program",
            {"--cluster", "inproc", "--transpiled", at("job"), "--feed-steps", at("feeds.npz"),
             "--steps", std::to_string(kSummedSteps), "--fetch", "loss", "--output", at("out.npz"),
             "--save-persistables", at("after.npz"), "-q"});
    return floats_in(at("after.npz"));
  }

  std::string said_;
};

TEST_F(FleetStatistics, DecayAndAddWhatEachBatchHas) {
  write("fleet.json",
        R"({"mode": "sync", "pservers": "127.0.0.1:7201,127.0.0.1:7202", "trainers": 1})");
  const Arrays after = train({"--minimize", at("min.json"), "--fleet", at("fleet.json")});
  EXPECT_THAT(said_, HasSubstr("decay by 0.999999 in each push"));
  for (int c = 0; c < 2; ++c) {
    double size = 10;
    double sum = 5;
    double squares = 20;
    for (int step = 0; step < kSummedSteps; ++step) {
      const double mean = sum / size;
      double added = 0;
      double spread = 0.25 * kSummedRows;  // epsilon of each row
      for (int row = 0; row < kSummedRows; ++row) {
        const double x = input_of(step, row, c);
        added += x;
        spread += (x - mean) * (x - mean);
      }
      size = 0.999999 * size + kSummedRows;
      sum = 0.999999 * sum + added;
      squares = 0.999999 * squares + spread;
    }
    const auto at_column = static_cast<size_t>(c);
    EXPECT_NEAR(after.at("dn.batch_size")[at_column], size, 1e-4) << c;
    EXPECT_NEAR(after.at("dn.batch_sum")[at_column], sum, 1e-4) << c;
    EXPECT_NEAR(after.at("dn.batch_square_sum")[at_column], squares, 1e-3) << c;
    EXPECT_NE(after.at("w")[at_column], 1.0F);
  }
}

// Workers of geo jobs and servers with optimizer blocks run the optimizer, as one process does.
TEST_F(FleetStatistics, TheOptimizerUpdatesThemWhereItRuns) {
  write("fleet.json", R"({"mode": "geo", "a_sync_configs": {"k_steps": 1}, "trainers": 1,
                          "pservers": "127.0.0.1:7201,127.0.0.1:7202"})");
  const Arrays after = train({"--minimize", at("min.json"), "--fleet", at("fleet.json")});
  EXPECT_THAT(said_, Not(HasSubstr("data_norm")));
  for (size_t c = 0; c < 2; ++c) {
    double sum = 5;
    for (int step = 0; step < kSummedSteps; ++step) {
      for (int row = 0; row < kSummedRows; ++row)
        sum -= 0.5 * input_of(step, row, static_cast<int>(c));
    }
    EXPECT_NEAR(after.at("dn.batch_size")[c], 10 - 0.5 * kSummedRows * kSummedSteps, 1e-4);
    EXPECT_NEAR(after.at("dn.batch_sum")[c], sum, 1e-4);
  }
}

}  // namespace
}  // namespace millrace::tools

// Properties of the kernels of ops/rnn that the reference corpus does not cover: gradients compared
// with finite differences, in particular for rows of different length in reverse direction (where
// the corpus has another gradient, see below), ops that it lacks with values worked out by hand,
// messages.
#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/kernels/run_op.h"

namespace millrace::kernels {
namespace {

using ::testing::HasSubstr;

const Lod kLod({{0, 2, 2, 5}});  // the second sequence is empty

RunOp lod_layer(const char* type, int64_t gates, bool reverse) {
  RunOp op(type);
  op.in("Input", {5, gates * 3}, waves(5 * gates * 3), DType::kFloat64, kLod)
      .in("Weight", {3, gates * 3}, waves(gates * 9, 1), DType::kFloat64)
      .in("H0", {3, 3}, waves(9, 2), DType::kFloat64)
      .attr("is_reverse", reverse)
      .out("Hidden")
      .out("BatchGate");
  return op;
}

TEST(Lstm, GradientsAgreeWithFiniteDifferences) {
  for (const bool reverse : {false, true}) {
    RunOp op = lod_layer("lstm", 4, reverse);
    op.in("C0", {3, 3}, waves(9, 3), DType::kFloat64)
        .in("Bias", {1, 21}, waves(21, 4), DType::kFloat64)
        .out("Cell")
        .out("BatchCellPreAct");
    EXPECT_LT(op.gradient_error({"Input", "Weight", "Bias", "H0", "C0"}, "Hidden0"), 1e-7);
  }
}

TEST(Lstm, MoreSequencesThanRowsHaveFirstStates) {
  RunOp op("lstm");
  op.in("Input", {2, 12}, waves(24), DType::kFloat64, Lod({{0, 0, 0, 2, 2, 2, 2}}))
      .in("Weight", {3, 12}, waves(36, 1), DType::kFloat64)
      .in("H0", {6, 3}, waves(18, 2), DType::kFloat64)
      .in("C0", {6, 3}, waves(18, 3), DType::kFloat64)
      .in("Bias", {1, 21}, waves(21, 4), DType::kFloat64)
      .out("Hidden")
      .out("Cell")
      .out("BatchGate")
      .out("BatchCellPreAct");
  EXPECT_LT(op.gradient_error({"Input", "Weight", "Bias", "H0", "C0"}, "Hidden0"), 1e-7);
}

TEST(Lstmp, GradientsAgreeWithFiniteDifferences) {
  RunOp op("lstmp");
  op.in("Input", {5, 12}, waves(60), DType::kFloat64, kLod)
      .in("Weight", {2, 12}, waves(24, 1), DType::kFloat64)
      .in("ProjWeight", {3, 2}, waves(6, 2), DType::kFloat64)
      .in("Bias", {1, 21}, waves(21, 3), DType::kFloat64)
      .in("H0", {3, 2}, waves(6, 4), DType::kFloat64)
      .in("C0", {3, 3}, waves(9, 5), DType::kFloat64)
      .out("Projection")
      .out("Cell")
      .out("BatchGate")
      .out("BatchCellPreAct")
      .out("BatchHidden");
  EXPECT_LT(op.gradient_error({"Input", "Weight", "ProjWeight", "Bias", "H0", "C0"}, "Projection0"),
            1e-7);
}

TEST(Lstmp, ProjectsAndClips) {
  RunOp op("lstmp");
  // one time step of one cell: all gates are 0.5, the candidate is tanh(2)
  op.in("Input", {1, 4}, {2, 0, 0, 0}, DType::kFloat32, Lod({{0, 1}}))
      .in("Weight", {1, 4}, {0, 0, 0, 0})
      .in("ProjWeight", {1, 1}, {3})
      .in("Bias", {1, 4}, {0, 0, 0, 0})
      .attr("use_peepholes", false)
      .attr("cell_clip", 0.25F)
      .attr("proj_clip", 0.3F)
      .attr("proj_activation", std::string("identity"))
      .out("Projection")
      .out("Cell");
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_NEAR(op.values("Cell0")[0], 0.25, 1e-6);       // of 0.482
  EXPECT_NEAR(op.values("Projection0")[0], 0.3, 1e-6);  // of 3 * 0.5 * tanh(0.25)
}

TEST(Gru, GradientsAgreeWithFiniteDifferences) {
  for (const bool origin : {false, true}) {
    RunOp op = lod_layer("gru", 3, origin);
    op.in("Bias", {1, 9}, waves(9, 4), DType::kFloat64)
        .attr("origin_mode", origin)
        .out("BatchResetHiddenPrev")
        .out("BatchHidden");
    EXPECT_LT(op.gradient_error({"Input", "Weight", "Bias", "H0"}, "Hidden0"), 1e-7);
  }
}

TEST(LstmUnit, StepsByHandAndHasItsGradient) {
  RunOp op("lstm_unit");
  op.in("X", {1, 4}, {0, 1, 0, 2}).in("C_prev", {1, 1}, {4}).attr("forget_bias", 1.0F);
  op.out("C").out("H");
  ASSERT_EQ(op.run_text(), "ok");
  const double c = 4 / (1 + std::exp(-2.0)) + 0.5 * std::tanh(2.0);
  EXPECT_NEAR(op.values("C0")[0], c, 1e-5);
  EXPECT_NEAR(op.values("H0")[0], 0.5 * std::tanh(c), 1e-5);

  RunOp grad("lstm_unit");
  grad.in("X", {3, 8}, waves(24), DType::kFloat64)
      .in("C_prev", {3, 2}, waves(6, 1), DType::kFloat64)
      .out("C")
      .out("H");
  EXPECT_LT(grad.gradient_error({"X", "C_prev"}, "H0"), 1e-7);
}

RunOp dense(const std::string& mode, int layers, bool two_ways) {
  const int64_t gates = mode == "LSTM" ? 4 : (mode == "GRU" ? 3 : 1);
  const int64_t directions = two_ways ? 2 : 1;
  const int64_t parts = layers * directions;
  RunOp op("rnn");
  op.in("Input", {3, 2, 3}, waves(18), DType::kFloat64);
  op.in("PreState", {parts, 2, 2}, waves(parts * 4, 1), DType::kFloat64);
  if (mode == "LSTM") op.in("PreState", {parts, 2, 2}, waves(parts * 4, 2), DType::kFloat64);
  for (int64_t p = 0; p < parts; ++p) {
    const int64_t width = p < directions ? 3 : 2 * directions;
    op.in("WeightList", {gates * 2, width}, waves(gates * 2 * width, 3.0 + p), DType::kFloat64);
    op.in("WeightList", {gates * 2, 2}, waves(gates * 4, 9.0 + p), DType::kFloat64);
  }
  for (int64_t k = 0; k < 2 * parts; ++k)
    op.in("WeightList", {gates * 2}, waves(gates * 2, 20.0 + k), DType::kFloat64);
  op.in("SequenceLength", {2}, {3, 2}, DType::kInt32)
      .attr("mode", mode)
      .attr("num_layers", layers)
      .attr("hidden_size", 2)
      .attr("input_size", 3)
      .attr("is_bidirec", two_ways)
      .out("Out")
      .out("State", mode == "LSTM" ? 2 : 1)
      .out("Reserve")
      .out("DropoutState");
  return op;
}

// For the backward direction of padded rows the corpus has other gradients than these.
TEST(Rnn, GradientsAgreeWithFiniteDifferences) {
  for (const char* const mode : {"LSTM", "GRU", "RNN_TANH", "RNN_RELU"}) {
    for (const int layers : {1, 2}) {
      SCOPED_TRACE(std::string(mode) + std::to_string(layers));
      EXPECT_LT(
          dense(mode, layers, true).gradient_error({"Input", "PreState", "WeightList"}, "Out0"),
          1e-6);
    }
  }
}

TEST(Rnn, DropsOutBetweenLayersInTrainingOnly) {
  RunOp train = dense("RNN_TANH", 2, false);
  train.attr("dropout_prob", 1.0F);
  ASSERT_EQ(train.run_text(), "ok");
  RunOp test = dense("RNN_TANH", 2, false);
  test.attr("dropout_prob", 1.0F).attr("is_test", true);
  ASSERT_EQ(test.run_text(), "ok");
  RunOp plain = dense("RNN_TANH", 2, false);
  ASSERT_EQ(plain.run_text(), "ok");
  EXPECT_EQ(test.values("Out0"), plain.values("Out0"));
  EXPECT_NE(train.values("Out0"), plain.values("Out0"));
}

TEST(Rnn, NamesWhatDoesNotFit) {
  RunOp lstm("lstm");
  lstm.in("Input", {5, 12}, waves(60)).in("Weight", {3, 12}, waves(36)).out("Hidden").out("Cell");
  EXPECT_THAT(lstm.run_text(), HasSubstr("Input must have LoD"));

  RunOp gru = lod_layer("gru", 3, false);
  gru.out("BatchResetHiddenPrev").out("BatchHidden").in("Bias", {1, 3}, {1}, DType::kFloat64);
  EXPECT_THAT(gru.run_text(), HasSubstr("'Bias' has shape [1, 3], expected [1, 9]"));

  RunOp rnn = dense("GRU", 1, false);
  rnn.attr("num_layers", 2);
  EXPECT_THAT(rnn.run_text(), HasSubstr("'PreState' has shape [1, 2, 2]"));
}

}  // namespace
}  // namespace millrace::kernels

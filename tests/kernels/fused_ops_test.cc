// Ops that replace several others, compared with those or with values worked out by hand.
#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/kernels/run_op.h"

namespace millrace::kernels {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::Pointwise;
using Values = std::vector<double>;

const Lod kTwo({{0, 3, 5}});

Values product(const Values& x, int64_t rows, const Values& w, int64_t columns) {
  RunOp op("mul");
  const auto inner = static_cast<int64_t>(w.size()) / columns;
  op.in("X", {rows, inner}, x, kF64).in("Y", {inner, columns}, w, kF64).out("Out");
  EXPECT_EQ(op.run_text(), "ok");
  return op.values("Out0");
}

// fusion_lstm and the lstm that it replaces, with all options that both have.
void expect_lstm(bool peepholes, bool reverse, bool states, const Lod& lod = kTwo) {
  const int64_t sequences = lod.sequences(0);
  const int64_t bias = peepholes ? 21 : 12;
  RunOp fused("fusion_lstm");
  RunOp plain("lstm");
  fused.in("X", {5, 4}, waves(20), kF64, lod).in("WeightX", {4, 12}, waves(48, 1), kF64);
  plain.in("Input", {5, 12}, product(waves(20), 5, waves(48, 1), 12), kF64, lod);
  for (RunOp* const op : {&fused, &plain}) {
    op->in(op == &fused ? "WeightH" : "Weight", {3, 12}, waves(36, 2), kF64);
    op->in("Bias", {1, bias}, waves(bias, 3), kF64);
    if (states)
      op->in("H0", {sequences, 3}, waves(3 * sequences, 4), kF64)
          .in("C0", {sequences, 3}, waves(3 * sequences, 5), kF64);
    op->attr("use_peepholes", peepholes).attr("is_reverse", reverse).out("Hidden").out("Cell");
    ASSERT_EQ(op->run_text(), "ok");
  }
  for (const char* const name : {"Hidden0", "Cell0"}) {
    EXPECT_THAT(fused.values(name), Pointwise(DoubleNear(1e-12), plain.values(name)));
    EXPECT_EQ(fused.tensor(name).lod(), lod);
  }
}

TEST(FusionLstm, IsAnLstmOfAProduct) {
  expect_lstm(false, false, false);
  expect_lstm(true, false, true);
  expect_lstm(true, true, true);
}

TEST(FusionLstm, TakesSequencesWithoutRows) {
  expect_lstm(true, false, true, Lod({{0, 0, 2, 2, 5}}));
}

TEST(FusionLstm, WantsSequences) {
  RunOp op("fusion_lstm");
  op.in("X", {5, 4}, {1}).in("WeightX", {4, 12}, {1}).in("WeightH", {3, 12}, {1});
  op.in("Bias", {1, 21}, {1}).out("Hidden").out("Cell");
  EXPECT_THAT(op.run_text(), HasSubstr("X must have LoD"));
}

// They have no value, so that readers get an error.
TEST(FusionLstm, DoesNotMakeItsIntermediates) {
  RunOp op("fusion_lstm");
  op.in("X", {5, 4}, {1}, DType::kFloat32, kTwo).in("WeightX", {4, 12}, {1});
  op.in("WeightH", {3, 12}, {1}).in("Bias", {1, 21}, {1}).out("Hidden").out("Cell").out("XX");
  ASSERT_EQ(op.run_text(), "ok");
  const auto* const made = op.value("XX0").get_if<Tensor>();
  EXPECT_TRUE(made == nullptr || !made->initialized());
}

// The table already includes the bias of the projection; the values after it are the peephole
// weights.
TEST(FusedEmbeddingFcLstm, IsAnLstmOfRows) {
  const Values table = waves(7 * 12, 1);
  const std::vector<size_t> ids = {6, 0, 2, 2, 5};
  Values rows;
  for (const size_t id : ids)
    rows.insert(rows.end(), table.begin() + static_cast<std::ptrdiff_t>(id * 12),
                table.begin() + static_cast<std::ptrdiff_t>(id * 12 + 12));
  Values bias = waves(21, 3);
  RunOp fused("fused_embedding_fc_lstm");
  fused.in("Ids", {5, 1}, Values(ids.begin(), ids.end()), kI64, kTwo);
  fused.in("Embeddings", {7, 12}, table, kF64).in("WeightH", {3, 12}, waves(36, 2), kF64);
  fused.in("Bias", {1, 21}, bias, kF64).out("Hidden").out("Cell");
  std::fill_n(bias.begin(), 12, 0.0);
  RunOp plain("lstm");
  plain.in("Input", {5, 12}, rows, kF64, kTwo).in("Weight", {3, 12}, waves(36, 2), kF64);
  plain.in("Bias", {1, 21}, bias, kF64).out("Hidden").out("Cell");
  ASSERT_EQ(fused.run_text(), "ok");
  ASSERT_EQ(plain.run_text(), "ok");
  EXPECT_THAT(fused.values("Hidden0"), Pointwise(DoubleNear(1e-12), plain.values("Hidden0")));
  EXPECT_THAT(fused.values("Cell0"), Pointwise(DoubleNear(1e-12), plain.values("Cell0")));
  EXPECT_EQ(fused.tensor("Hidden0").lod(), kTwo);
}

TEST(FusedEmbeddingFcLstm, RefusesIdsBeyondTheTable) {
  RunOp op("fused_embedding_fc_lstm");
  op.in("Ids", {5, 1}, {0, 1, 7, 1, 1}, kI64, kTwo).in("Embeddings", {7, 12}, {1});
  op.in("WeightH", {3, 12}, {1}).in("Bias", {1, 21}, {1}).out("Hidden").out("Cell");
  EXPECT_THAT(op.run_text(), HasSubstr("Ids has 7 at 2, expected a number in [0, 7)"));
}

// origin_mode has an effect, unlike in the original, whose kernel ignores it: the op replaces a
// gru, which has two different results.
TEST(FusionGru, IsAGruOfAProduct) {
  for (const bool origin : {false, true}) {
    RunOp fused("fusion_gru");
    RunOp plain("gru");
    fused.in("X", {5, 4}, waves(20), kF64, kTwo).in("WeightX", {4, 9}, waves(36, 1), kF64);
    plain.in("Input", {5, 9}, product(waves(20), 5, waves(36, 1), 9), kF64, kTwo);
    for (RunOp* const op : {&fused, &plain}) {
      op->in(op == &fused ? "WeightH" : "Weight", {3, 9}, waves(27, 2), kF64);
      op->in("Bias", {1, 9}, waves(9, 3), kF64).in("H0", {2, 3}, waves(6, 4), kF64);
      op->attr("origin_mode", origin).attr("is_reverse", origin).out("Hidden");
      ASSERT_EQ(op->run_text(), "ok");
    }
    EXPECT_THAT(fused.values("Hidden0"), Pointwise(DoubleNear(1e-12), plain.values("Hidden0")));
    EXPECT_EQ(fused.tensor("Hidden0").lod(), kTwo);
  }
}

// One cell, and no weights except those of the attention: the gates are 1/2 and the candidate is
// the tanh of its bias, for any input.
TEST(AttentionLstm, StepsWithoutWeights) {
  RunOp op("attention_lstm");
  op.in("X", {2, 1}, {1, 2}, kF64, Lod({{0, 2}})).in("C0", {1, 1}, {4}, kF64);
  op.in("AttentionWeight", {2, 1}, {1, 1}, kF64).in("LSTMWeight", {2, 4}, Values(8, 0), kF64);
  op.in("LSTMBias", {1, 4}, {0, 0, 0, 1}, kF64).out("Hidden").out("Cell");
  ASSERT_EQ(op.run_text(), "ok");
  const double first = 2 + std::tanh(1.0) / 2;
  const double second = first / 2 + std::tanh(1.0) / 2;
  EXPECT_THAT(op.values("Cell0"), Pointwise(DoubleNear(1e-12), Values{first, second}));
  EXPECT_THAT(op.values("Hidden0"),
              Pointwise(DoubleNear(1e-12), Values{std::tanh(first) / 2, std::tanh(second) / 2}));
}

// The candidate is the attended input: the rows weighted by softmax of relu(x + c).
TEST(AttentionLstm, WeighsTheRows) {
  RunOp op("attention_lstm");
  op.in("X", {2, 1}, {1, 3}, kF64, Lod({{0, 2}})).in("C0", {1, 1}, {-2}, kF64);
  op.in("AttentionWeight", {2, 1}, {1, 1}, kF64);
  op.in("LSTMWeight", {2, 4}, {0, 0, 0, 0, 0, 0, 0, 1}, kF64);
  op.in("LSTMBias", {1, 4}, Values(4, 0), kF64).out("Hidden").out("Cell");
  op.attr<std::string>("candidate_activation", "identity");
  ASSERT_EQ(op.run_text(), "ok");
  const double share = 1 / (1 + std::exp(1.0));  // scores 0 and 1
  const double first = -1 + (share * 1 + (1 - share) * 3) / 2;
  EXPECT_NEAR(op.values("Cell0")[0], first, 1e-12);
  const double next = 1 / (1 + std::exp(2.0));  // first > 0: scores 1 + first and 3 + first
  EXPECT_NEAR(op.values("Cell0")[1], first / 2 + (next + (1 - next) * 3) / 2, 1e-12);
}

TEST(FusionSeqpoolConcat, PoolsSideBySide) {
  RunOp op("fusion_seqpool_concat");
  op.in("X", {4, 2}, {1, 2, 3, 4, 5, 6, 7, 8}, kF64, Lod({{0, 3, 3, 4}}));
  op.in("X", {4, 1}, {10, 20, 30, 40}, kF64, Lod({{0, 1, 2, 4}})).out("Out");
  op.attr<std::string>("pooltype", "AVERAGE");
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(op.values("Out0"), ElementsAre(3, 4, 10, 0, 0, 20, 7, 8, 35));
  EXPECT_EQ(op.tensor("Out0").lod(), Lod({{0, 1, 2, 3}}));
}

TEST(FusionSeqpoolConcat, WantsEquallyManySequences) {
  RunOp op("fusion_seqpool_concat");
  op.in("X", {4, 2}, {1}, kF64, Lod({{0, 3, 4}})).in("X", {4, 1}, {1}, kF64, Lod({{0, 4}}));
  op.out("Out");
  EXPECT_THAT(op.run_text(), HasSubstr("X 1 must be a matrix with 2 sequences"));
}

TEST(FusionSeqpoolCvmConcat, HasShowsAndClicksAsLogarithms) {
  RunOp op("fusion_seqpool_cvm_concat");
  op.in("X", {3, 3}, {1, 1, 5, 2, 0, 6, 3, 2, 7}, kF64, Lod({{0, 2, 3}}));
  op.in("CVM", {2, 2}, {1}, kF64).out("Out");
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(op.values("Out0"),
              Pointwise(DoubleNear(1e-12), Values{std::log(4), std::log(2) - std::log(4), 11,
                                                  std::log(4), std::log(3) - std::log(4), 7}));
  EXPECT_EQ(op.tensor("Out0").lod(), Lod({{0, 1, 2}}));
}

TEST(FusionSeqpoolCvmConcat, LeavesShowsAndClicksOut) {
  RunOp op("fusion_seqpool_cvm_concat");
  op.in("X", {3, 3}, {1, 1, 5, 2, 0, 6, 3, 2, 7}, kF64, Lod({{0, 2, 3}}));
  op.in("X", {2, 4}, {1, 2, 3, 4, 5, 6, 7, 8}, kF64, Lod({{0, 1, 2}}));
  op.in("CVM", {2, 2}, {1}, kF64).out("Out").attr("use_cvm", false);
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(op.values("Out0"), ElementsAre(11, 3, 4, 7, 7, 8));
}

TEST(FusionSeqconvEltaddRelu, IsAConvolutionWithABias) {
  RunOp op("fusion_seqconv_eltadd_relu");
  op.in("X", {4, 1}, {1, 2, 3, 4}, kF64, Lod({{0, 3, 4}}));
  op.in("Filter", {3, 2}, {1, -1, 10, -10, 100, -100}, kF64).in("Bias", {1, 2}, {1, 322}, kF64);
  op.attr("contextLength", 3).attr("contextStart", -1).out("Out");
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(op.values("Out0"), ElementsAre(211, 112, 322, 1, 33, 290, 41, 282));
  EXPECT_EQ(op.tensor("Out0").lod(), Lod({{0, 3, 4}}));
}

TEST(FusionSeqexpandConcatFc, RepeatsRowsForEachOfTheSequence) {
  RunOp op("fusion_seqexpand_concat_fc");
  op.in("X", {3, 1}, {1, 2, 3}, kF64, Lod({{0, 2, 3}})).in("X", {2, 2}, {1, 2, 3, 4}, kF64);
  op.in("FCWeight", {3, 1}, {100, 10, 1}, kF64).in("FCBias", {1, 1}, {-250}, kF64).out("Out");
  op.attr<std::string>("fc_activation", "relu");
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(op.values("Out0"), ElementsAre(0, 0, 84));
  EXPECT_EQ(op.tensor("Out0").lod(), Lod({{0, 2, 3}}));
}

TEST(FusionSeqexpandConcatFc, WantsARowForEachSequence) {
  RunOp op("fusion_seqexpand_concat_fc");
  op.in("X", {3, 1}, {1}, kF64, Lod({{0, 2, 3}})).in("X", {3, 2}, {1}, kF64);
  op.in("FCWeight", {3, 1}, {1}, kF64).out("Out");
  EXPECT_THAT(op.run_text(), HasSubstr("X 1 must be a matrix with a row for each of the 2"));
}

TEST(FusionRepeatedFcRelu, RectifiesEveryLayer) {
  RunOp op("fusion_repeated_fc_relu");
  op.in("X", {2, 1}, {1, -1}, kF64, Lod({{0, 1, 2}}));
  op.in("W", {1, 2}, {1, -1}, kF64).in("W", {2, 1}, {2, -3}, kF64);
  op.in("Bias", {2}, {0, 0.5}, kF64).in("Bias", {1, 1}, {1}, kF64).out("ReluOut").out("Out");
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(op.values("ReluOut0"), ElementsAre(1, 0, 0, 1.5));
  EXPECT_THAT(op.values("Out0"), ElementsAre(3, 0));
  EXPECT_EQ(op.tensor("Out0").lod(), Lod({{0, 1, 2}}));
}

TEST(FusionSquaredMatSub, SubtractsTheSquares) {
  RunOp op("fusion_squared_mat_sub");
  op.in("X", {1, 2}, {1, 2}, kF64).in("Y", {2, 1}, {3, 4}, kF64).attr("scalar", 0.5F);
  op.out("SquaredX").out("SquaredY").out("SquaredXY").out("Out");
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(op.values("SquaredX0"), ElementsAre(1, 4));
  EXPECT_THAT(op.values("SquaredY0"), ElementsAre(9, 16));
  EXPECT_THAT(op.values("SquaredXY0"), ElementsAre(121));
  EXPECT_THAT(op.values("Out0"), ElementsAre(24));
}

// One head of width 1 over rows of width 1; Q and K are what W has of them times the row.
RunOp one_head(double q, double k) {
  RunOp op("multihead_matmul");
  op.in("Input", {1, 2, 1}, {1, 2}, kF64).in("W", {1, 3, 1}, {q, k, 10}, kF64);
  op.in("Bias", {3, 1}, {0, 0, 1}, kF64).attr("alpha", 0.5F).out("Out");
  return op;
}

TEST(MultiheadMatmul, IsAttentionOfItsProjections) {
  RunOp even = one_head(0, 0);
  ASSERT_EQ(even.run_text(), "ok");
  EXPECT_THAT(even.values("Out0"), ElementsAre(16, 16));
  RunOp op = one_head(1, 2);
  ASSERT_EQ(op.run_text(), "ok");
  const auto mean = [](double slope) {
    const double share = 1 / (1 + std::exp(slope));
    return share * 11 + (1 - share) * 21;
  };
  EXPECT_THAT(op.values("Out0"), Pointwise(DoubleNear(1e-12), Values{mean(1), mean(2)}));
  op.in("BiasQK", {1, 1, 1, 2}, {0, -1000}, kF64);
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(op.values("Out0"), Pointwise(DoubleNear(1e-12), Values{11, 11}));
}

TEST(MultiheadMatmul, RefusesAMaskOfAnotherShape) {
  RunOp op = one_head(1, 2);
  op.in("BiasQK", {1, 1, 1, 3}, {0}, kF64);
  EXPECT_THAT(op.run_text(), HasSubstr("cannot be broadcast to [1, 1, 2, 2]"));
}

TEST(FusedFcElementwiseLayernorm, IsLayerNormOfASum) {
  Values sum = product(waves(6), 2, waves(12, 1), 4);
  const Values bias = waves(4, 2);
  const Values y = waves(8, 3);
  for (size_t i = 0; i < sum.size(); ++i) sum[i] = std::max(sum[i] + bias[i % 4], 0.0) + y[i];
  RunOp plain("layer_norm");
  RunOp fused("fused_fc_elementwise_layernorm");
  plain.in("X", {2, 4}, sum, kF64).in("Bias", {4}, waves(4, 5), kF64).out("Y");
  fused.in("X", {2, 3}, waves(6), kF64).in("W", {3, 4}, waves(12, 1), kF64);
  fused.in("Bias0", {4}, bias, kF64).in("Y", {2, 4}, y, kF64).in("Bias1", {4}, waves(4, 5), kF64);
  fused.attr<std::string>("activation_type", "relu").out("Out");
  for (RunOp* const op : {&plain, &fused}) {
    op->in("Scale", {4}, waves(4, 4), kF64).out("Mean").out("Variance");
    ASSERT_EQ(op->run_text(), "ok");
  }
  EXPECT_THAT(fused.values("Out0"), Pointwise(DoubleNear(1e-12), plain.values("Y0")));
  EXPECT_THAT(fused.values("Mean0"), Pointwise(DoubleNear(1e-12), plain.values("Mean0")));
  EXPECT_THAT(fused.values("Variance0"), Pointwise(DoubleNear(1e-12), plain.values("Variance0")));
}

}  // namespace
}  // namespace millrace::kernels

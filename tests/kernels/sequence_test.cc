// Kernels of ops/sequence, compared with sums over all sequences and hand-worked values, and
// messages.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/kernels/run_op.h"

namespace millrace::kernels {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Values = std::vector<double>;

// Calls body with every sequence of `length` numbers below `limit`.
void each_sequence(size_t length, int limit, const std::function<void(const Values&)>& body) {
  Values sequence(length, 0);
  for (;;) {
    body(sequence);
    size_t i = 0;
    while (i < length && ++sequence[i] == limit) sequence[i++] = 0;
    if (i == length) return;
  }
}

constexpr int kTags = 3;

double crf_score(const Values& emission, const Values& transition, const Values& path) {
  const auto at = [&](size_t row, double tag) {
    return transition[row * kTags + static_cast<size_t>(tag)];
  };
  double score = at(0, path.front()) + at(1, path.back());
  for (size_t r = 0; r < path.size(); ++r) {
    score += emission[r * kTags + static_cast<size_t>(path[r])];
    if (r > 0) score += at(static_cast<size_t>(path[r - 1]) + 2, path[r]);
  }
  return score;
}

RunOp crf(const char* type) {
  RunOp op(type);
  op.in("Emission", {5, kTags}, waves(15, 0.3), kF64, Lod({{0, 4, 5}}));
  op.in("Transition", {kTags + 2, kTags}, waves(15, 2), kF64);
  return op;
}

TEST(LinearChainCrf, IsTheSumOverAllPaths) {
  RunOp op = crf("linear_chain_crf");
  const Values labels{2, 0, 1, 1, 2};
  op.in("Label", {5, 1}, labels, kI64, Lod({{0, 4, 5}}));
  op.out("Alpha").out("EmissionExps").out("TransitionExps").out("LogLikelihood");
  ASSERT_EQ(op.run_text(), "ok");
  double sum = 0;
  each_sequence(4, kTags, [&](const Values& path) {
    sum += std::exp(crf_score(waves(15, 0.3), waves(15, 2), path));
  });
  const Values right(labels.begin(), labels.begin() + 4);
  EXPECT_NEAR(op.values("LogLikelihood0")[0],
              std::log(sum) - crf_score(waves(15, 0.3), waves(15, 2), right), 1e-9);
  EXPECT_LT(op.gradient_error({"Emission", "Transition"}, "LogLikelihood0"), 1e-6);
}

TEST(LinearChainCrf, ChecksLabels) {
  RunOp op = crf("linear_chain_crf");
  op.in("Label", {5, 1}, {2, 0, 3, 1, 2}, kI64, Lod({{0, 4, 5}}));
  op.out("LogLikelihood");
  EXPECT_THAT(op.run_text(), HasSubstr("label 2 is 3, expected a class in [0, 3)"));
}

TEST(CrfDecoding, FindsTheBestPath) {
  RunOp op = crf("crf_decoding");
  op.out("ViterbiPath");
  ASSERT_EQ(op.run_text(), "ok");
  Values best;
  double most = -1e9;
  each_sequence(4, kTags, [&](const Values& path) {
    const double score = crf_score(waves(15, 0.3), waves(15, 2), path);
    if (score > most) best = path;
    most = std::max(most, score);
  });
  Values found = op.values("ViterbiPath0");
  ASSERT_EQ(found.size(), 5U);
  found.pop_back();
  EXPECT_EQ(found, best);
}

// Collapses an alignment: repeats are merged, blanks (class 0) removed.
Values collapsed(const Values& alignment) {
  Values left;
  for (size_t i = 0; i < alignment.size(); ++i) {
    if (alignment[i] != 0 && (i == 0 || alignment[i] != alignment[i - 1]))
      left.push_back(alignment[i]);
  }
  return left;
}

RunOp ctc(const Values& labels) {
  RunOp op("warpctc");
  op.in("Logits", {5, 3}, waves(15, 0.8), kF64, Lod({{0, 5}}));
  const auto count = static_cast<int64_t>(labels.size());
  op.in("Label", {count, 1}, labels, DType::kInt32, Lod({{0, count}}));
  op.out("Loss").out("WarpCTCGrad");
  return op;
}

TEST(WarpCtc, RefusesLabelsWithFractions) {
  RunOp op("warpctc");
  op.in("Logits", {5, 3}, {0}, kF64, Lod({{0, 5}}));
  op.in("Label", {1, 1}, {1.5}, DType::kFloat32, Lod({{0, 1}})).out("Loss").out("WarpCTCGrad");
  EXPECT_EQ(op.run_text(), "expected integers, found f32 [1, 1]");
}

TEST(WarpCtc, IsTheSumOverAllAlignments) {
  const Values logits = waves(15, 0.8);
  for (const Values& labels : {Values{1, 2}, Values{2, 2}, Values{1}, Values{2, 1, 2}}) {
    RunOp op = ctc(labels);
    ASSERT_EQ(op.run_text(), "ok");
    double sum = 0;
    each_sequence(5, 3, [&](const Values& alignment) {
      if (collapsed(alignment) != labels) return;
      double probability = 1;
      for (size_t t = 0; t < 5; ++t) {
        double all = 0;
        for (size_t c = 0; c < 3; ++c) all += std::exp(logits[t * 3 + c]);
        probability *= std::exp(logits[t * 3 + static_cast<size_t>(alignment[t])]) / all;
      }
      sum += probability;
    });
    EXPECT_NEAR(op.values("Loss0")[0], -std::log(sum), 1e-9);
    EXPECT_LT(ctc(labels).gradient_error({"Logits"}, "Loss0"), 1e-6);
  }
}

TEST(WarpCtc, LabelsWithoutProbabilityHaveALoss) {
  for (const double logit : {-1000.0, -std::numeric_limits<double>::infinity()}) {
    RunOp op("warpctc");
    op.in("Logits", {1, 3}, {0, logit, 1}, DType::kFloat32, Lod({{0, 1}}));
    op.in("Label", {1, 1}, {1}, DType::kInt32, Lod({{0, 1}})).out("Loss").out("WarpCTCGrad");
    ASSERT_EQ(op.run_text(), "ok");
    EXPECT_NEAR(op.values("Loss0")[0], 87.3365, 1e-4);
    EXPECT_NEAR(op.values("WarpCTCGrad0")[1], -1, 1e-6);
  }
}

TEST(WarpCtc, ChecksLabels) {
  RunOp op = ctc({1, 3});
  EXPECT_THAT(op.run_text(), HasSubstr("label 1 is 3, expected a class in [0, 3)"));
}

TEST(CtcAlign, MergesAndDrops) {
  RunOp op("ctc_align");
  op.in("Input", {8, 1}, {0, 1, 1, 0, 1, 2, 0, 0}, kI64, Lod({{0, 5, 8}})).out("Output");
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(op.values("Output0"), ElementsAre(1, 1, 2));
  EXPECT_TRUE(op.tensor("Output0").lod() == Lod({{0, 2, 3}}));
}

TEST(EditDistance, CountsSteps) {
  RunOp op("edit_distance");
  op.in("Hyps", {6, 1}, {1, 2, 3, 4, 5, 6}, kI64, Lod({{0, 4, 6}}));
  op.in("Refs", {5, 1}, {1, 3, 4, 7, 8}, kI64, Lod({{0, 3, 5}}));
  op.attr("normalized", false).out("Out").out("SequenceNum");
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(op.values("Out0"), ElementsAre(1, 2));
  EXPECT_THAT(op.values("SequenceNum0"), ElementsAre(2));
}

// Expected values are those of the original: the sequences of the first level, in rows.
TEST(CtcAlign, TakesTheFirstOfSeveralLevels) {
  RunOp op("ctc_align");
  op.in("Input", {14, 1}, {0, 1, 1, 2, 0, 4, 0, 4, 5, 6, 6, 0, 7, 7}, kI64,
        Lod({{0, 2, 3}, {0, 4, 9, 14}}));
  op.attr("merge_repeated", true).out("Output");
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(op.values("Output0"), ElementsAre(1, 2, 4, 4, 5, 6, 7));
  EXPECT_TRUE(op.tensor("Output0").lod() == Lod({{0, 5, 7}}));
}

// Ops of the original that take the entries of the first level for rows.
TEST(FirstLevel, MustEndAtTheLastRow) {
  const Lod uneven({{0, 1, 3}, {0, 2, 4, 6}});
  const Lod even({{0, 1, 3}, {0, 1, 2, 3}});
  const std::string message = "the first level of the LoD of X must end with the 6 rows";
  RunOp pooled("fusion_seqpool_concat");
  pooled.in("X", {6, 2}, waves(12), DType::kFloat32, uneven).attr("pooltype", "SUM").out("Out");
  EXPECT_THAT(pooled.run_text(), HasSubstr(message));
  RunOp pooled_rows("fusion_seqpool_concat");
  pooled_rows.in("X", {3, 1}, {1, 2, 4}, DType::kFloat32, even).attr("pooltype", "SUM").out("Out");
  ASSERT_EQ(pooled_rows.run_text(), "ok");
  EXPECT_THAT(pooled_rows.values("Out0"), ElementsAre(1, 6));
  RunOp window("sequence_enumerate");
  window.in("X", {3, 1}, {1, 2, 4}, kI64, even).attr("win_size", 2).out("Out");
  ASSERT_EQ(window.run_text(), "ok");
  EXPECT_THAT(window.values("Out0"), ElementsAre(1, 0, 2, 4, 4, 0));
  RunOp padded("sequence_pad");
  padded.in("X", {3, 1}, {1, 2, 4}, DType::kFloat32, even).in("PadValue", {1}, {0});
  padded.out("Out").out("Length");
  ASSERT_EQ(padded.run_text(), "ok");
  EXPECT_THAT(padded.values("Out0"), ElementsAre(1, 0, 2, 4));
  RunOp distance("edit_distance");
  distance.in("Hyps", {6, 1}, {1, 2, 3, 4, 5, 6}, kI64, uneven);
  distance.in("Refs", {6, 1}, {1, 2, 3, 4, 5, 6}, kI64, uneven).out("Out").out("SequenceNum");
  EXPECT_THAT(distance.run_text(), HasSubstr("the first level of the LoD of Hyps must end"));
}

TEST(ChunkEval, CountsChunksThatAgreeInBothEnds) {
  RunOp op("chunk_eval");
  // IOB with 2 types: 0 begin of 0, 1 inside of 0, 2 begin of 1, 3 inside of 1, 4 outside
  op.in("Inference", {6, 1}, {0, 1, 4, 2, 3, 0}, kI64, Lod({{0, 6}}));
  op.in("Label", {6, 1}, {0, 1, 4, 2, 4, 0}, kI64, Lod({{0, 6}}));
  op.attr("num_chunk_types", 2).attr("chunk_scheme", "IOB");
  for (const char* const slot :
       {"Precision", "Recall", "F1-Score", "NumInferChunks", "NumLabelChunks", "NumCorrectChunks"})
    op.out(slot);
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(op.values("NumInferChunks0"), ElementsAre(3));
  EXPECT_THAT(op.values("NumLabelChunks0"), ElementsAre(3));
  EXPECT_THAT(op.values("NumCorrectChunks0"), ElementsAre(2));
  EXPECT_NEAR(op.values("F1-Score0")[0], 2.0 / 3, 1e-6);
}

RunOp topk_pooling() {
  RunOp op("sequence_topk_avg_pooling");
  // one sequence, 2 channels of 2 rows by 3 columns
  op.in("X", {12, 1}, {3, 1, 2, 6, 5, 4, 0, 7, 1, 1, 2, 8}, kF64, Lod({{0, 12}}));
  op.in("ROW", {2, 1}, {0}, kF64, Lod({{0, 2}})).in("COLUMN", {3, 1}, {0}, kF64, Lod({{0, 3}}));
  op.ints("topks", {1, 2}).attr("channel_num", 2).out("Out").out("pos");
  return op;
}

TEST(SequenceTopkAvgPooling, AveragesTheLargestOfEachRow) {
  RunOp op = topk_pooling();
  ASSERT_EQ(op.run_text(), "ok");
  // row 0: channel 0 (3, 1, 2), channel 1 (0, 7, 1); row 1: (6, 5, 4), (1, 2, 8)
  EXPECT_THAT(op.values("Out0"), ElementsAre(3, 2.5, 7, 4, 6, 5.5, 8, 5));
  EXPECT_LT(topk_pooling().gradient_error({"X"}, "Out0"), 1e-6);
}

TEST(SequenceTopkAvgPooling, DividesByKWhereThereAreFewerColumns) {
  RunOp op("sequence_topk_avg_pooling");
  op.in("X", {2, 1}, {3, 1}, kF64, Lod({{0, 2}}));
  op.in("ROW", {1, 1}, {0}, kF64, Lod({{0, 1}})).in("COLUMN", {2, 1}, {0}, kF64, Lod({{0, 2}}));
  op.ints("topks", {4}).attr("channel_num", 1).out("Out").out("pos");
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(op.values("Out0"), ElementsAre(1));
}

}  // namespace
}  // namespace millrace::kernels

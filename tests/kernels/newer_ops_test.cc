// Beams, matrices, counting, lookups and slices: values worked out by hand, gradients compared
// with finite differences, and refused inputs. More values, computed by the original, are in
// tests/data/ops.
#include <cmath>
#include <numeric>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/kernels/run_op.h"

namespace millrace::kernels {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Values = std::vector<double>;

const Lod kTwoBeams({{0, 2}, {0, 1, 2}});

RunOp search_step(const Values& tokens, const Values& scores, int beams) {
  RunOp op("beam_search");
  op.in("pre_ids", {2, 1}, tokens, kI64, kTwoBeams).in("pre_scores", {2, 1}, {5, 6});
  op.in("ids", {2, 2}, {11, 12, 21, 22}, kI64, kTwoBeams);
  op.in("scores", {2, 2}, scores, DType::kFloat32, kTwoBeams);
  op.attr("level", 0).attr("beam_size", beams).attr("end_id", 0);
  op.out("selected_ids").out("selected_scores").out("parent_idx");
  return op;
}

TEST(BeamSearch, KeepsTheBestOfASourceInOrderOfBeams) {
  RunOp op = search_step({1, 2}, {7, 9, 8, 1}, 3);
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(op.values("selected_ids0"), ElementsAre(12, 11, 21));
  EXPECT_THAT(op.values("selected_scores0"), ElementsAre(9, 7, 8));
  EXPECT_THAT(op.values("parent_idx0"), ElementsAre(0, 0, 1));
  EXPECT_EQ(op.tensor("selected_ids0").lod(), Lod({{0, 2}, {0, 2, 3}}));
}

TEST(BeamSearch, ABeamThatHasEndedKeepsItsScoreUntilAllHave) {
  RunOp one = search_step({0, 2}, {70, 90, 8, 1}, 2);
  ASSERT_EQ(one.run_text(), "ok");
  EXPECT_THAT(one.values("selected_ids0"), ElementsAre(0, 21));
  EXPECT_THAT(one.values("selected_scores0"), ElementsAre(5, 8));
  RunOp all = search_step({0, 0}, {70, 90, 8, 1}, 2);
  ASSERT_EQ(all.run_text(), "ok");
  EXPECT_EQ(dims(all.value("selected_ids0")), (std::vector<int64_t>{0, 1}));
  EXPECT_EQ(all.tensor("selected_ids0").lod(), Lod({{0, 2}, {0, 0, 0}}));
}

TEST(BeamSearch, RefusesScoresWithoutSources) {
  RunOp op("beam_search");
  op.in("pre_ids", {1, 1}, {1}, kI64).in("pre_scores", {1, 1}, {1}).in("scores", {1, 2}, {1, 2});
  op.attr("beam_size", 1).attr("end_id", 0).out("selected_ids").out("selected_scores");
  EXPECT_THAT(op.run_text(), HasSubstr("scores has 0 LoD levels, expected one more than attribute "
                                       "'level' 0"));
}

Value steps_of(const std::vector<Values>& rows, const std::vector<Lod>& lods, DType dtype) {
  Value value;
  auto& array = value.as<TensorArray>();
  for (size_t i = 0; i < rows.size(); ++i) {
    Value step = tensor_value({static_cast<int64_t>(rows[i].size()), 1}, rows[i], dtype);
    step.as<Tensor>().set_lod(lods[i]);
    array.push_back(std::move(step.as<Tensor>()));
  }
  return value;
}

RunOp decoded(const std::vector<Lod>& lods, int beams) {
  RunOp op("beam_search_decode");
  op.in("Ids", steps_of({{1}, {3, 4}, {0, 5}}, lods, kI64));
  op.in("Scores", steps_of({{0.5}, {1, 2}, {3, 7}}, lods, DType::kFloat32));
  op.attr("beam_size", beams).attr("end_id", 0).out("SentenceIds").out("SentenceScores");
  return op;
}

// Both hypotheses of the last time step extend the second one of the previous time step.
TEST(BeamSearchDecode, WalksBackToTheFirstStep) {
  const std::vector<Lod> lods{Lod({{0, 1}, {0, 1}}), Lod({{0, 1}, {0, 2}}),
                              Lod({{0, 2}, {0, 0, 2}})};
  RunOp op = decoded(lods, 2);
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(op.values("SentenceIds0"), ElementsAre(1, 4, 5, 1, 4, 0));
  EXPECT_THAT(op.values("SentenceScores0"), ElementsAre(0.5, 2, 7, 0.5, 2, 3));
  EXPECT_EQ(op.tensor("SentenceIds0").lod(), Lod({{0, 2}, {0, 3, 6}}));
  EXPECT_THAT(decoded(lods, 1).run_text(),
              HasSubstr("source 0 has 2 hypotheses, more than attribute 'beam_size' 1"));
}

TEST(LinearInterp, HasPointsBetweenPoints) {
  RunOp op("linear_interp");
  op.in("X", {1, 1, 3}, {0, 4, 8}).out("Out").attr("out_w", 5).attr("interp_method", "linear");
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(op.values("Out0"), ElementsAre(0, 2, 4, 6, 8));
}

TEST(Interp, GradientsOfTheOlderOpsAgreeWithFiniteDifferences) {
  for (const auto& [type, method, shape] :
       {std::tuple("linear_interp", "linear", Dims{2, 2, 5}),
        std::tuple("bicubic_interp", "bicubic", Dims{1, 2, 3, 5}),
        std::tuple("trilinear_interp", "trilinear", Dims{1, 1, 3, 2, 5})}) {
    RunOp op(type);
    op.in("X", shape, waves(count_of(shape)), kF64).out("Out").attr("interp_method", method);
    op.attr("out_d", 4).attr("out_h", 2).attr("out_w", 7).attr("align_corners", false);
    EXPECT_LT(op.gradient_error({"X"}, "Out0"), 1e-6) << type;
  }
}

TEST(Interp, BytesAreCutAfterBlending) {
  RunOp op("bilinear_interp");
  op.in("X", {1, 1, 1, 2}, {10, 15}, DType::kUint8).out("Out").attr("out_h", 1).attr("out_w", 3);
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(op.values("Out0"), ElementsAre(10, 12, 15));
}

TEST(Inverse, RefusesASingularMatrix) {
  RunOp op("inverse");
  op.in("Input", {2, 2, 2}, {2, 0, 0, 4, 1, 2, 2, 4}).out("Output");
  EXPECT_THAT(op.run_text(), HasSubstr("matrix 1 of Input is singular"));
  RunOp good("inverse");
  good.in("Input", {2, 2}, {0, 2, 4, 0}).out("Output");
  ASSERT_EQ(good.run_text(), "ok");
  EXPECT_THAT(good.values("Output0"), ElementsAre(0, 0.25, 0.5, 0));
}

TEST(Inverse, GradientAgreesWithFiniteDifferences) {
  RunOp op("inverse");
  Values values = waves(18);
  for (const size_t i : {0, 4, 8, 9, 13, 17}) values[i] += 3;
  op.in("Input", {2, 3, 3}, values, kF64).out("Output");
  EXPECT_LT(op.gradient_error({"Input"}, "Output0"), 1e-6);
}

TEST(Cholesky, ReadsOneTriangle) {
  RunOp lower("cholesky");
  lower.in("X", {2, 2}, {4, 99, 2, 10}).out("Out");
  ASSERT_EQ(lower.run_text(), "ok");
  EXPECT_THAT(lower.values("Out0"), ElementsAre(2, 0, 1, 3));
  RunOp upper("cholesky");
  upper.in("X", {2, 2}, {4, 2, 99, 10}).out("Out").attr("upper", true);
  ASSERT_EQ(upper.run_text(), "ok");
  EXPECT_THAT(upper.values("Out0"), ElementsAre(2, 1, 0, 3));
  RunOp bad("cholesky");
  bad.in("X", {2, 2}, {1, 2, 2, 1}).out("Out");
  EXPECT_THAT(bad.run_text(), HasSubstr("matrix 0 of X is not positive definite"));
}

// A change affects both triangles, so the gradient is the sum of both.
TEST(Cholesky, GradientAgreesWithFiniteDifferencesOfSymmetricMatrices) {
  const auto factor_sum = [](double shift) {
    RunOp op("cholesky");
    op.in("X", {2, 2}, {4, 1 + shift, 1 + shift, 3}, kF64).out("Out");
    EXPECT_EQ(op.run_text(), "ok");
    const Values out = op.values("Out0");
    return out[0] + 2 * out[2] + 3 * out[3];
  };
  RunOp op("cholesky");
  op.in("X", {2, 2}, {4, 1, 1, 3}, kF64).out("Out").with_grad({"X"});
  op.feed("Out0@GRAD", {2, 2}, {1, 0, 2, 3}, kF64);
  ASSERT_EQ(op.run_text(), "ok");
  const Values grad = op.values("X0@GRAD");
  EXPECT_DOUBLE_EQ(grad[1], grad[2]);
  EXPECT_NEAR(grad[1] + grad[2], (factor_sum(1e-6) - factor_sum(-1e-6)) / 2e-6, 1e-7);
}

TEST(Trace, GradientAgreesWithFiniteDifferences) {
  RunOp op("trace");
  op.in("Input", {3, 2, 4}, waves(24), kF64).out("Out");
  op.attr("axis1", 2).attr("axis2", 0).attr("offset", -1);
  EXPECT_LT(op.gradient_error({"Input"}, "Out0"), 1e-8);
  RunOp same("trace");
  same.in("Input", {2, 2}, {1}).out("Out").attr("axis2", 0);
  EXPECT_THAT(same.run_text(), HasSubstr("attributes 'axis1' and 'axis2' are both dim 0"));
}

TEST(DiagEmbed, PutsVectorsOnADiagonal) {
  RunOp op("diag_embed");
  op.in("Input", {2, 1}, {5, 6}).out("Out").attr("offset", 1);
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(op.values("Out0"), ElementsAre(0, 5, 0, 0, 0, 6, 0, 0));
}

TEST(AllEqual, ComparesShapesAndElements) {
  const auto equal = [](const Dims& dims, const Values& y) {
    RunOp op("equal_all");
    op.in("X", {2, 2}, {1, 2, 3, 4}).in("Y", dims, y).out("Out");
    EXPECT_EQ(op.run_text(), "ok");
    return op.values("Out0").front();
  };
  EXPECT_EQ(equal({2, 2}, {1, 2, 3, 4}), 1);
  EXPECT_EQ(equal({2, 2}, {1, 2, 3, 5}), 0);
  EXPECT_EQ(equal({4}, {1, 2, 3, 4}), 0);
  RunOp op("allclose");
  op.in("Input", {1}, {1}).in("Other", {1}, {1}).out("Out").attr("rtol", "tiny");
  EXPECT_THAT(op.run_text(), HasSubstr("attribute 'rtol' is 'tiny', expected a number"));
}

TEST(Histogram, CountsTheUpperEndInTheLastPart) {
  RunOp op("histogram");
  op.in("X", {6}, {0, 1, 2, 3, 4, 5}, kI64).out("Out");
  op.attr("bins", int64_t{2}).attr("min", 1).attr("max", 4);
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(op.values("Out0"), ElementsAre(2, 2));
  RunOp bad("histogram");
  bad.in("X", {2}, {1, INFINITY}).out("Out");
  EXPECT_THAT(bad.run_text(), HasSubstr("not finite"));
}

TEST(SegmentPool, GradientsAgreeWithFiniteDifferences) {
  for (const char* const kind : {"SUM", "MEAN", "MAX", "MIN"}) {
    RunOp op("segment_pool");
    op.in("X", {5, 2}, waves(10), kF64).in("SegmentIds", {5}, {0, 0, 2, 2, 2}, kI64);
    op.out("Out").out("SummedIds").attr("pooltype", kind);
    EXPECT_LT(op.gradient_error({"X"}, "Out0"), 1e-8) << kind;
  }
}

TEST(SegmentPool, RefusesIdsThatFall) {
  RunOp op("segment_pool");
  op.in("X", {3, 1}, {1, 2, 3}).in("SegmentIds", {3}, {0, 2, 1}, kI32).out("Out");
  EXPECT_THAT(op.run_text(), HasSubstr("SegmentIds has 1 after 2 at 2"));
}

TEST(Bernoulli, RefusesWhatIsNoProbability) {
  RunOp op("bernoulli");
  op.in("X", {2}, {0.5, 1.5}).out("Out");
  EXPECT_THAT(op.run_text(), HasSubstr("X has 1.5 at 1, expected a probability"));
}

TEST(Seed, IsTheGivenOneOrNone) {
  RunOp given("seed");
  given.out("Out").attr("seed", 17);
  ASSERT_EQ(given.run_text(), "ok");
  EXPECT_THAT(given.values("Out0"), ElementsAre(17));
  RunOp drawn("seed");
  drawn.out("Out");
  ASSERT_EQ(drawn.run_text(), "ok");
  EXPECT_NE(drawn.values("Out0").front(), 0);
}

TEST(Empty, HoldsZeros) {
  RunOp op("empty");
  op.out("Out").attr("shape", std::vector<int64_t>{2, 2}).attr("dtype", 5);
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(op.values("Out0"), Each(0));
}

TEST(ShuffleBatch, MovesEveryRowAndGradientsBack) {
  RunOp op("shuffle_batch");
  Values rows(9);
  std::iota(rows.begin(), rows.end(), 0.0);
  op.in("X", {9, 1}, rows).in("Seed", {1}, {7}, kI64);
  op.out("Out").out("ShuffleIdx").out("SeedOut").with_grad({"X"});
  op.feed("Out0@GRAD", {9, 1}, rows);
  ASSERT_EQ(op.run_text(), "ok");
  const Values places = op.values("ShuffleIdx0");
  const Values out = op.values("Out0");
  for (size_t i = 0; i < 9; ++i) {
    EXPECT_NE(places[i], static_cast<double>(i));
    EXPECT_EQ(out[static_cast<size_t>(places[i])], rows[i]);
  }
  EXPECT_EQ(op.values("X0@GRAD"), places);
  EXPECT_THAT(op.values("SeedOut0"), ElementsAre(7 * 16807));
  EXPECT_EQ(std::set<double>(places.begin(), places.end()).size(), 9U);
}

RunOp sampled(int wanted) {
  RunOp op("sample_logits");
  op.in("Logits", {2, 50}, waves(100), kF64).in("Labels", {2, 1}, {3, 40}, kI64);
  for (const char* const slot : {"Samples", "Probabilities", "LogitsDim", "LabelsDim"})
    op.out(slot);
  op.out("SampledLogits").out("SampledLabels");
  op.attr("num_samples", wanted).attr("seed", 5).attr("remove_accidental_hits", false);
  return op;
}

TEST(SampleLogits, DrawsDifferentClassesForAllRows) {
  RunOp op = sampled(10);
  ASSERT_EQ(op.run_text(), "ok");
  const Values samples = op.values("Samples0");
  ASSERT_EQ(samples.size(), 22U);
  EXPECT_EQ(samples[0], 3);
  EXPECT_EQ(samples[11], 40);
  EXPECT_EQ(Values(samples.begin() + 1, samples.begin() + 11),
            Values(samples.begin() + 12, samples.end()));
  EXPECT_EQ(std::set<double>(samples.begin() + 1, samples.begin() + 11).size(), 10U);
  // q(k) = log((k + 2) / (k + 1)) / log(51) for one draw, 1 - (1 - q)^draws for all of them
  const Values p = op.values("Probabilities0");
  const auto once = [](double k) { return std::log((k + 2) / (k + 1)) / std::log(51.0); };
  const double draws = std::log1p(-p[0]) / std::log1p(-once(samples[0]));
  for (size_t i = 0; i < 22; ++i)
    EXPECT_NEAR(p[i], -std::expm1(draws * std::log1p(-once(samples[i]))), 1e-9);
  const Values logits = waves(100);
  EXPECT_NEAR(op.values("SampledLogits0")[0], logits[3] - std::log(p[0]), 1e-9);
}

TEST(SampleLogits, GradientAgreesWithFiniteDifferences) {
  RunOp op = sampled(10);
  EXPECT_LT(op.gradient_error({"Logits"}, "SampledLogits0"), 1e-7);
  EXPECT_THAT(sampled(51).run_text(),
              HasSubstr("attribute 'num_samples' is 51, but there are 50 classes"));
}

TEST(DequantizeLog, LooksUpTheSizeAndKeepsTheSign) {
  RunOp op("dequantize_log");
  Values sizes(128, 0.0);
  sizes[3] = 7;
  op.in("X", {3}, {3, -125, 0}, DType::kInt8).in("Dict", {128}, sizes).out("Out");
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(op.values("Out0"), ElementsAre(7, -7, 0));
}

TEST(LookupTableDequant, RefusesAnUnknownRow) {
  RunOp op("lookup_table_dequant");
  op.in("W", {2, 3}, {0, 1, 0, 0, 1, 0}).in("Ids", {1, 1}, {2}, kI64).out("Out");
  EXPECT_THAT(op.run_text(), HasSubstr("Ids has 2 at 0, expected a number in [0, 2)"));
}

TEST(PositiveNegativePair, ComparesItemsOfAQuery) {
  RunOp op("positive_negative_pair");
  op.in("Score", {4, 1}, {3, 1, 2, 2}).in("Label", {4, 1}, {1, 0, 0, 1});
  op.in("QueryID", {4, 1}, {7, 7, 8, 8}, kI64);
  op.out("PositivePair").out("NegativePair").out("NeutralPair");
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(op.values("PositivePair0"), ElementsAre(1));
  EXPECT_THAT(op.values("NegativePair0"), ElementsAre(1));
  EXPECT_THAT(op.values("NeutralPair0"), ElementsAre(1));
}

TEST(SimilarityFocus, TakesOneOfEachRowAndColumn) {
  RunOp op("similarity_focus");
  op.in("X", {1, 2, 2, 2}, {9, 8, 7, 1, 0, 0, 0, 0}).out("Out");
  op.attr("axis", 1).ints("indexes", {0});
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(op.values("Out0"), ElementsAre(1, 0, 0, 1, 1, 0, 0, 1));
}

TEST(BilateralSlice, GradientsAgreeWithFiniteDifferences) {
  for (const bool offset : {false, true}) {
    RunOp op("bilateral_slice");
    Values guide = noise(24, 3);
    for (double& value : guide) value = 0.5 + 0.4 * value;
    op.in("X", {2, 2, 3, 4}, waves(48), kF64);
    op.in("Grid", {2, offset ? 3 : 2, 3, 2, 2}, noise(offset ? 72 : 48), kF64);
    op.in("Guide", {2, 3, 4}, guide, kF64).out("Out").attr("has_offset", offset);
    EXPECT_LT(op.gradient_error({"X", "Grid", "Guide"}, "Out0"), 1e-5) << offset;
  }
}

}  // namespace
}  // namespace millrace::kernels

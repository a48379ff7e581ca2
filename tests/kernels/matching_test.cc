// Layers of matching and recommendation models, and inputs that they refuse.
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/kernels/run_op.h"

namespace millrace::kernels {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Values = std::vector<double>;

// Node 1 has the children 2 and 3, node 2 the leaf 4; 3 is a leaf.
RunOp small_family(Values nodes, Values info = {0, 0, 0, 0, 0, 0, 0, 0, 2, 3, 0, 1, 1,
                                                4, 0, 7, 1, 1, 0, 0, 9, 2, 2, 0, 0}) {
  RunOp op("tdm_child");
  const auto count = static_cast<int64_t>(nodes.size());
  op.in("X", {count, 1}, std::move(nodes), kI64, Lod({{0, 1, count}}));
  op.in("TreeInfo", {5, 5}, std::move(info), kI32).attr("child_nums", 2);
  op.out("Child").out("LeafMask");
  return op;
}

TEST(TdmChild, ListsChildrenAndLeaves) {
  RunOp op = small_family({1, 2, 3, 0});
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(op.values("Child0"), ElementsAre(2, 3, 4, 0, 0, 0, 0, 0));
  EXPECT_THAT(op.values("LeafMask0"), ElementsAre(0, 1, 1, 0, 0, 0, 0, 0));
  EXPECT_EQ(op.tensor("Child0").lod(), Lod({{0, 1, 4}}));
  EXPECT_EQ(op.tensor("Child0").dtype(), kI32);
}

TEST(TdmChild, RefusesNodesBeyondTheTree) {
  EXPECT_THAT(small_family({1, 5}).run_text(),
              HasSubstr("X has 5 at 1, expected a number in [0, 5)"));
  Values info(25, 0);
  info[5 + 3] = 5;
  EXPECT_THAT(small_family({1, 1}, info).run_text(),
              HasSubstr("TreeInfo has child 5 for node 1, expected one in [0, 5)"));
}

// Two layers of nodes 1, 2 and 3 to 6; leaf 2 ends after the first.
RunOp sampler(int seed, bool positive, const Values& path = {1, 3, 2, 6, 2, 0}) {
  RunOp op("tdm_sampler");
  Values leaves;
  for (int i = 0; i < 60; ++i) leaves.push_back(i % 3);
  op.in("X", {60, 1}, leaves, kI64).in("Travel", {3, 2}, path, kI64);
  op.in("Layer", {6, 1}, {1, 2, 3, 4, 5, 6}, kI64).ints("neg_samples_num_list", {1, 2});
  op.ints("layer_offset_lod", {0, 2, 6}).attr("output_positive", positive).attr("seed", seed);
  op.attr("dtype", 3).out("Out").out("Labels").out("Mask");
  return op;
}

TEST(TdmSampler, DrawsOtherNodesOfTheLayer) {
  RunOp op = sampler(3, true);
  ASSERT_EQ(op.run_text(), "ok");
  const Values out = op.values("Out0");
  const Values labels = op.values("Labels0");
  const Values mask = op.values("Mask0");
  ASSERT_EQ(dims(op.value("Out0")), (std::vector<int64_t>{60, 5}));
  const Values right = {1, 3, 2, 6, 2, 0};
  std::set<double> drawn;
  for (size_t i = 0; i < 60; ++i) {
    const Values row(out.begin() + static_cast<std::ptrdiff_t>(5 * i),
                     out.begin() + static_cast<std::ptrdiff_t>(5 * i + 5));
    const bool ends = i % 3 == 2;
    EXPECT_EQ(row[0], right[2 * (i % 3)]);
    EXPECT_EQ(row[1], 3 - row[0]);
    EXPECT_EQ(row[2], right[2 * (i % 3) + 1]);
    for (size_t k = 0; k < 5; ++k) {
      const bool there = k < 2 || !ends;
      EXPECT_EQ(mask[5 * i + k], there ? 1 : 0);
      EXPECT_EQ(labels[5 * i + k], there && (k == 0 || k == 2) ? 1 : 0);
      if (!there) {
        EXPECT_EQ(row[k], 0);
      }
    }
    if (ends) continue;
    EXPECT_NE(row[3], row[4]);
    for (const size_t k : {3U, 4U}) {
      EXPECT_NE(row[k], row[2]);
      EXPECT_TRUE(row[k] >= 3 && row[k] <= 6) << row[k];
      if (i % 3 == 0) drawn.insert(row[k]);
    }
  }
  EXPECT_THAT(drawn, ElementsAre(4, 5, 6));
}

TEST(TdmSampler, RepeatsWithASeedOnly) {
  RunOp first = sampler(3, false);
  RunOp same = sampler(3, false);
  RunOp other = sampler(4, false);
  for (RunOp* const op : {&first, &same, &other}) ASSERT_EQ(op->run_text(), "ok");
  ASSERT_EQ(dims(first.value("Out0")), (std::vector<int64_t>{60, 3}));
  EXPECT_EQ(first.values("Out0"), same.values("Out0"));
  EXPECT_NE(first.values("Out0"), other.values("Out0"));
}

TEST(TdmSampler, RefusesAPathThroughAnotherLayer) {
  EXPECT_THAT(sampler(3, true, {1, 2, 2, 6, 2, 0}).run_text(),
              HasSubstr("Travel has node 2 in layer 1, which Layer does not have there"));
}

RunOp ranked(Values places, DType dtype = kF64) {
  RunOp op("rank_attention");
  op.in("X", {3, 1}, {1, 2, 4}, dtype).in("RankOffset", {3, 5}, std::move(places), kI32);
  op.in("RankParam", {4, 1}, {1, 10, 100, 1000}, dtype).attr("MaxRank", 2).attr("MaxSize", 4);
  op.out("InputHelp").out("Out").out("InsRank");
  return op;
}

// Row 0 of rank 1 has partners of rank 1 and 2, row 1 of rank 2 one of rank 1, row 2 no rank.
const Values kPlaces = {1, 1, 0, 2, 1, 2, 0, 0, 1, 2, 0, 1, 1, 1, 1};

TEST(RankAttention, ChoosesBlocksByRank) {
  RunOp op = ranked(kPlaces);
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(op.values("Out0"), ElementsAre(1 * 1 + 2 * 10, 4 * 100, 0));
  EXPECT_THAT(op.values("InputHelp0"), ElementsAre(1, 2, 0, 4, 0, 0, 0, 0));
  EXPECT_THAT(op.values("InsRank0"), ElementsAre(1, 2, 0, -1));
}

TEST(RankAttention, GradientsAgreeWithFiniteDifferences) {
  EXPECT_LT(ranked(kPlaces).gradient_error({"RankParam"}, "Out0"), 1e-6);
}

TEST(RankAttention, RefusesRanksAndRowsThatAreNone) {
  EXPECT_THAT(ranked({3, 1, 0, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}).run_text(),
              HasSubstr("rank 3 for row 0, expected at most 2"));
  EXPECT_THAT(ranked({1, 1, 3, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}).run_text(),
              HasSubstr("partner 0 of row 0 with rank 1 in row 3"));
}

TEST(MatchMatrixTensor, MultipliesAllPairs) {
  RunOp op("match_matrix_tensor");
  op.in("X", {3, 1}, {1, 2, 3}, kF64, Lod({{0, 2, 3}}));
  op.in("Y", {3, 2}, {1, 2, 3, 4, 5, 6}, kF64, Lod({{0, 1, 3}}));
  op.in("W", {1, 2, 2}, {1, 0, 0, 10}, kF64).attr("dim_t", 2).out("Out").out("Tmp");
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(op.values("Out0"), ElementsAre(1, 2, 20, 40, 9, 15, 120, 180));
  EXPECT_EQ(op.tensor("Out0").lod(), Lod({{0, 4, 8}}));
  EXPECT_THAT(op.values("Tmp0"), ElementsAre(1, 0, 0, 10, 2, 0, 0, 20, 3, 0, 0, 30));
}

TEST(MatchMatrixTensor, GradientsAgreeWithFiniteDifferences) {
  RunOp op("match_matrix_tensor");
  op.in("X", {5, 2}, waves(10), kF64, Lod({{0, 2, 2, 5}}));
  op.in("Y", {4, 3}, waves(12, 1), kF64, Lod({{0, 1, 2, 4}}));
  op.in("W", {2, 2, 3}, waves(12, 2), kF64).attr("dim_t", 2).out("Out").out("Tmp");
  EXPECT_LT(op.gradient_error({"X", "Y", "W"}, "Out0"), 1e-6);
}

TEST(MatchMatrixTensor, WantsEquallyManySequences) {
  RunOp op("match_matrix_tensor");
  op.in("X", {3, 1}, {1}, kF64, Lod({{0, 2, 3}})).in("Y", {3, 1}, {1}, kF64, Lod({{0, 3}}));
  op.in("W", {1, 1, 1}, {1}, kF64).out("Out").out("Tmp");
  EXPECT_THAT(op.run_text(), HasSubstr("'X' has 2 sequences and 'Y' 1, expected the same number"));
}

// An image of 2 x 3 and one of 1 x 1.
RunOp sized_images(Values w, int stride, int64_t elements = 7) {
  RunOp op("var_conv_2d");
  Values x;
  for (int64_t i = 1; i <= elements; ++i) x.push_back(static_cast<double>(i));
  op.in("X", {elements, 1}, std::move(x), kF64, Lod({{0, 6, elements}}));
  op.in("ROW", {3, 1}, {0}, kF64, Lod({{0, 2, 3}}))
      .in("COLUMN", {4, 1}, {0}, kF64, Lod({{0, 3, 4}}));
  const auto taps = static_cast<int64_t>(w.size());
  op.in("W", {1, taps}, std::move(w), kF64)
      .attr("KernelH", 1)
      .attr("KernelW", static_cast<int>(taps));
  op.attr("StrideW", stride).out("Out").out("Col");
  return op;
}

TEST(VarConv2d, ConvolvesEachImageByItself) {
  RunOp op = sized_images({100, 10, 1}, 1);
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(op.values("Out0"), ElementsAre(12, 123, 230, 45, 456, 560, 70));
  EXPECT_EQ(op.tensor("Out0").lod(), Lod({{0, 6, 7}}));
  EXPECT_EQ(op.tensor("Col0").lod(), Lod({{0, 18, 21}}));
  RunOp apart = sized_images({100, 10, 1}, 2);
  ASSERT_EQ(apart.run_text(), "ok");
  EXPECT_THAT(apart.values("Out0"), ElementsAre(12, 230, 45, 560, 70));
  EXPECT_EQ(apart.tensor("Out0").lod(), Lod({{0, 4, 5}}));
}

TEST(VarConv2d, RefusesAnImageOfAnotherSize) {
  EXPECT_THAT(sized_images({1}, 1, 8).run_text(),
              HasSubstr("image 1 of 'X' has 2 elements, expected 1 x 1 x 1"));
}

TEST(VarConv2d, GradientsAgreeWithFiniteDifferences) {
  RunOp op("var_conv_2d");
  op.in("X", {32, 1}, waves(32), kF64, Lod({{0, 24, 32}}));
  op.in("ROW", {6, 1}, {0}, kF64, Lod({{0, 4, 6}}))
      .in("COLUMN", {5, 1}, {0}, kF64, Lod({{0, 3, 5}}));
  op.in("W", {3, 12}, waves(36, 1), kF64).attr("InputChannel", 2).attr("OutputChannel", 3);
  op.attr("KernelH", 3).attr("KernelW", 2).attr("StrideH", 2).out("Out").out("Col");
  EXPECT_LT(op.gradient_error({"X", "W"}, "Out0"), 1e-6);
}

// Old programs fetch rows from servers inside these ops. The local table differs from the servers',
// so a run with it would be silently wrong.
TEST(RemoteRows, AreRefusedByName) {
  RunOp nce("nce");
  nce.in("Input", {2, 3}, {1}).in("Label", {2, 1}, {0}, kI64).in("Weight", {5, 3}, {1});
  nce.attr("num_total_classes", 5).out("Cost").out("SampleLogits").out("SampleLabels");
  RunOp tree("hierarchical_sigmoid");
  tree.in("X", {2, 3}, {1}).in("W", {4, 3}, {1}).in("Label", {2, 1}, {0}, kI64);
  tree.attr("num_classes", 5).out("Out").out("PreOut");
  RunOp lookup("lookup_table");
  lookup.in("W", {5, 3}, {1}).in("Ids", {2, 1}, {0}, kI64).out("Out");
  const std::vector<std::pair<RunOp*, std::string>> ops = {
      {&nce, "'nce' fetches rows of 'Weight0' from servers"},
      {&tree, "'hierarchical_sigmoid' fetches rows of 'W0' from servers"},
      {&lookup, "'lookup_table' fetches rows of 'W0' from servers"}};
  for (const auto& [op, message] : ops) {
    op->attr("remote_prefetch", true);
    EXPECT_EQ(op->run_text(), "ok") << message;
    op->attr("epmap", std::vector<std::string>{"h:1"});
    EXPECT_THAT(op->run_text(),
                AllOf(HasSubstr(message), HasSubstr("'epmap' with 'h:1'"),
                      HasSubstr("which only distributed_lookup_table can do here")));
  }
}

}  // namespace
}  // namespace millrace::kernels

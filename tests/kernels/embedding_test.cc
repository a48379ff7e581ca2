// What the reference corpus does not cover of the kernels of ops/embedding and ops/distributed:
// sampled losses, helpers of the parameter servers, messages.
#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/kernels/run_op.h"

namespace millrace::kernels {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Values = std::vector<double>;

Values spread(size_t count, double step) {
  Values values(count);
  for (size_t i = 0; i < count; ++i) values[i] = std::sin(step * static_cast<double>(i + 1));
  return values;
}

const SelectedRows& rows_of(const RunOp& op, const std::string& name) {
  return *op.value(name).get_if<SelectedRows>();
}
Values values_of(const SelectedRows& rows) {
  const auto values = rows.value.values<float>();
  return {values.begin(), values.end()};
}

TEST(Lookup, ChecksIdsButForThePadding) {
  RunOp op("lookup_table_v2");
  op.in("W", {3, 2}, {1, 2, 3, 4, 5, 6}).in("Ids", {2}, {7, 2}, kI64);
  op.attr("padding_idx", int64_t{7}).out("Out");
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(op.values("Out0"), ElementsAre(0, 0, 5, 6));
  RunOp wrong("lookup_table");
  wrong.in("W", {3, 2}, {1}).in("Ids", {2, 1}, {0, 3}, kI64).out("Out");
  EXPECT_THAT(wrong.run_text(), HasSubstr("Ids has 3 at 1, expected a number in [0, 3)"));
}

TEST(Lookup, ReadsATableOfSelectedRows) {
  RunOp op("lookup_table");
  op.in("W", rows_value({4, 2}, 10, {2, 2}, {1, 2, 3, 4}))
      .in("Ids", {3, 1}, {2, 4, 2}, kI64)
      .out("Out");
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(op.values("Out0"), ElementsAre(3, 4, 1, 2, 3, 4));
  RunOp missing("lookup_table");
  missing.in("W", rows_value({4}, 10, {1, 2}, {1, 2})).in("Ids", {1, 1}, {3}, kI64).out("Out");
  EXPECT_THAT(missing.run_text(), HasSubstr("Ids has 3 at 0, which is not a row of W"));
}

// Two sequences of ids and an empty one between them; 1 is the padding id.
const Lod kThree({{0, 3, 3, 5}});
const Values kIds{0, 1, 3, 3, 2};

RunOp pooled_op(const std::string& combiner, DType dtype, int64_t padding) {
  RunOp op("fused_embedding_seq_pool");
  op.in("W", {4, 2}, spread(8, 0.7), dtype).in("Ids", {5, 1}, kIds, kI64, kThree);
  op.attr("combiner", combiner).attr("padding_idx", padding).attr("pad_value", 0.5F).out("Out");
  return op;
}

TEST(PooledLookup, IsLookupAndSequencePool) {
  for (const auto& [combiner, pool] :
       {std::pair{"sum", "SUM"}, {"average", "AVERAGE"}, {"sqrt", "SQRT"}}) {
    for (const int64_t padding : {-1, 1}) {
      RunOp rows("lookup_table");
      rows.in("W", {4, 2}, spread(8, 0.7)).in("Ids", {5, 1}, kIds, kI64, kThree);
      rows.attr("padding_idx", padding).out("Out");
      ASSERT_EQ(rows.run_text(), "ok");
      RunOp expected("sequence_pool");
      expected.in("X", {5, 2}, rows.values("Out0"), DType::kFloat32, kThree);
      expected.attr("pooltype", std::string(pool)).attr("pad_value", 0.5F).out("Out");
      ASSERT_EQ(expected.run_text(), "ok");
      RunOp op = pooled_op(combiner, DType::kFloat32, padding);
      ASSERT_EQ(op.run_text(), "ok");
      EXPECT_EQ(op.values("Out0"), expected.values("Out0")) << combiner << padding;
    }
  }
}

TEST(PooledLookup, HasTheGradientOfItsFormula) {
  for (const char* const combiner : {"sum", "average", "sqrt"}) {
    for (const int64_t padding : {-1, 1})
      EXPECT_LT(pooled_op(combiner, kF64, padding).gradient_error({"W"}, "Out0"), 1e-6) << combiner;
  }
}

// The original allows several ids per row, whose results are concatenated.
TEST(PooledLookup, TakesSeveralIdsARow) {
  RunOp op("fused_embedding_seq_pool");
  op.in("W", {3, 2}, {1, 2, 10, 20, 100, 200}, kF64);
  op.in("Ids", {3, 2}, {0, 1, 2, 2, 1, 0}, kI64, Lod({{0, 2, 3}})).out("Out");
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(op.values("Out0"), ElementsAre(101, 202, 110, 220, 10, 20, 1, 2));
  EXPECT_LT(op.gradient_error({"W"}, "Out0"), 1e-6);
}

TEST(PooledLookup, GivesRowsOfEveryIdIfSparse) {
  RunOp op = pooled_op("average", DType::kFloat32, 1);
  op.attr("is_sparse", true).out_kind("W@GRAD", VarKind::kSelectedRows);
  ASSERT_TRUE(op.run_with_grad({"W"}).ok());
  const SelectedRows& rows = rows_of(op, "W0@GRAD");
  EXPECT_EQ(rows.height, 4);
  EXPECT_THAT(rows.rows, ElementsAre(0, 1, 3, 3, 2));
  const Values dout = waves(6, 5);
  const Values values = values_of(rows);
  for (size_t i = 0; i < 10; ++i) {
    const double expected = i < 6 ? dout[i % 2] / 3 : dout[4 + i % 2] / 2;
    EXPECT_NEAR(values[i], expected, 1e-6) << i;
  }
}

TEST(PooledLookup, StandsBesideOthers) {
  RunOp op("fused_embedding_seq_pool_concat");
  op.in("W", {4, 2}, spread(8, 0.7), kF64).in("W", {3, 1}, {7, 8, 9}, kF64);
  op.in("Ids", {5, 1}, kIds, kI64, kThree).in("Ids", {3, 1}, {2, 0, 1}, kI64, Lod({{0, 1, 2, 3}}));
  op.in("X", {3, 2}, {1, 2, 3, 4, 5, 6}, kF64).ints("parts", {1, 0, 1}).out("Out");
  ASSERT_EQ(op.run_text(2), "ok");
  EXPECT_THAT(dims(op.value("Out0")), ElementsAre(3, 5));
  RunOp first = pooled_op("sum", kF64, -1);
  first.attr("pad_value", 0.0F);
  ASSERT_EQ(first.run_text(), "ok");
  const Values pooled = first.values("Out0");
  EXPECT_THAT(op.values("Out0"), ElementsAre(pooled[0], pooled[1], 1, 2, 9, 0, 0, 3, 4, 7,
                                             pooled[4], pooled[5], 5, 6, 8));
  EXPECT_LT(op.gradient_error({"W", "X"}, "Out0"), 1e-6);
}

TEST(PooledLookup, SaysWhatDoesNotFit) {
  RunOp wrong("fused_embedding_seq_pool");
  wrong.in("W", {3, 2}, {1}).in("Ids", {2, 1}, {0, 3}, kI64, Lod({{0, 2}})).out("Out");
  EXPECT_THAT(wrong.run_text(), HasSubstr("Ids has 3 at 1, expected a number in [0, 3)"));
  RunOp plain("fused_embedding_seq_pool");
  plain.in("W", {3, 2}, {1}).in("Ids", {2, 1}, {0, 1}, kI64).out("Out");
  EXPECT_THAT(plain.run_text(), HasSubstr("Ids must have LoD"));
  RunOp rows("fused_embedding_seq_pool_concat");
  rows.in("W", {3, 2}, {1}).in("Ids", {2, 1}, {0, 1}, kI64, Lod({{0, 2}}));
  rows.in("X", {2, 2}, {1}).ints("parts", {1, 0}).out("Out");
  EXPECT_THAT(rows.run_text(), HasSubstr("expected 1 rows"));
  RunOp parts("fused_embedding_seq_pool_concat");
  parts.in("W", {3, 2}, {1}).in("Ids", {2, 1}, {0, 1}, kI64, Lod({{0, 2}}));
  parts.ints("parts", {1, 1}).out("Out");
  EXPECT_THAT(parts.run_text(), HasSubstr("parts"));
}

TEST(PooledLookup, IsLookupAndSequencePoolOverRandomShapes) {
  unsigned state = 7;
  const auto draw = [&](int64_t most) {
    state = state * 1664525U + 1013904223U;
    return static_cast<int64_t>(state >> 16U) % (most + 1);
  };
  for (int round = 0; round < 40; ++round) {
    const int64_t height = 1 + draw(20);
    const int64_t width = 1 + draw(20);
    LodLevel offsets{0};
    for (int64_t n = draw(6); n >= 0; --n) offsets.push_back(offsets.back() + draw(5));
    const int64_t count = offsets.back();
    Values ids;
    for (int64_t i = 0; i < count; ++i) ids.push_back(static_cast<double>(draw(height - 1)));
    const Lod lod({offsets});
    const auto padding = draw(1) == 0 ? int64_t{-1} : draw(height - 1);
    const Values table = spread(static_cast<size_t>(height * width), 0.3);
    RunOp rows("lookup_table");
    rows.in("W", {height, width}, table).in("Ids", {count, 1}, ids, kI64, lod);
    ASSERT_EQ(rows.attr("padding_idx", padding).out("Out").run_text(), "ok");
    RunOp expected("sequence_pool");
    expected.in("X", {count, width}, rows.values("Out0"), DType::kFloat32, lod);
    ASSERT_EQ(expected.attr("pooltype", std::string("SQRT")).out("Out").run_text(), "ok");
    RunOp op("fused_embedding_seq_pool");
    op.in("W", {height, width}, table).in("Ids", {count, 1}, ids, kI64, lod);
    op.attr("combiner", std::string("sqrt")).attr("padding_idx", padding).out("Out");
    ASSERT_EQ(op.run_text(round % 2 + 1), "ok");
    EXPECT_EQ(op.values("Out0"), expected.values("Out0")) << height << "x" << width;
  }
}

TEST(SparseTable, GivesRowsByIdAndTheRowsOfAGradientOnce) {
  RunOp op("lookup_sparse_table");
  op.in("W", rows_value({2, 4}, 10, {2, 2}, {1, 2, 3, 4})).in("Ids", {3, 1}, {2, 7, 4}, kI64);
  op.attr("padding_idx", int64_t{7}).out("Out");
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(op.values("Out0"), ElementsAre(1, 2, 0, 0, 3, 4));
  RunOp missing("lookup_sparse_table");
  missing.in("W", rows_value({4}, 10, {1, 2}, {1, 2})).in("Ids", {1, 1}, {3}, kI64).out("Out");
  EXPECT_THAT(missing.run_text(), HasSubstr("Ids has 3 at 0, which is not in the table"));
  RunOp split("lookup_sparse_table_grad_split");
  split.in("Grad", rows_value({4, 2, 4}, 10, {3, 1}, {1, 2, 3}));
  split.attr("is_entry", false).attr("tablename", std::string("t")).out("Row").out("Value");
  ASSERT_EQ(split.run_text(), "ok");
  const Values rows = split.values("Row0");
  const Values values = split.values("Value0");
  ASSERT_EQ(rows.size(), 2U);
  for (size_t i = 0; i < 2; ++i) EXPECT_EQ(values[i], rows[i] == 4 ? 4 : 2);
}

TEST(MergeSelectedRows, AddsRowsOfOneNumber) {
  RunOp op("merge_selected_rows");
  op.in("X", rows_value({4, 2, 4}, 10, {3, 1}, {1, 2, 3}));
  op.out_kind("Out", VarKind::kSelectedRows);
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(rows_of(op, "Out0").rows, ElementsAre(2, 4));
  EXPECT_THAT(values_of(rows_of(op, "Out0")), ElementsAre(2, 4));
}

RunOp tree_loss(bool custom) {
  RunOp op("hierarchical_sigmoid");
  op.in("X", {3, 4}, spread(12, 0.7), kF64).in("W", {5, 4}, spread(20, 1.1), kF64);
  op.in("Label", {3, 1}, {0, 3, 5}, kI64).in("Bias", {5, 1}, spread(5, 0.3), kF64);
  if (custom) {
    op.in("PathTable", {3, 3}, {0, 2, -1, 0, 1, 4, 0, -1, -1}, kI64);
    op.in("PathCode", {3, 3}, {1, 0, -1, 0, 0, 1, 1, -1, -1}, kI64);
  }
  op.attr("num_classes", 6).out("Out").out("PreOut");
  return op;
}

TEST(HierarchicalSigmoid, GradientsAgreeWithFiniteDifferences) {
  for (const bool custom : {false, true})
    EXPECT_LT(tree_loss(custom).gradient_error({"X", "W", "Bias"}, "Out0"), 1e-6) << custom;
}

TEST(HierarchicalSigmoid, GivesTheRowsThatWereUsed) {
  RunOp op("hierarchical_sigmoid");
  op.in("X", {1, 1}, {1}).in("W", {5, 1}, {0}).in("Label", {1, 1}, {0}, kI64);
  op.attr("num_classes", 6).attr("is_sparse", true).out("Out").out("PreOut");
  op.with_grad({"W"}).feed("Out0@GRAD", {1, 1}, {2});
  ASSERT_EQ(op.run_text(), "ok");
  // class 0 is leaf 6 of the tree: nodes 3 and 1, branches 0 and 1
  EXPECT_THAT(rows_of(op, "W0@GRAD").rows, ElementsAre(0, 2));
  EXPECT_THAT(values_of(rows_of(op, "W0@GRAD")), ElementsAre(-1, 1));
  EXPECT_EQ(rows_of(op, "W0@GRAD").height, 5);
}

TEST(HierarchicalSigmoid, ChecksLabels) {
  RunOp op("hierarchical_sigmoid");
  op.in("X", {1, 1}, {1}).in("W", {5, 1}, {0}).in("Label", {1, 1}, {6}, kI64);
  op.attr("num_classes", 6).out("Out");
  EXPECT_THAT(op.run_text(), HasSubstr("Label has 6 at 0, expected one of [0, 6)"));
}

RunOp noise_loss(int sampler) {
  RunOp op("nce");
  op.in("Input", {2, 3}, spread(6, 0.9), kF64).in("Label", {2, 1}, {1, 4}, kI64);
  op.in("Weight", {5, 3}, spread(15, 0.4), kF64).in("Bias", {5, 1}, spread(5, 2.0), kF64);
  op.in("SampleWeight", {2, 1}, {1, 0.5}, kF64).attr("num_total_classes", 5);
  op.ints("custom_neg_classes", {0, 2, 1}).attr("num_neg_samples", 3).attr("sampler", sampler);
  op.out("Cost").out("SampleLogits").out("SampleLabels");
  return op;
}

TEST(Nce, GradientsAgreeWithFiniteDifferences) {
  for (const int sampler : {0, 1})
    EXPECT_LT(noise_loss(sampler).gradient_error({"Input", "Weight", "Bias"}, "Cost0"), 1e-6);
}

TEST(Nce, CostsWhatTheFormulaSays) {
  RunOp op("nce");
  op.in("Input", {1, 1}, {0}, kF64).in("Label", {1, 1}, {1}, kI64).in("Weight", {4, 1}, {0}, kF64);
  op.attr("num_total_classes", 4).ints("custom_neg_classes", {0, 3}).attr("num_neg_samples", 2);
  op.out("Cost").out("SampleLogits").out("SampleLabels");
  ASSERT_EQ(op.run_text(), "ok");
  // o = 1/2 and b = 2/4 everywhere: three times log 2
  EXPECT_NEAR(op.values("Cost0")[0], 3 * std::log(2.0), 1e-12);
  EXPECT_THAT(op.values("SampleLabels0"), ElementsAre(1, 0, 3));
}

// Rows of a matrix with 3 columns, one after another.
std::vector<double> rows_at(const std::vector<double>& matrix, const std::vector<double>& rows) {
  std::vector<double> found;
  for (const double row : rows) {
    const auto at = matrix.begin() + static_cast<int64_t>(row) * 3;
    found.insert(found.end(), at, at + 3);
  }
  return found;
}

// nce, or its gradient, over a weight that is here or whose rows were fetched.
RunOp loss_of_rows(const std::string& type, bool fetched, std::vector<double> logits = {}) {
  const std::vector<double> classes = {1, 0, 2, 1, 4, 0, 2, 1};
  RunOp op(type);
  op.in("Input", {2, 3}, spread(6, 0.9), kF64).in("Label", {2, 1}, {1, 4}, kI64);
  op.in("Bias", {5, 1}, spread(5, 2.0), kF64).attr("num_total_classes", 5);
  op.ints("custom_neg_classes", {0, 2, 1}).attr("num_neg_samples", 3).attr("is_sparse", true);
  if (fetched) {
    op.in("Rows", {2, 4, 3}, rows_at(spread(15, 0.4), classes), kF64);
    op.attr("height_sections", std::vector<int64_t>{2, 3});
  } else {
    op.in("Weight", {5, 3}, spread(15, 0.4), kF64);
  }
  if (type == "nce") {
    if (fetched) op.in("Classes", {2, 4}, classes, kI64);
    op.out("Cost").out("SampleLogits").out("SampleLabels");
  } else {
    op.in("SampleLogits", {2, 4}, std::move(logits), kF64);
    op.in("SampleLabels", {2, 4}, classes, kI64).in("Cost@GRAD", {2, 1}, {1, -2}, kF64);
    op.out("Input@GRAD").out("Bias@GRAD").out_kind("Weight@GRAD", VarKind::kSelectedRows);
  }
  return op;
}

TEST(Nce, FetchedRowsGiveWhatTheWholeWeightGives) {
  RunOp whole = loss_of_rows("nce", false);
  RunOp fetched = loss_of_rows("nce", true);
  ASSERT_EQ(whole.run_text(), "ok");
  ASSERT_EQ(fetched.run_text(), "ok");
  for (const char* const name : {"Cost0", "SampleLogits0", "SampleLabels0"})
    EXPECT_EQ(whole.values(name), fetched.values(name)) << name;
  RunOp whole_grad = loss_of_rows("nce_grad", false, whole.values("SampleLogits0"));
  RunOp fetched_grad = loss_of_rows("nce_grad", true, whole.values("SampleLogits0"));
  ASSERT_EQ(whole_grad.run_text(), "ok");
  ASSERT_EQ(fetched_grad.run_text(), "ok");
  for (const char* const name : {"Input@GRAD0", "Bias@GRAD0"})
    EXPECT_EQ(whole_grad.values(name), fetched_grad.values(name)) << name;
  const SelectedRows& rows = rows_of(fetched_grad, "Weight@GRAD0");
  EXPECT_EQ(rows.rows, rows_of(whole_grad, "Weight@GRAD0").rows);
  EXPECT_EQ(rows.height, 5);
  EXPECT_EQ(numbers(fetched_grad.value("Weight@GRAD0")), numbers(whole_grad.value("Weight@GRAD0")));
}

TEST(Nce, FetchedRowsNeedTheirClasses) {
  RunOp op("nce");
  op.in("Input", {1, 1}, {0}).in("Label", {1, 1}, {1}, kI64).in("Rows", {1, 2, 1}, {0, 0});
  op.attr("num_neg_samples", 1).attr("num_total_classes", 4).out("Cost");
  op.attr("height_sections", std::vector<int64_t>{4});
  EXPECT_THAT(op.run_text(), HasSubstr("inputs 'Rows' and 'Classes' need each other"));
}

TEST(SampleClasses, AreThoseThatNceDraws) {
  RunOp loss("nce");
  loss.in("Input", {2, 1}, {0}).in("Label", {2, 1}, {1, 3}, kI64).in("Weight", {9, 1}, {0});
  RunOp sample("sample_classes");
  sample.in("Label", {2, 1}, {1, 3}, kI64).out("SampleLabels");
  for (RunOp* const op : {&loss, &sample})
    op->attr("num_total_classes", 9).attr("num_neg_samples", 5).attr("seed", 7);
  loss.out("Cost").out("SampleLabels");
  ASSERT_EQ(loss.run_text(), "ok");
  ASSERT_EQ(sample.run_text(), "ok");
  EXPECT_EQ(sample.values("SampleLabels0"), loss.values("SampleLabels0"));
}

// hierarchical_sigmoid, or its gradient, with listed paths of which one is shorter.
RunOp tree_of_rows(const std::string& type, bool fetched, const std::vector<double>& nodes,
                   std::vector<double> scores = {}) {
  RunOp op(type);
  op.in("X", {2, 3}, spread(6, 0.9), kF64).in("Label", {2, 1}, {0, 1}, kI64);
  op.in("PathTable", {2, 3}, {2, 0, -1, 4, 1, 0}, kI64).in("Bias", {5, 1}, spread(5, 2.0), kF64);
  op.in("PathCode", {2, 3}, {1, 0, -1, 0, 1, 1}, kI64).attr("num_classes", 6);
  op.attr("is_sparse", true);
  if (fetched) {
    op.in("Rows", {2, 3, 3}, rows_at(spread(15, 0.4), nodes), kF64);
    op.in("Nodes", {2, 3}, nodes, kI64).attr("height_sections", std::vector<int64_t>{5});
  } else {
    op.in("W", {5, 3}, spread(15, 0.4), kF64);
  }
  if (type == "hierarchical_sigmoid") {
    op.out("Out").out("PreOut");
  } else {
    op.in("PreOut", {2, 3}, std::move(scores), kF64).in("Out@GRAD", {2, 1}, {1, -2}, kF64);
    op.out("X@GRAD").out("Bias@GRAD").out_kind("W@GRAD", VarKind::kSelectedRows);
  }
  return op;
}

TEST(TreeNodes, TheirRowsGiveWhatTheWholeWeightGives) {
  RunOp list("tree_nodes");
  list.in("Label", {2, 1}, {0, 1}, kI64).in("PathTable", {2, 3}, {2, 0, -1, 4, 1, 0}, kI64);
  list.in("PathCode", {2, 3}, {1, 0, -1, 0, 1, 1}, kI64).attr("num_classes", 6).out("Nodes");
  ASSERT_EQ(list.run_text(), "ok");
  const std::vector<double> nodes = list.values("Nodes0");
  EXPECT_THAT(nodes, ElementsAre(2, 0, 2, 4, 1, 0)) << "a shorter path repeats its first node";
  RunOp whole = tree_of_rows("hierarchical_sigmoid", false, nodes);
  RunOp fetched = tree_of_rows("hierarchical_sigmoid", true, nodes);
  ASSERT_EQ(whole.run_text(), "ok");
  ASSERT_EQ(fetched.run_text(), "ok");
  for (const char* const name : {"Out0", "PreOut0"})
    EXPECT_EQ(whole.values(name), fetched.values(name)) << name;
  const std::vector<double> scores = whole.values("PreOut0");
  RunOp whole_grad = tree_of_rows("hierarchical_sigmoid_grad", false, nodes, scores);
  RunOp fetched_grad = tree_of_rows("hierarchical_sigmoid_grad", true, nodes, scores);
  ASSERT_EQ(whole_grad.run_text(), "ok");
  ASSERT_EQ(fetched_grad.run_text(), "ok");
  for (const char* const name : {"X@GRAD0", "Bias@GRAD0"})
    EXPECT_EQ(whole_grad.values(name), fetched_grad.values(name)) << name;
  EXPECT_EQ(rows_of(fetched_grad, "W@GRAD0").rows, rows_of(whole_grad, "W@GRAD0").rows);
  EXPECT_EQ(numbers(fetched_grad.value("W@GRAD0")), numbers(whole_grad.value("W@GRAD0")));
}

TEST(Nce, DrawsFromAList) {
  RunOp op("nce");
  op.in("Input", {1, 1}, {0}).in("Label", {1, 1}, {1}, kI64).in("Weight", {2, 1}, {0});
  op.in("CustomDistProbs", {2}, {0, 1}).in("CustomDistAlias", {2}, {1, -1}, DType::kInt32);
  op.in("CustomDistAliasProbs", {2}, {0, 1}).attr("num_total_classes", 2).attr("sampler", 2);
  op.attr("num_neg_samples", 4).out("Cost").out("SampleLabels");
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(op.values("SampleLabels0"), ElementsAre(1, 1, 1, 1, 1));
}

TEST(Ids, AreSplitAndMergedAgain) {
  RunOp split("split_ids");
  split.in("Ids", {4, 1}, {5, 2, 5, 4}, kI64).in("Ids", {1, 1}, {1}, kI64).out("Out", 2);
  ASSERT_EQ(split.run_text(), "ok");
  EXPECT_THAT(split.values("Out0"), ElementsAre(2, 4));
  EXPECT_THAT(split.values("Out1"), ElementsAre(1, 5));
  RunOp merge("merge_ids");
  merge.in("Ids", {3, 1}, {5, 2, 5}, kI64).in("Ids", {1, 1}, {4}, kI64);
  merge.in("Rows", {2, 1}, {2, 4}, kI64).in("Rows", {1, 1}, {5}, kI64);
  merge.in("X", {2, 2}, {1, 2, 3, 4}).in("X", {1, 2}, {5, 6}).out("Out", 2);
  ASSERT_EQ(merge.run_text(), "ok");
  EXPECT_THAT(merge.values("Out0"), ElementsAre(5, 6, 1, 2, 5, 6));
  EXPECT_THAT(merge.values("Out1"), ElementsAre(3, 4));
}

TEST(Ids, MissingAnswersAreErrors) {
  RunOp merge("merge_ids");
  merge.in("Ids", {1, 1}, {7}, kI64).in("Rows", {1, 1}, {5}, kI64).in("X", {1, 1}, {1});
  merge.out("Out");
  EXPECT_THAT(merge.run_text(), HasSubstr("Ids[0] has 7, for which Rows has no entry"));
}

TEST(Ids, RowsOfAGradientGoTheSameWay) {
  RunOp op("split_ids");
  op.in("Ids", rows_value({5, 2, 5}, 9, {3, 2}, {1, 2, 3, 4, 5, 6})).out("Out", 3);
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(rows_of(op, "Out0").rows, IsEmpty());
  EXPECT_THAT(rows_of(op, "Out2").rows, ElementsAre(5, 2));
  EXPECT_THAT(values_of(rows_of(op, "Out2")), ElementsAre(6, 8, 3, 4));
}

TEST(Slices, RowNumbersBecomeLocal) {
  RunOp op("split_selected_rows");
  op.in("X", rows_value({5, 2, 8}, 9, {3, 1}, {1, 2, 3}));
  op.attr("height_sections", std::vector<int64_t>{4, 5}).out("Out", 2);
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(rows_of(op, "Out0").rows, ElementsAre(2));
  EXPECT_THAT(rows_of(op, "Out1").rows, ElementsAre(1, 4));
  EXPECT_EQ(rows_of(op, "Out1").height, 5);
  EXPECT_THAT(values_of(rows_of(op, "Out1")), ElementsAre(1, 3));
  RunOp outside("split_selected_rows");
  outside.in("X", rows_value({9}, 9, {1, 1}, {1}));
  outside.attr("height_sections", std::vector<int64_t>{9}).out("Out");
  EXPECT_THAT(outside.run_text(), HasSubstr("X has rows outside of [0, 9)"));
}

TEST(Slices, AreCutByRows) {
  RunOp op("split_byref");
  op.in("X", {3, 2}, {1, 2, 3, 4, 5, 6}).ints("sections", {1, 2}).out("Out", 2);
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(op.values("Out1"), ElementsAre(3, 4, 5, 6));
  RunOp choice("ref_by_trainer_id");
  choice.in("X", {1}, {5}).in("X", {1}, {6}).in("TrainerId", {1}, {1}, kI64).out("Out");
  ASSERT_EQ(choice.run_text(), "ok");
  EXPECT_THAT(choice.values("Out0"), ElementsAre(6));
}

TEST(DgcClipByNorm, StartsWithTheCompression) {
  for (const double step : {4.0, 5.0}) {
    RunOp op("dgc_clip_by_norm");
    op.in("X", {2}, {3, 4}).in("current_step", {1}, {step}).attr("max_norm", 1.0F);
    op.attr("rampup_begin_step", 5.0F).out("Out");
    ASSERT_EQ(op.run_text(), "ok");
    EXPECT_NEAR(op.values("Out0")[0], step < 5 ? 3 : 0.6, 1e-6);
  }
}

}  // namespace
}  // namespace millrace::kernels

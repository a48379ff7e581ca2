// Ops and variants of ops that few programs use: trees, hashed n-grams, compressed gradients,
// matrix products by heads, polygons, and the LoD of outputs. Values are worked out by hand or,
// where noted, computed by the original.
#include <bit>
#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "executor/standard_runtime.h"
#include "kernels/cpu/detection/polygons.h"
#include "tests/kernels/run_op.h"

namespace millrace::kernels {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using Values = std::vector<double>;

RunOp small_tree(Values edges) {
  RunOp op("tree_conv");
  const auto pairs = static_cast<int64_t>(edges.size() / 2);
  op.in("NodesVector", {1, 4, 1}, {1, 2, 4, 8})
      .in("EdgeSet", {1, pairs, 2}, std::move(edges), kI32);
  op.in("Filter", {1, 3, 1, 1}, {10, 100, 1000}).out("Out");
  return op;
}

// Node 1: left 1/2 * 4, right 1/2 * 2 + 1/4 * 4, top 1 + 1/2 * 2 + 1/2 * 4. No edge has node 4.
TEST(TreeConv, WeighsChildrenByPlaceAndDepth) {
  RunOp op = small_tree({1, 2, 1, 3, 0, 0, 3, 4});
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(op.values("Out0"), ElementsAre(20 + 200 + 4000, 2000, 4000, 0));
}

TEST(TreeConv, GradientsAgreeWithFiniteDifferences) {
  RunOp op("tree_conv");
  op.in("NodesVector", {2, 5, 2}, waves(20), kF64);
  op.in("EdgeSet", {2, 4, 2}, {1, 2, 1, 3, 3, 4, 3, 5, 1, 2, 2, 3, 3, 4, 0, 0}, kI32);
  op.in("Filter", {2, 3, 2, 2}, waves(24, 1), kF64).out("Out").attr("max_depth", 3);
  EXPECT_LT(op.gradient_error({"NodesVector", "Filter"}, "Out0"), 1e-6);
}

TEST(TreeConv, RefusesEdgesThatAreNoTree) {
  EXPECT_THAT(small_tree({1, 5}).run_text(), HasSubstr("edge 1 to 5, expected nodes from 1 to 2"));
  EXPECT_THAT(small_tree({1, 2, 1, 3, 1, 4, 2, 1}).run_text(),
              HasSubstr("EdgeSet has 4 edges, but there are 4 nodes"));
}

// A filter of 96 bits and one hash function, as a tensor of floats.
Values bloom_filter(const std::vector<uint8_t>& bits) {
  const std::vector<uint64_t> head = {17070416, 8 * bits.size(), 1, 5};
  std::string bytes(32, '\0');
  std::memcpy(bytes.data(), head.data(), 32);
  bytes.append(bits.begin(), bits.end());
  std::vector<float> floats(bytes.size() / 4);
  std::memcpy(floats.data(), bytes.data(), bytes.size());
  return {floats.begin(), floats.end()};
}

const std::vector<uint8_t> kWhite = {255, 251, 243, 59, 122, 109, 255, 255, 245, 181, 90, 239};
const std::vector<uint8_t> kBlack = {254, 222, 95, 255, 118, 94, 187, 193, 247, 205, 223, 115};

RunOp hashed(bool training, bool white = false, bool black = false,
             const char* type = "pyramid_hash") {
  RunOp op(type);
  Values weights(22);
  for (size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<double>(i);
  op.in("X", {8, 1}, {5, 9, 3, 4, 7, 1, 2, 2}, kI32, Lod({{0, 4, 5, 8}})).in("W", {22, 1}, weights);
  if (white) op.in("WhiteList", {11, 1}, bloom_filter(kWhite)).attr("white_list_len", 11);
  if (black) op.in("BlackList", {11, 1}, bloom_filter(kBlack)).attr("black_list_len", 11);
  op.attr("num_emb", 4).attr("space_len", 20).attr("pyramid_layer", 3).attr("rand_len", 2);
  op.attr("drop_out_percent", 0.5F).attr("is_training", training ? 1 : 0).attr("seed", 7);
  op.out("Out").out("DropPos");
  return op;
}

// The rows were computed by the original.
TEST(PyramidHash, HasARowForEachNgram) {
  RunOp op = hashed(false);
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(op.values("Out0"),
              ElementsAre(4, 4.5, 9, 9.5, 7, 7.5, 4.5, 5, 6.5, 7, 3, 3.5, 7.5, 8, 2.5, 3, 8.5, 9,
                          8.5, 9, 0, 0, 0, 0, 1.5, 2, 0.5, 1, 5.5, 6, 1, 1.5, 5, 5.5, 7, 7.5));
  EXPECT_EQ(op.tensor("Out0").lod(), Lod({{0, 5, 6, 9}}));
  EXPECT_EQ(op.tensor("DropPos0").lod(), Lod({{0, 5, 5, 8}}));
}

// The name that programs use.
TEST(PyramidHash, HasASecondName) {
  RunOp op = hashed(false);
  RunOp other = hashed(false, false, false, "search_pyramid_hash");
  ASSERT_EQ(op.run_text(), "ok");
  ASSERT_EQ(other.run_text(), "ok");
  EXPECT_EQ(other.values("Out0"), op.values("Out0"));
  EXPECT_EQ(other.values("Out0").front(), 4);
  EXPECT_EQ(other.tensor("DropPos0").lod(), op.tensor("DropPos0").lod());
}

TEST(PyramidHash, DropsNgramsInTraining) {
  RunOp op = hashed(true);
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(op.values("Out0"), ElementsAre(8, 9, 18, 19, 13, 14, 6, 7, 0, 0, 0, 0, 0, 0, 0, 0));
  EXPECT_EQ(op.tensor("Out0").lod(), Lod({{0, 2, 3, 4}}));
}

TEST(PyramidHash, ListsSayWhichNgramsCount) {
  RunOp white = hashed(false, true);
  ASSERT_EQ(white.run_text(), "ok");
  EXPECT_THAT(white.values("Out0"),
              ElementsAre(6.5, 7, 3, 3.5, 8.5, 9, 8.5, 9, 0, 0, 0, 0, 5.5, 6, 1, 1.5));
  RunOp both = hashed(false, true, true);
  ASSERT_EQ(both.run_text(), "ok");
  EXPECT_THAT(both.values("Out0"), ElementsAre(8.5, 9, 8.5, 9, 0, 0, 0, 0, 5.5, 6, 1, 1.5));
  EXPECT_EQ(both.tensor("DropPos0").lod(), Lod({{0, 1, 1, 2}}));
}

TEST(PyramidHash, RefusesAListThatIsNone) {
  RunOp op = hashed(false);
  op.in("WhiteList", {11, 1}, {1}).attr("white_list_len", 11);
  EXPECT_THAT(op.run_text(), HasSubstr("WhiteList holds no Bloom filter"));
}

// The pairs of tokens 5 9 and 9 3 are hashed to 8 and 18, 14 and 9 (see above).
TEST(PyramidHash, TheGradientOpUpdatesTheWeights) {
  auto program = Program::create();
  Block& block = program->root();
  for (const char* const name : {"w", "floats", "dout", "dx"})
    block.declare(name, VarSpec::tensor(DType::kFloat32, {-1, 1}));
  for (const char* const name : {"x", "flags"})
    block.declare(name, VarSpec::tensor(DType::kInt32, {-1, 1}));
  Op& op = block.append_op("pyramid_hash_grad");
  op.set_input("X", "x").set_input("W", "w").set_input("DropPos", "flags");
  op.set_input("X_Temp_Out", "floats").set_input("Out@GRAD", "dout").set_output("X@GRAD", "dx");
  op.set_int("num_emb", 4).set_int("space_len", 20).set_int("pyramid_layer", 2);
  op.set_int("rand_len", 2).set_float("lr", 0.5F);
  Scope scope;
  auto prepared = executor::Executor(executor::standard_runtime()).prepare(*program, scope);
  ASSERT_TRUE(prepared.ok()) << prepared.status().to_string();
  executor::NamedValues feeds;
  feeds["x"] = tensor_value({3, 1}, {5, 9, 3}, kI32);
  feeds["x"].as<Tensor>().set_lod(Lod({{0, 3}}));
  feeds["w"] = tensor_value({22, 1}, Values(22, 1));
  feeds["flags"] = tensor_value({2, 1}, {1, 1}, kI32);
  feeds["floats"] = tensor_value({3, 1}, {5, 9, 3});
  feeds["dout"] = tensor_value({2, 4}, {2, 4, 6, 8, 10, 12, 14, 16});
  std::vector<Value> results;
  const Status status = (*prepared)->run(feeds, {"w"}, results);
  ASSERT_TRUE(status.ok()) << status.to_string();
  Values wanted(22, 1);
  for (const auto& [place, step] :
       {std::pair(8, 1), {9, 2}, {18, 3}, {19, 4}, {14, 5}, {15, 6}, {9, 7}, {10, 8}})
    wanted[static_cast<size_t>(place)] -= step;
  EXPECT_THAT(numbers(results[0]), ElementsAreArray(wanted));
}

RunOp compressed(double step) {
  RunOp op("dgc");
  op.in("U", {4}, {0, 0, 0, 8}).in("V", {4}, {1, -5, 0, 2}).in("Grad", {4}, {1, 1, 1, 1});
  op.in("Param", {4}, {1, 2, 3, 4}).in("current_step", {1}, {step}).in("nranks", {1}, {2});
  op.attr("m", 0.5F).attr("use_nesterov", false).attr("sparsity", std::vector<float>{0.75F, 0.5F});
  op.attr("rampup_begin_step", 10.0F).attr("rampup_step", 4.0F);
  for (const char* const slot : {"U_out", "V_out", "EncodeGrad", "Grad_out", "k", "GatherBuff"})
    op.out(slot);
  return op;
}

double as_bits(int32_t number) {
  return std::bit_cast<float>(number);
}

// Momentum 2 2 2 6, accumulated 3 -3 2 8; half of the values are sent, and of equal ones the first.
TEST(Dgc, SendsTheLargestElements) {
  RunOp op = compressed(12);
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(op.values("EncodeGrad0"), ElementsAre(as_bits(0), as_bits(3), 3, 8));
  EXPECT_THAT(op.values("V_out0"), ElementsAre(0, -3, 2, 0));
  EXPECT_THAT(op.values("U_out0"), ElementsAre(0, 2, 2, 0));
  EXPECT_THAT(op.values("Grad_out0"), Each(0));
  EXPECT_THAT(op.values("k0"), ElementsAre(2));
  EXPECT_EQ(op.tensor("GatherBuff0").numel(), 8);
}

TEST(Dgc, WarmsUpAndStartsLate) {
  RunOp first = compressed(11);
  ASSERT_EQ(first.run_text(), "ok");
  EXPECT_THAT(first.values("EncodeGrad0"), ElementsAre(as_bits(3), 8));
  RunOp early = compressed(9);
  early.attr("regular_type", 2).attr("regular_coeff", 0.5F);
  ASSERT_EQ(early.run_text(), "ok");
  EXPECT_THAT(early.values("Grad_out0"), ElementsAre(2.5, 3, 3.5, 4));
  EXPECT_THAT(early.values("V_out0"), ElementsAre(1, -5, 0, 2));
  EXPECT_THAT(early.values("k0"), ElementsAre(0));
}

TEST(Dgc, SaysWhatItNeeds) {
  RunOp none = compressed(12);
  none.attr("sparsity", std::vector<float>{});
  EXPECT_THAT(none.run_text(), HasSubstr("'sparsity' has no entries"));
  RunOp all = compressed(12);
  all.attr("sparsity", std::vector<float>{0.0F});
  EXPECT_THAT(all.run_text(), HasSubstr("expected above 0 and at most 1"));
}

// Two heads: columns 0 1 and 2 3 of X. With all rows of Y the results have all columns of Y.
TEST(MatmulHeads, RowsOrColumnsOfYBelongToAHead) {
  RunOp rows("matmul");
  rows.in("X", {1, 4}, {1, 2, 3, 4}).in("Y", {4, 2}, {1, 0, 0, 1, 1, 1, 2, 0}).out("Out");
  rows.attr("head_number", 2);
  ASSERT_EQ(rows.run_text(), "ok");
  EXPECT_THAT(rows.values("Out0"), ElementsAre(1, 2, 11, 3));
  RunOp columns("matmul");
  columns.in("X", {1, 4}, {1, 2, 3, 4}).in("Y", {2, 4}, {1, 0, 1, 2, 0, 1, 1, 0}).out("Out");
  columns.attr("head_number", 2).attr("alpha", 10.0F);
  ASSERT_EQ(columns.run_text(), "ok");
  EXPECT_THAT(columns.values("Out0"), ElementsAre(10, 20, 70, 60));
}

TEST(MatmulHeads, GradientsAgreeWithFiniteDifferences) {
  for (const bool turn_x : {false, true}) {
    for (const bool turn_y : {false, true}) {
      for (const bool whole : {false, true}) {
        const int64_t rows = whole ? 6 : 3;
        RunOp op("matmul");
        op.in("X", turn_x ? Dims{2, 6, 3} : Dims{2, 3, 6}, waves(36), kF64);
        op.in("Y", turn_y ? Dims{4, rows} : Dims{rows, 4}, waves(4 * rows, 1), kF64).out("Out");
        op.attr("head_number", 2).attr("alpha", 0.5F);
        op.attr("transpose_X", turn_x).attr("transpose_Y", turn_y);
        EXPECT_LT(op.gradient_error({"X", "Y"}, "Out0"), 1e-6) << turn_x << turn_y << whole;
      }
    }
  }
}

TEST(MatmulHeads, MustFit) {
  RunOp op("matmul");
  op.in("X", {2, 4}, waves(8)).in("Y", {3, 3}, waves(9)).attr("head_number", 2).out("Out");
  EXPECT_THAT(op.run_text(), HasSubstr("2 heads of X [2, 4] do not fit Y [3, 3]"));
}

TEST(Polygons, OverlapAsTheirAreasDo) {
  const double square[] = {0, 0, 2, 0, 2, 2, 0, 2};
  const double shifted[] = {1, 1, 3, 1, 3, 3, 1, 3};
  const double diamond[] = {1, 0, 2, 1, 1, 2, 0, 1};
  EXPECT_NEAR(polygon_overlap(square, shifted, 8), 1.0 / 7, 1e-12);
  EXPECT_NEAR(polygon_overlap(square, diamond, 8), 0.5, 1e-12);
  EXPECT_NEAR(polygon_overlap(diamond, shifted, 8), 0.5 / 5.5, 1e-12);
  // an L whose notch is the upper right quarter of the square
  const double angle[] = {0, 0, 2, 0, 2, 1, 1, 1, 1, 2, 0, 2, 0, 1.5, 0, 1};
  const double notch[] = {1, 1, 1.5, 1, 2, 1, 2, 1.5, 2, 2, 1.5, 2, 1, 2, 1, 1.5};
  EXPECT_EQ(polygon_overlap(angle, notch, 16), 0);
  EXPECT_NEAR(polygon_overlap(angle, angle, 16), 1, 1e-12);
}

RunOp polygon_boxes(float threshold) {
  RunOp op("multiclass_nms");
  op.in("BBoxes", {1, 2, 8}, {0, 0, 2, 0, 2, 2, 0, 2, 1, 1, 3, 1, 3, 3, 1, 3});
  op.in("Scores", {1, 1, 2}, {0.9, 0.8}).out("Out").attr("background_label", -1);
  op.attr("score_threshold", 0.1F).attr("nms_top_k", 10).attr("keep_top_k", 10);
  op.attr("nms_threshold", threshold);
  return op;
}

TEST(Polygons, AreSuppressedByTheirOverlap) {
  RunOp one = polygon_boxes(0.14F);
  ASSERT_EQ(one.run_text(), "ok");
  EXPECT_THAT(dims(one.value("Out0")), ElementsAre(1, 10));
  RunOp two = polygon_boxes(0.15F);
  ASSERT_EQ(two.run_text(), "ok");
  EXPECT_THAT(dims(two.value("Out0")), ElementsAre(2, 10));
  RunOp five("multiclass_nms");
  five.in("BBoxes", {1, 2, 5}, {1}).in("Scores", {1, 1, 2}, {1}).out("Out");
  five.attr("score_threshold", 0.1F).attr("nms_top_k", 1).attr("keep_top_k", 1);
  EXPECT_THAT(five.run_text(), HasSubstr("boxes must have 4, 8, 16, 24 or 32 numbers, found 5"));
}

// How the original propagates LoD when ops run.
TEST(RunTimeLod, IsNotWhatProgramsDeclare) {
  const Lod lod({{0, 1, 3}});
  RunOp sum("reduce_sum");
  sum.in("X", {3, 2}, {1}, DType::kFloat32, lod).out("Out").ints("dim", {1});
  ASSERT_EQ(sum.run_text(), "ok");
  EXPECT_TRUE(sum.tensor("Out0").lod().empty());
  RunOp product("matmul_v2");
  product.in("X", {3, 2}, {1}, DType::kFloat32, lod).in("Y", {2, 2}, {1}).out("Out");
  ASSERT_EQ(product.run_text(), "ok");
  EXPECT_TRUE(product.tensor("Out0").lod().empty());
  RunOp vector("mv");
  vector.in("X", {3, 2}, {1}, DType::kFloat32, lod).in("Vec", {2}, {1}).out("Out");
  ASSERT_EQ(vector.run_text(), "ok");
  EXPECT_EQ(vector.tensor("Out0").lod(), lod);
  RunOp mul("mul");
  mul.in("X", {3, 2}, {1}, DType::kFloat32, lod).in("Y", {2, 2}, {1}).out("Out");
  ASSERT_EQ(mul.run_text(), "ok");
  EXPECT_EQ(mul.tensor("Out0").lod(), lod);
}

TEST(RunTimeLod, StaysWhereRowsChange) {
  const Lod lod({{0, 1, 4}});
  RunOp shape("reshape2");
  shape.in("X", {4, 3}, {1}, DType::kFloat32, lod).out("Out").out("XShape").ints("shape", {6, 2});
  ASSERT_EQ(shape.run_text(), "ok");
  EXPECT_EQ(shape.tensor("Out0").lod(), lod);
  RunOp pick("gather_nd");
  pick.in("X", {4, 3}, {1}, DType::kFloat32, lod)
      .in("Index", {2, 1}, {3, 0}, DType::kInt64)
      .out("Out");
  ASSERT_EQ(pick.run_text(), "ok");
  EXPECT_EQ(pick.tensor("Out0").lod(), lod);
  RunOp share("accuracy");
  share.in("Out", {4, 1}, {1}, DType::kFloat32, lod)
      .in("Indices", {4, 1}, {1}, DType::kInt64)
      .in("Label", {4, 1}, {1}, DType::kInt64)
      .out("Accuracy")
      .out("Correct")
      .out("Total");
  ASSERT_EQ(share.run_text(), "ok");
  EXPECT_EQ(share.tensor("Accuracy0").lod(), lod);
  EXPECT_TRUE(share.tensor("Total0").lod().empty());
}

TEST(RunTimeLod, IsDroppedByGradients) {
  const Lod lod({{0, 1, 3}});
  RunOp product("matmul");
  product.in("X", {3, 2}, {1}, DType::kFloat32, lod).in("Y", {2, 2}, {1}).out("Out");
  ASSERT_TRUE(product.run_with_grad({"X"}).ok());
  EXPECT_EQ(product.tensor("Out0").lod(), lod);
  EXPECT_TRUE(product.tensor("X0@GRAD").lod().empty());
  RunOp choice("where");
  choice.in("Condition", {3}, {1, 0, 1}, DType::kBool, lod)
      .in("X", {3}, {1}, DType::kFloat32, Lod({{0, 2, 3}}))
      .in("Y", {3}, {2})
      .out("Out");
  ASSERT_TRUE(choice.run_with_grad({"X", "Y"}).ok());
  EXPECT_EQ(choice.tensor("X0@GRAD").lod(), lod);
  EXPECT_EQ(choice.tensor("Y0@GRAD").lod(), Lod({{0, 2, 3}}));
}

TEST(Linspace, HasALimit) {
  RunOp op("linspace");
  op.in("Start", {1}, {0}).in("Stop", {1}, {1}).in("Num", {1}, {2147483647}, kI32).out("Out");
  const Status status = op.run();
  EXPECT_EQ(status.code(), StatusCode::kResource);
  EXPECT_THAT(status.message(), HasSubstr("Num asks for 2147483647 elements"));
}

}  // namespace
}  // namespace millrace::kernels

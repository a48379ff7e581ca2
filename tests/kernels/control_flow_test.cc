// Messages and hand-worked values of the kernels of ops/control_flow and ops/quant.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/kernels/run_op.h"

namespace millrace::kernels {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Arrays, CheckIndices) {
  RunOp op("write_to_array");
  op.in("X", {1}, {1}).in("I", {1}, {-1}, kI64).out("Out");
  EXPECT_THAT(op.run_text(), HasSubstr("I is -1, which is not a valid array index"));
}

std::string printed(RunOp& op) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(op.run_text(), "ok");
  return testing::internal::GetCapturedStderr();
}

TEST(Print, ShowsWhatItHandsOn) {
  RunOp op("print");
  op.in("In", {2, 3}, {1, 2.5, -3, 4, 5, 6}, DType::kFloat32, Lod({{0, 2}})).out("Out");
  op.attr("message", "here").attr("summarize", 4).attr("print_phase", "BOTH");
  op.attr("print_tensor_name", false).attr("print_tensor_type", true);
  op.attr("print_tensor_shape", true).attr("print_tensor_lod", true);
  EXPECT_EQ(printed(op), "here f32 [2, 3] lod [[0, 2]] [1, 2.5, -3, 4, ...]\n");
  EXPECT_THAT(op.values("Out0"), ElementsAre(1, 2.5, -3, 4, 5, 6));
  EXPECT_EQ(op.tensor("Out0").lod().to_string(), "[[0, 2]]");
}

TEST(Print, IsSilentInTheOtherPhaseAndAfterItsShare) {
  RunOp backward("print");
  backward.in("In", {1}, {7}, kI32).out("Out").attr("print_phase", "BACKWARD");
  EXPECT_EQ(printed(backward), "");
  EXPECT_THAT(backward.values("Out0"), ElementsAre(7));
  RunOp never("print");
  never.in("In", {1}, {7}, kI32).out("Out").attr("print_phase", "FORWARD").attr("first_n", 0);
  EXPECT_EQ(printed(never), "");
}

TEST(Select, ChecksTheMask) {
  RunOp op("select_input");
  op.in("X", {1}, {1}).in("X", {1}, {2}).in("Mask", {1}, {2}, kI32).out("Out");
  EXPECT_THAT(op.run_text(), HasSubstr("Mask is 2, expected one of [0, 2)"));
}

TEST(Split, KeepsTheLodOfSequences) {
  RunOp op("split_lod_tensor");
  op.in("X", {5, 1}, {1, 2, 3, 4, 5}, DType::kFloat32, Lod({{0, 2, 3, 5}}));
  op.in("Mask", {3, 1}, {1, 0, 1}, DType::kBool).attr("level", 0).out("OutTrue").out("OutFalse");
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(op.values("OutTrue0"), ElementsAre(1, 2, 4, 5));
  EXPECT_EQ(op.tensor("OutTrue0").lod().to_string(), "[[0, 2, 4]]");
  EXPECT_THAT(op.values("OutFalse0"), ElementsAre(3));
  RunOp wrong("split_lod_tensor");
  wrong.in("X", {2, 1}, {1, 2}).in("Mask", {3, 1}, {1, 0, 1}, DType::kBool);
  wrong.out("OutTrue").out("OutFalse");
  EXPECT_THAT(wrong.run_text(), HasSubstr("Mask must have a bool for each of 2 sequences"));
}

TEST(Merge, PutsSequencesBack) {
  for (const char* const type : {"merge_lod_tensor", "merge_lod_tensor_infer"}) {
    RunOp op(type);
    op.in("X", {5, 1}, {0}, DType::kFloat32, Lod({{0, 2, 3, 5}}));
    op.in("Mask", {3, 1}, {1, 0, 1}, DType::kBool);
    op.in("InTrue", {4, 1}, {1, 2, 4, 5}, DType::kFloat32, Lod({{0, 2, 4}}));
    op.in("InFalse", {1, 1}, {3}, DType::kFloat32, Lod({{0, 1}})).out("Out");
    ASSERT_EQ(op.run_text(), "ok");
    EXPECT_THAT(op.values("Out0"), ElementsAre(1, 2, 3, 4, 5));
    EXPECT_EQ(op.tensor("Out0").lod().to_string(), "[[0, 2, 3, 5]]");
  }
}

// The LoD is that of the branches; the LoD of X is not used if they have none.
TEST(Merge, TakesTheLodOfTheBranches) {
  RunOp op("merge_lod_tensor");
  op.in("X", {3, 1}, {0}, DType::kFloat32, Lod({{0, 1, 2, 3}}));
  op.in("Mask", {3, 1}, {1, 0, 1}, DType::kBool);
  op.in("InTrue", {2, 1}, {1, 3}).in("InFalse", {1, 1}, {2}).out("Out");
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(op.values("Out0"), ElementsAre(1, 2, 3));
  EXPECT_TRUE(op.tensor("Out0").lod().empty());
}

TEST(Merge, RefusesEntriesThatTheMaskDoesNotTake) {
  for (const bool more : {false, true}) {
    RunOp op("merge_lod_tensor");
    op.in("X", {3, 1}, {0}).in("Mask", {3, 1}, {1, 0, 1}, DType::kBool);
    op.in("InTrue", {2 + more, 1}, {1}).in("InFalse", {2 - more, 1}, {2}).out("Out");
    EXPECT_THAT(op.run_text(), HasSubstr(more ? "InTrue has 3 entries, but Mask takes 2"
                                              : "InFalse has 2 entries, but Mask takes 1"));
  }
}

TEST(Memcpy, CopiesTensors) {
  RunOp op("memcpy");
  op.in("X", {2}, {1, 0}, DType::kBool).out("Out").attr("dst_place_type", 1);
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(op.values("Out0"), ElementsAre(1, 0));
  RunOp rows("memcpy");
  rows.in("X", rows_value({4}, 9, {1, 2}, {1, 2})).out("Out").attr("dst_place_type", 0);
  EXPECT_THAT(rows.run_text(), HasSubstr("must be a dense tensor, found selected rows"));
}

TEST(Assert, SaysWhatDidNotHold) {
  RunOp op("assert");
  op.in("Cond", {1}, {0}, DType::kBool).in("Data", {3}, {1, 2.5, 3}).attr("summarize", int64_t{2});
  EXPECT_THAT(op.run_text(), HasSubstr("'Cond0' does not hold; Data0 is f32 [3] [1, 2.5, ...]"));
}

TEST(MemoryHelper, HasAGradientOfZeroWhereNoneComesIn) {
  RunOp op("rnn_memory_helper_grad");
  op.in("X", {2}, {1, 2}).out("X@GRAD");
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(op.values("X@GRAD0"), ElementsAre(0, 0));
}

TEST(Quantize, RoundsHalvesAsAsked) {
  // largest value 127: the integers are the values themselves
  for (const int round : {0, 1}) {
    RunOp op("fake_quantize_abs_max");
    op.in("X", {4}, {127, 2.5, -2.5, 3.5}).attr("bit_length", 8).attr("round_type", round);
    op.out("Out").out("OutScale");
    ASSERT_EQ(op.run_text(), "ok");
    EXPECT_EQ(op.values("OutScale0")[0], 127);
    if (round == 0) {
      EXPECT_THAT(op.values("Out0"), ElementsAre(127, 2, -2, 4));
    } else {
      EXPECT_THAT(op.values("Out0"), ElementsAre(127, 3, -3, 4));
    }
  }
}

TEST(Quantize, KeepsAWindowOfMaxima) {
  RunOp op("fake_quantize_range_abs_max");
  op.in("X", {2}, {1, -4}).in("InScale", {1}, {2}).in("Iter", {1}, {0}, kI64);
  op.attr("window_size", 3).out("Out").out("OutScale").out("OutScales");
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_EQ(op.values("OutScale0")[0], 4);
  EXPECT_EQ(op.values("OutScales0")[0], 4);
}

TEST(Dequantize, ChecksScales) {
  RunOp op("fake_channel_wise_dequantize_max_abs");
  op.in("X", {2, 3}, {1}).in("Scales", {3}, {1}).ints("quant_bits", {8}).out("Out");
  EXPECT_THAT(op.run_text(), HasSubstr("the scale must be f32 with 2 elements"));
  RunOp two("fake_channel_wise_dequantize_max_abs");
  two.in("X", {1, 2}, {127, 127}).in("Scales", {2}, {1, 2}).in("Scales", {1}, {127});
  two.ints("quant_bits", {8, 8}).attr("x_num_col_dims", 1).out("Out");
  ASSERT_EQ(two.run_text(), "ok");
  EXPECT_THAT(two.values("Out0"), ElementsAre(1, 2));
}

}  // namespace
}  // namespace millrace::kernels

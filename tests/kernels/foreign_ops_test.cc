// Ops that the original has only for a GPU.
#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/kernels/run_op.h"

namespace millrace::kernels {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Values = std::vector<double>;

// Two layers of both directions: width 2, 3 cells.
constexpr int64_t kLstmWidth = 2;
constexpr int64_t kLstmSize = 3;

std::vector<Dims> lstm_shapes() {
  std::vector<Dims> shapes;
  for (int part = 0; part < 4; ++part) {
    shapes.push_back({4 * kLstmSize, part < 2 ? kLstmWidth : 2 * kLstmSize});
    shapes.push_back({4 * kLstmSize, kLstmSize});
  }
  for (int bias = 0; bias < 8; ++bias) shapes.push_back({4 * kLstmSize});
  return shapes;
}

enum class LstmForm : uint8_t { kRnn, kList, kFlat, kOld };

RunOp lstm_of(LstmForm form) {
  const bool rnn = form == LstmForm::kRnn;
  RunOp op(rnn ? "rnn" : "cudnn_lstm");
  op.in("Input", {4, 2, kLstmWidth}, noise(16), kF64);
  op.in(rnn ? "PreState" : "InitH", {4, 2, kLstmSize}, noise(24, 2), kF64);
  op.in(rnn ? "PreState" : "InitC", {4, 2, kLstmSize}, noise(24, 3), kF64);
  Values flat;
  unsigned start = 10;
  for (const Dims& shape : lstm_shapes()) {
    const Values values = noise(static_cast<size_t>(count_of(shape)), ++start);
    flat.insert(flat.end(), values.begin(), values.end());
    if (rnn || form == LstmForm::kList) op.in("WeightList", shape, values, kF64);
  }
  const auto count = static_cast<int64_t>(flat.size());
  if (form == LstmForm::kFlat || form == LstmForm::kOld) op.in("W", {count}, flat, kF64);
  if (form != LstmForm::kOld) op.in("SequenceLength", {2}, {4, 2}, kI32);
  op.out("Out").out("Reserve");
  if (rnn) op.out("State", 2).attr("mode", "LSTM");
  if (form == LstmForm::kList || form == LstmForm::kFlat) op.out("LastH").out("LastC");
  if (form == LstmForm::kOld) op.out("last_h").out("last_c").attr("max_len", 4);
  op.attr("is_bidirec", true).attr("num_layers", 2).attr("hidden_size", int32_t{kLstmSize});
  return op;
}

TEST(CudnnLstm, IsTheOpOf2xWithItsWeightsInOneVar) {
  RunOp rnn = lstm_of(LstmForm::kRnn);
  ASSERT_EQ(rnn.run_text(), "ok");
  for (const LstmForm form : {LstmForm::kList, LstmForm::kFlat}) {
    RunOp op = lstm_of(form);
    ASSERT_EQ(op.run_text(), "ok");
    EXPECT_EQ(op.values("Out0"), rnn.values("Out0"));
    EXPECT_EQ(op.values("LastH0"), rnn.values("State0"));
    EXPECT_EQ(op.values("LastC0"), rnn.values("State1"));
  }
}

TEST(CudnnLstm, GradientsAgreeWithFiniteDifferences) {
  const std::vector<std::string> wanted = {"Input", "InitH", "InitC", "W"};
  EXPECT_LT(lstm_of(LstmForm::kFlat).gradient_error(wanted, "Out0"), 1e-5);
  EXPECT_LT(lstm_of(LstmForm::kFlat).gradient_error(wanted, "LastC0"), 1e-5);
  EXPECT_LT(lstm_of(LstmForm::kOld).gradient_error(wanted, "last_h0"), 1e-5);
  EXPECT_LT(lstm_of(LstmForm::kList).gradient_error({"Input", "WeightList"}, "Out0"), 1e-5);
}

TEST(CudnnLstm, RefusesWeightsOfAnotherSize) {
  RunOp op("cudnn_lstm");
  op.in("Input", {1, 1, 1}, {1}).in("InitH", {1, 1, 1}, {1}).in("InitC", {1, 1, 1}, {1});
  op.in("W", {7}, {1}).out("Out").attr("hidden_size", 1);
  EXPECT_THAT(op.run_text(), HasSubstr("W must have 16 elements"));
  RunOp neither("cudnn_lstm");
  neither.in("Input", {1, 1, 1}, {1}).in("InitH", {1, 1, 1}, {1}).in("InitC", {1, 1, 1}, {1});
  neither.out("Out").attr("hidden_size", 1);
  EXPECT_THAT(neither.run_text(), HasSubstr("exactly one of 'W' and 'WeightList' must be given"));
}

RunOp fused_image(const char* type, const char* activation) {
  RunOp op(type);
  op.in("Input", {1, 1, 1, 3}, {1, 2, -3})
      .in("Filter", {3, 1, 1, 1}, {1, -1, 4})
      .in("Bias", {3}, {0.5, 0, 0})
      .in("ResidualData", {1, 3, 1, 3}, {0, 0, 2, 0, 0, 0, 0, 0, 1})
      .out("Output")
      .attr("activation", activation);
  return op;
}

TEST(Conv2dFusion, AddsBothAndGivesChannelsInParts) {
  RunOp op = fused_image("conv2d_fusion", "relu6");
  op.out("Outputs", 2).ints("split_channels", {1, 2});
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(op.values("Output0"), ElementsAre(1.5, 2.5, 0, 0, 0, 3, 4, 6, 0));
  EXPECT_THAT(op.values("Outputs0"), ElementsAre(1.5, 2.5, 0));
  EXPECT_THAT(op.values("Outputs1"), ElementsAre(0, 0, 3, 4, 6, 0));
}

TEST(Conv2dFusion, KnowsItsActivations) {
  const auto first = [](const char* activation) {
    RunOp op = fused_image("fused_conv2d_add_act", activation);
    EXPECT_EQ(op.attr("fuse_alpha", 0.5F).run_text(), "ok") << activation;
    return op.values("Output0");
  };
  EXPECT_THAT(first("identity"), ElementsAre(1.5, 2.5, -0.5, -1, -2, 3, 4, 8, -11));
  EXPECT_THAT(first("relu"), ElementsAre(1.5, 2.5, 0, 0, 0, 3, 4, 8, 0));
  EXPECT_EQ(first("relux"), first("relu"));
  EXPECT_THAT(first("leaky_relu"), ElementsAre(1.5, 2.5, -0.25, -0.5, -1, 3, 4, 8, -5.5));
  EXPECT_NEAR(first("sigmoid")[3], 1 / (1 + std::exp(1.0)), 1e-6);
  EXPECT_NEAR(first("tanh")[3], std::tanh(-1.0), 1e-6);
  EXPECT_NEAR(first("swish")[3], -1 / (1 + std::exp(1.0)), 1e-6);
}

TEST(Conv2dFusion, RefusesWhatItDoesNotKnow) {
  EXPECT_THAT(fused_image("conv2d_fusion", "band_pass").run_text(),
              HasSubstr("activation 'band_pass' of conv2d_fusion"));
  RunOp op = fused_image("conv2d_fusion", "relu");
  op.out("Outputs", 2).ints("split_channels", {1, 1});
  EXPECT_THAT(op.run_text(), HasSubstr("adds up to 2, expected the 3 channels"));
}

// The original's oneDNN passes name the function in other attributes than ours.
TEST(FusedConv2d, KnowsTheAttributesOfTheOriginal) {
  const auto values = [](const char* function, float alpha, float beta, bool adds) {
    RunOp op = fused_image("fused_conv2d", "");
    op.attr("fuse_activation", function).attr("fuse_alpha", alpha).attr("fuse_beta", beta);
    EXPECT_EQ(op.attr("fuse_residual_connection", adds).run_text(), "ok") << function;
    return op.values("Output0");
  };
  EXPECT_THAT(values("", 0, 0, true), ElementsAre(1.5, 2.5, -0.5, -1, -2, 3, 4, 8, -11));
  EXPECT_THAT(values("", 0, 0, false), ElementsAre(1.5, 2.5, -2.5, -1, -2, 3, 4, 8, -12));
  EXPECT_THAT(values("relu", 0, 0, true), ElementsAre(1.5, 2.5, 0, 0, 0, 3, 4, 8, 0));
  EXPECT_THAT(values("relu6", 0, 6, true), ElementsAre(1.5, 2.5, 0, 0, 0, 3, 4, 6, 0));
  EXPECT_THAT(values("leaky_relu", 0.5F, 0, true),
              ElementsAre(1.5, 2.5, -0.25, -0.5, -1, 3, 4, 8, -5.5));
  RunOp both = fused_image("fused_conv2d", "relu");
  EXPECT_THAT(both.attr("fuse_activation", "relu").run_text(), HasSubstr("are both set"));
  RunOp bounds = fused_image("fused_conv2d", "");
  bounds.attr("fuse_activation", "relu6").attr("fuse_alpha", 1.0F);
  EXPECT_THAT(bounds.run_text(), HasSubstr("'fuse_alpha' of relu6 is 1, expected 0"));
}

TEST(FusionTransposeFlattenConcat, PutsTransposedMatricesSideBySide) {
  RunOp op("fusion_transpose_flatten_concat");
  op.in("X", {1, 2, 2}, {0, 1, 2, 3}).in("X", {1, 1, 2}, {4, 5}).out("Out");
  op.ints("trans_axis", {0, 2, 1}).attr("flatten_axis", 1).attr("concat_axis", 1);
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(dims(op.value("Out0")), ElementsAre(1, 6));
  EXPECT_THAT(op.values("Out0"), ElementsAre(0, 2, 1, 3, 4, 5));
  op.attr("concat_axis", 0);
  EXPECT_THAT(op.run_text(), HasSubstr("does not fit to the others along dim 1"));
}

}  // namespace
}  // namespace millrace::kernels

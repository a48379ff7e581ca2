#include <gtest/gtest.h>

#include "framework/op_attrs.h"
#include "tests/ops/op_fixture.h"

namespace millrace::ops {
namespace {

TEST(Rnn, LodLayers) {
  EXPECT_EQ(infer("lstm", "Input=f32[-1,12]@1 Weight=f32[3,12] Bias=f32[1,21]",
                  "Hidden Cell BatchGate BatchCellPreAct"),
            "Hidden=f32[-1,3]@1 Cell=f32[-1,3]@1 BatchGate=f32[-1,12] BatchCellPreAct=f32[-1,3]");
  EXPECT_EQ(infer("lstm", "Input=? Weight=f32[3,12] Bias=f32[1,12]", "Hidden",
                  {{"use_peepholes", make_attr(false)}}),
            "Hidden=f32[-1,3]");
  EXPECT_EQ(infer("gru", "Input=f32[8,9]@1 Weight=f32[3,9]", "Hidden BatchGate"),
            "Hidden=f32[8,3]@1 BatchGate=f32[8,9]");
  EXPECT_EQ(infer("lstmp", "Input=f32[8,12]@1 Weight=f32[2,12] ProjWeight=f32[3,2] Bias=f32[1,12]",
                  "Projection Cell"),
            "Projection=f32[8,2]@1 Cell=f32[8,3]@1");
}

TEST(Rnn, LodLayerErrors) {
  EXPECT_EQ(infer("lstm", "Input=f32[-1,12]@1 Weight=f32[3,11] Bias=f32[1,21]", "Hidden"),
            "'Weight' has shape [3, 11], expected [size, 4 * size]");
  EXPECT_EQ(infer("lstm", "Input=f32[-1,12]@1 Weight=f32[3,12] Bias=f32[1,12]", "Hidden"),
            "'Bias' has shape [1, 12], expected [1, 21]");
  EXPECT_EQ(infer("gru", "Input=f32[8,8]@1 Weight=f32[3,9]", "Hidden"),
            "'Input' has shape [8, 8], expected 9 columns, 3 for each of the 3 cells");
  EXPECT_EQ(infer("lstmp", "Input=f32[8,12]@1 Weight=f32[3,12] ProjWeight=f32[3,2] Bias=f32[1,12]",
                  "Projection"),
            "'Weight' has shape [3, 12], expected [2, 12] for 'ProjWeight' [3, 2]");
}

TEST(Rnn, Steps) {
  EXPECT_EQ(infer("gru_unit", "Input=f32[-1,9] HiddenPrev=f32[2,3] Weight=f32[3,9]", "Hidden Gate"),
            "Hidden=f32[2,3] Gate=f32[2,9]");
  EXPECT_EQ(infer("gru_unit", "Input=f32[2,9] HiddenPrev=f32[2,3] Weight=f32[3,8]", "Hidden"),
            "'Weight' has shape [3, 8], expected [3, 9]");
  EXPECT_EQ(infer("lstm_unit", "X=f32[2,12] C_prev=f32[2,3]", "C H"), "C=f32[2,3] H=f32[2,3]");
  EXPECT_EQ(infer("lstm_unit", "X=f32[2,9] C_prev=f32[2,3]", "C"),
            "'X' has shape [2, 9], expected 12 columns, 4 for each of the 3 cells");
}

TEST(Rnn, PaddedLayer) {
  const AttrList lstm = {{"mode", make_attr("LSTM")},
                         {"is_bidirec", make_attr(true)},
                         {"hidden_size", make_attr(3)},
                         {"num_layers", make_attr(2)}};
  EXPECT_EQ(
      infer("rnn", "Input=f32[7,2,5] PreState=f32[4,2,3]+f32[4,2,3] WeightList=f32[12,5]+f32[12,3]",
            "Out State*2", lstm),
      "Out=f32[7,2,6] State=f32[4,2,3]+f32[4,2,3]");
  EXPECT_EQ(infer("rnn", "Input=f32[7,2,5] PreState=f32[4,2,3] WeightList=f32[12,5]", "Out", lstm),
            "'PreState' has 1 vars, expected 2 for attribute 'mode' LSTM");
  EXPECT_EQ(infer("rnn", "Input=f32[7,2,5] PreState=f32[2,2,3]+f32[2,2,3] WeightList=f32[12,5]",
                  "Out", lstm),
            "'PreState' has shape [2, 2, 3], expected 4 rows, layers times directions");
}

TEST(Rnn, Gradients) {
  EXPECT_EQ(grad("lstm", "Input Weight Bias", "Hidden Cell BatchGate BatchCellPreAct"),
            "lstm_grad(BatchCellPreAct BatchGate Bias Cell Hidden Hidden@GRAD Input Weight -> "
            "Bias@GRAD Input@GRAD Weight@GRAD)");
  EXPECT_EQ(grad("lstm_unit", "X C_prev", "C H"),
            "lstm_unit_grad(C C@GRAD C_prev H@GRAD X -> C_prev@GRAD X@GRAD)");
  EXPECT_EQ(grad("rnn", "Input PreState*2 WeightList*4", "Out State*2 DropoutState Reserve"),
            "rnn_grad(DropoutState Input Out Out@GRAD PreState*2 Reserve State@GRAD*2 WeightList*4 "
            "-> Input@GRAD PreState@GRAD*2 WeightList@GRAD*4)");
  EXPECT_EQ(infer("gru_grad", "Input=f32[-1,9]@1 Weight=f32[3,9]", "Input@GRAD Weight@GRAD"),
            "Input@GRAD=f32[-1,9] Weight@GRAD=f32[3,9]");
}

TEST(Rnn, Costs) {
  EXPECT_EQ(flops("lstm", "Input=f32[8,12]@1 Weight=f32[3,12]"), 2.0 * 8 * 36);
  EXPECT_EQ(flops("rnn", "Input=f32[7,2,5] WeightList=f32[12,5]+f32[12,3]"), 2.0 * 14 * 96);
}

TEST(Quant, Scales) {
  EXPECT_EQ(infer("fake_quantize_abs_max", "X=f32[4,3]", "Out OutScale"),
            "Out=f32[4,3] OutScale=f32[1]");
  EXPECT_EQ(infer("fake_channel_wise_quantize_abs_max", "X=f32[4,3]", "Out OutScale",
                  {{"quant_axis", make_attr(1)}}),
            "Out=f32[4,3] OutScale=f32[3]");
  EXPECT_EQ(infer("fake_channel_wise_quantize_abs_max", "X=f32[4]", "Out",
                  {{"quant_axis", make_attr(1)}}),
            "attribute 'quant_axis' is 1, expected a dim of 'X' [4]");
  EXPECT_EQ(infer("fake_quantize_range_abs_max", "X=f32[4,3] InScale=f32[1]", "Out OutScales",
                  {{"window_size", make_attr(16)}}),
            "Out=f32[4,3] OutScales=f32[16]");
  EXPECT_EQ(
      infer("fake_quantize_moving_average_abs_max",
            "X=f32[4,3] InScale=f32[1] InAccum=f32[1] InState=f32[1]", "Out OutState OutAccum"),
      "Out=f32[4,3] OutState=f32[1] OutAccum=f32[1]");
}

TEST(Quant, BackToFloat) {
  EXPECT_EQ(infer("fake_dequantize_max_abs", "X=i8[4,3] Scale=f32[1]", "Out"), "Out=f32[4,3]");
  EXPECT_EQ(infer("fake_channel_wise_dequantize_max_abs", "X=f32[4,3] Scales=f32[4]+f32[1]", "Out"),
            "attribute 'quant_bits' has 1 entries, expected 2, one for each var of 'Scales'");
  EXPECT_EQ(infer("dequantize_linear", "X=f32[4,3] Scale=f32[4] ZeroPoint=f32[1]", "Y"),
            "Y=f32[4,3]");
  EXPECT_EQ(infer("quantize_linear", "X=f32[4,3] Scale=f32[4] ZeroPoint=f32[1]", "Y",
                  {{"quant_axis", make_attr(2)}}),
            "attribute 'quant_axis' is 2, expected -1 or a dim of 'X' [4, 3]");
}

TEST(Quant, GradientsPassThrough) {
  for (const char* const type :
       {"fake_quantize_dequantize_abs_max", "fake_channel_wise_quantize_dequantize_abs_max",
        "fake_quantize_dequantize_moving_average_abs_max", "moving_average_abs_max_scale"}) {
    EXPECT_EQ(grad(type, "X", "Out OutScale"),
              "stright_throuth_estimator_grad(Out@GRAD -> X@GRAD)");
  }
  EXPECT_EQ(infer("stright_throuth_estimator_grad", "Out@GRAD=f32[4,3]", "X@GRAD"),
            "X@GRAD=f32[4,3]");
  EXPECT_EQ(grad("fake_quantize_abs_max", "X", "Out OutScale"),
            "op type 'fake_quantize_abs_max' has no gradient rule");
}

TEST(Rnn, CudnnLstm) {
  const std::string inputs = "Input=f32[7,-1,3] InitH=f32[2,-1,5] InitC=f32[2,-1,5]";
  const std::vector<std::pair<std::string, AttrValue>> attrs = {{"is_bidirec", make_attr(true)},
                                                                {"hidden_size", make_attr(5)}};
  EXPECT_EQ(infer("cudnn_lstm", inputs + " W=f32[400]", "Out LastH LastC", attrs),
            "Out=f32[7,-1,10] LastH=f32[2,-1,5] LastC=f32[2,-1,5]");
  EXPECT_EQ(infer("cudnn_lstm", inputs, "Out", attrs),
            "exactly one of 'W' and 'WeightList' must be given");
  EXPECT_EQ(infer("cudnn_lstm", inputs + " W=f32[400]", "Out", {{"hidden_size", make_attr(5)}}),
            "'InitH' has shape [2, -1, 5], expected 1 rows, layers times directions");
}

}  // namespace
}  // namespace millrace::ops

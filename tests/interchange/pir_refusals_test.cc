// What converters into PIR programs refuse, op by op, with the reason.

#include <functional>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "interchange/pir/export.h"
#include "tests/support/program_builder.h"

namespace millrace::interchange {
namespace {

using millrace::testing::ProgramBuilder;
using ::testing::HasSubstr;

// An op whose inputs are fed vars `a`, `b`, ... and whose first output is fetched.
class PirRefusals : public ::testing::Test {
 protected:
  struct In {
    std::string slot;
    Dims dims;
    DType dtype = DType::kFloat32;
    int count = 1;
  };
  // \returns the error of the export
  std::string error(
      const std::string& type, const std::vector<In>& inputs,
      const std::vector<std::string>& outputs, const Dims& out_dims,
      const std::function<void(Op&)>& set = [](Op&) {}, DType out_dtype = DType::kFloat32) {
    ProgramBuilder program;
    Slots in;
    int32_t column = 0;
    for (const In& input : inputs) {
      std::vector<std::string> names;
      for (int k = 0; k < input.count; ++k) {
        names.push_back(std::string(1, static_cast<char>('a' + column)));
        program.block().declare(names.back(), VarSpec::tensor(input.dtype, input.dims));
        program.feed(names.back(), column++);
      }
      in.emplace_back(input.slot, names);
    }
    Slots out;
    for (const std::string& slot : outputs) {
      program.block().declare("out_" + slot, VarSpec::tensor(out_dtype, out_dims));
      out.emplace_back(slot, std::vector<std::string>{"out_" + slot});
    }
    Op& op = program.block().append_op(type);
    for (const auto& [slot, names] : in) op.set_input(slot, names);
    for (const auto& [slot, names] : out) op.set_output(slot, names);
    set(op);
    program.fetch("out_" + outputs[0], 0);
    const auto made = export_pir(program.program(), {});
    EXPECT_FALSE(made.ok()) << type;
    return made.ok() ? "" : made.status().to_string();
  }

 private:
  using Slots = std::vector<std::pair<std::string, std::vector<std::string>>>;
};

constexpr float kInfinite = std::numeric_limits<float>::infinity();

TEST_F(PirRefusals, Products) {
  EXPECT_THAT(error("mul", {{"X", {-1, -1, 2, 3}}, {"Y", {6, 4}}}, {"Out"}, {-1, -1, 4},
                    [](Op& op) { op.set_int("x_num_col_dims", 2); }),
              HasSubstr("(mul): export to PIR: a product of tensors with several unknown extents"));
  EXPECT_THAT(error("fc", {{"Input", {2, 3}}, {"W", {7, 8}}}, {"Out"}, {2, 4},
                    [](Op& op) { op.set_bool("padding_weights", true); }),
              HasSubstr("fc with padded weights"));
  EXPECT_THAT(error("fc", {{"Input", {2, 3}}, {"W", {3, 4}}}, {"Out"}, {2, 4},
                    [](Op& op) { op.set_string("activation_type", "tanh"); }),
              HasSubstr("fc with the function tanh"));
}

TEST_F(PirRefusals, FunctionsInConvolutions) {
  const std::vector<In> inputs = {{"Input", {1, 2, 4, 4}}, {"Filter", {3, 2, 1, 1}}};
  EXPECT_THAT(error("conv2d", inputs, {"Output"}, {1, 3, 4, 4},
                    [](Op& op) { op.set_string("fuse_activation", "relu"); }),
              HasSubstr("a fused function in an op without use_mkldnn"));
  EXPECT_THAT(
      error("conv2d", inputs, {"Output"}, {1, 3, 4, 4},
            [](Op& op) { op.set_string("fuse_activation", "swish").set_bool("use_mkldnn", true); }),
      HasSubstr("the fused function swish"));
}

TEST_F(PirRefusals, Constants) {
  const auto shape = [](Op& op) { op.set_attr("shape", AttrValue::of_longs({2})); };
  EXPECT_THAT(error(
                  "fill_constant", {}, {"Out"}, {2},
                  [&](Op& op) {
                    shape(op);
                    op.set_int("dtype", 3).set_string("str_value", "9007199254740993000");
                  },
                  DType::kInt64),
              HasSubstr("an integer above 2^53"));
  EXPECT_THAT(error("fill_constant", {}, {"Out"}, {2},
                    [&](Op& op) {
                      shape(op);
                      op.set_int("dtype", 5).set_string("str_value", "many");
                    }),
              HasSubstr("the value 'many'"));
  EXPECT_THAT(error("fill_constant_batch_size_like", {{"Input", {2}}}, {"Out"}, {2},
                    [&](Op& op) {
                      op.set_attr("shape", AttrValue::of_ints({2}));
                      op.set_int("dtype", 5).set_float("value", kInfinite);
                    }),
              HasSubstr("a value that is not finite"));
  EXPECT_THAT(
      error("assign_value", {}, {"Out"}, {1},
            [&](Op& op) {
              op.set_attr("shape", AttrValue::of_ints({1}));
              op.set_int("dtype", 5).set_attr("fp32_values", AttrValue::of_floats({kInfinite}));
            }),
      HasSubstr("values that are not finite"));
}

TEST_F(PirRefusals, IndicesAndReductions) {
  EXPECT_THAT(error("reduce_sum", {{"X", {2, 3, 4}}}, {"Out"}, {2, 4},
                    [](Op& op) {
                      op.set_attr("dim", AttrValue::of_ints({1, -2}));
                    }),
              HasSubstr("an axis that is stated twice"));
  EXPECT_THAT(error("elementwise_add", {{"X", {2, 3, 4}}, {"Y", {3, 4}}}, {"Out"}, {2, 3, 4},
                    [](Op& op) { op.set_int("axis", -2); }),
              HasSubstr("axis"));
}

TEST_F(PirRefusals, BitsOfIntegers) {
  EXPECT_THAT(error("quantize_linear", {{"X", {2}}, {"Scale", {1}}, {"ZeroPoint", {1}}}, {"Y"}, {2},
                    [](Op& op) { op.set_int("bit_length", 1); }),
              HasSubstr("a bit_length outside 2 to 31"));
}

TEST_F(PirRefusals, NegativeStartsInUnknownExtents) {
  EXPECT_THAT(error("partial_sum", {{"X", {-1, -1}, DType::kFloat32, 2}}, {"Out"}, {-1, -1},
                    [](Op& op) { op.set_int("start_index", -1).set_int("length", 1); }),
              HasSubstr("a negative start_index with an unknown number of columns"));
}

TEST_F(PirRefusals, ValuesOfTensorsWherePirNeedsAttributes) {
  EXPECT_THAT(
      error("split", {{"X", {4, 2}}, {"SectionsTensorList", {1}, DType::kInt32, 1}}, {"Out"},
            {4, 2}, [](Op& op) { op.set_attr("sections", AttrValue::of_ints({4})); }),
      HasSubstr("split with sections as tensors"));
  EXPECT_THAT(error("pad2d", {{"X", {1, 1, 2, 2}}, {"Paddings", {4}, DType::kInt32}}, {"Out"},
                    {1, 1, 4, 4}),
              HasSubstr("paddings given as a tensor"));
  EXPECT_THAT(
      error("bilinear_interp", {{"X", {1, 1, 2, 2}}, {"Scale", {1}}}, {"Out"}, {1, 1, 4, 4}),
      HasSubstr("a factor given as a tensor"));
  EXPECT_THAT(error("multiclass_nms", {{"BBoxes", {4, 2, 4}}, {"Scores", {4, 2}}}, {"Out"}, {-1, 6},
                    [](Op& op) {
                      op.set_float("score_threshold", 0.1F).set_int("nms_top_k", 4);
                      op.set_int("keep_top_k", 4);
                    }),
              HasSubstr("boxes whose images are given by their LoD"));
}

TEST_F(PirRefusals, Training) {
  EXPECT_THAT(error("fake_quantize_moving_average_abs_max", {{"X", {2}}, {"InScale", {1}}},
                    {"Out", "OutScale"}, {2}),
              HasSubstr("a moving average in training without InAccum and InState"));
  EXPECT_THAT(error("moving_average_abs_max_scale", {{"X", {2}}}, {"OutScale", "Out"}, {2},
                    [](Op& op) { op.set_bool("is_test", true); }),
              HasSubstr("a scale that is read, but computed in training only"));
  EXPECT_THAT(
      error("lookup_table_v2", {{"Ids", {2}, DType::kInt64}, {"W", {4, 3}}}, {"Out"}, {2, 3},
            [](Op& op) { op.set_bool("remote_prefetch", true).set_strings("epmap", {"a:1"}); }),
      HasSubstr("a table on other servers"));
}

TEST_F(PirRefusals, DataNorm) {
  const std::vector<In> inputs = {
      {"X", {2, 4}}, {"BatchSize", {4}}, {"BatchSum", {4}}, {"BatchSquareSum", {4}}};
  EXPECT_THAT(error("data_norm", inputs, {"Y"}, {2, 4}, [](Op& op) { op.set_int("slot_dim", 2); }),
              HasSubstr("data_norm that skips slots"));
  EXPECT_THAT(error("data_norm", inputs, {"Y"}, {2, 4},
                    [](Op& op) { op.set_bool("enable_scale_and_shift", true); }),
              HasSubstr("data_norm without scale_w and bias"));
}

TEST_F(PirRefusals, ChoicesOfDifferentRanks) {
  ProgramBuilder program;
  program.var("m", {1}, DType::kInt32).var("a", {2}).var("b", {2, 1}).var("y", {2});
  program.feed("m", 0);
  program.feed("a", 1);
  program.feed("b", 2);
  program.op("select_input", {{"X", {"a", "b"}}, {"Mask", {"m"}}}, {{"Out", {"y"}}});
  program.fetch("y", 0);
  const auto made = export_pir(program.program(), {});
  ASSERT_FALSE(made.ok());
  EXPECT_THAT(made.status().to_string(), HasSubstr("values of different ranks"));
}

}  // namespace
}  // namespace millrace::interchange

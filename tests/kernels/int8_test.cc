// Products of 8-bit integers: sums that would saturate, and programs with fake quantization with
// and without the pass int8-products, which must agree up to the rounding of float sums.
#include <cmath>
#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "executor/executor.h"
#include "executor/standard_runtime.h"
#include "framework/text_form/parse.h"
#include "tests/kernels/run_op.h"

namespace millrace::kernels {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using Values = std::vector<double>;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

RunOp integer_product(Values x, Values w) {
  RunOp op("int8_fc");
  op.in("Input", {33, 300}, std::move(x)).in("W", {300, 65}, std::move(w));
  op.in("InScale", {1}, {127}).attr("integer_weights", true).attr("weight_scale", 127.0F);
  op.out("Out");
  return op;
}

TEST(Int8Products, DoNotSaturate) {
  for (const double sign : {-1.0, 1.0}) {
    RunOp op = integer_product({127 * sign}, {127});
    ASSERT_EQ(op.run_text(), "ok");
    EXPECT_THAT(op.values("Out0"), ::testing::Each(300 * 127 * 127 * sign));
  }
  Values x(33 * 300, -1.0);
  x[5] = 127.4;
  x[6] = -2.5;  // half away from 0
  RunOp op = integer_product(x, {1});
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_EQ(op.values("Out0")[64], 127 - 3 - 298);
  EXPECT_EQ(op.values("Out0")[65], -300);
}

TEST(Int8Products, ConvolutionsDoNotSaturate) {
  for (const int groups : {1, 32}) {
    RunOp op("int8_conv2d");
    op.in("Input", {2, 32, 5, 6}, {127}).in("Filter", {32, 32 / groups, 3, 3}, {-128});
    op.in("InScale", {1}, {127}).in("WeightScale", {32}, {127});
    op.attr("integer_weights", true).attr("groups", groups).out("Output");
    ASSERT_EQ(op.run_text(), "ok");
    EXPECT_THAT(op.values("Output0"), ::testing::Each(-128.0 * 127 * 9 * 32 / groups));
  }
}

TEST(Int8Products, RefusesOperandsThatDoNotFit) {
  const auto message = [](const std::function<void(RunOp&)>& change) {
    RunOp op("int8_fc");
    op.in("Input", {2, 3}, {1}).in("W", {3, 4}, {1}).in("InScale", {1}, {1}).out("Out");
    change(op);
    return op.run_text();
  };
  EXPECT_THAT(message([](RunOp& op) { op.in("WeightScale", {3}, {1}); }),
              HasSubstr("'WeightScale' has shape [3], expected one element or 4"));
  EXPECT_THAT(message([](RunOp& op) { op.attr("integer_weights", true); }),
              HasSubstr("expected 'WeightScale' or 'weight_scale'"));
  EXPECT_THAT(message([](RunOp& op) { op.attr("weight_scale", 2.0F); }),
              HasSubstr("expected 'integer_weights' and no input 'WeightScale'"));
}

// A program with its parameters, which are noise.
class Net {
 public:
  explicit Net(const std::string& text) {
    auto parsed = parse_program("block 0 {\n" + text + "}\n", "net");
    EXPECT_TRUE(parsed.ok()) << parsed.status().to_string();
    program_ = std::move(parsed).value();
    unsigned start = 1;
    for (const Var& var : program_->root().vars()) {
      const std::string name = var.name().str();
      const Dims dims(var.dims().begin(), var.dims().end());
      Values values = noise(static_cast<size_t>(std::abs(count_of(dims))), ++start);
      // scales and variances, zero points
      for (double& value : values) {
        if (name[0] == 's' || name[0] == 'v') value = 0.6 + 0.3 * value;
        if (name[0] == 'z') value = 0;
      }
      if (var.persistable()) scope_.local(name) = tensor_value(dims, values);
    }
  }

  Values run(const executor::NamedValues& feeds, bool optimize, const std::string& result = "y",
             int threads = 1) {
    return run_steps({&feeds}, optimize, result, threads).at(0);
  }

  // The results of several steps of one prepared program, which also keeps other vars.
  std::vector<Values> run_steps(const std::vector<const executor::NamedValues*>& steps,
                                bool optimize, const std::string& result = "y", int threads = 1,
                                const std::vector<std::string>& others = {}) {
    auto prepared = prepare({.threads = threads, .optimize = optimize});
    EXPECT_TRUE(prepared.ok()) << prepared.status().to_string();
    std::vector<Values> found;
    for (const executor::NamedValues* const feeds : steps) {
      std::vector<Value> results;
      std::vector<std::string> fetches{result};
      fetches.insert(fetches.end(), others.begin(), others.end());
      const Status status = (*prepared)->run(*feeds, fetches, results);
      EXPECT_TRUE(status.ok()) << status.to_string();
      found.push_back(numbers(results.at(0)));
    }
    types_.clear();
    chained_ = 0;
    for (const Op& op : (*prepared)->program().root().ops()) {
      types_.push_back(op.type().str());
      if (op.find_input("OutScale") != nullptr) ++chained_;
    }
    return found;
  }
  // What a run of the rewritten program ends with.
  std::string error(const executor::NamedValues& feeds) {
    auto prepared = prepare({});
    std::vector<Value> results;
    return prepared.ok() ? (*prepared)->run(feeds, {"y"}, results).to_string()
                         : prepared.status().to_string();
  }
  [[nodiscard]] const std::vector<std::string>& types() const { return types_; }
  // How many ops write integers.
  [[nodiscard]] int chained() const { return chained_; }
  Value& held(const std::string& name) { return scope_.local(name); }

 private:
  StatusOr<std::unique_ptr<executor::PreparedProgram>> prepare(
      const executor::ExecutorOptions& options) {
    return executor::Executor(executor::standard_runtime(), options).prepare(*program_, scope_);
  }

  std::unique_ptr<Program> program_;
  Scope scope_;
  std::vector<std::string> types_;
  int chained_ = 0;
};

// Both ways of running agree, and one multiplies integers. Sums of floats are rounded; the bound is
// for results of about 1 to 10.
void expect_same(Net& net, const executor::NamedValues& feeds, const std::string& type) {
  for (int run = 0; run < 2; ++run) {
    const Values truth = net.run(feeds, false);
    EXPECT_THAT(net.types(), Not(Contains(type)));
    const Values found = net.run(feeds, true, "y", run + 1);
    EXPECT_THAT(net.types(), Contains(type));
    EXPECT_THAT(net.types(), Not(Contains(HasSubstr("quantize"))));
    ASSERT_EQ(found.size(), truth.size());
    for (size_t i = 0; i < truth.size(); ++i) {
      ASSERT_EQ(std::isnan(found[i]), std::isnan(truth[i])) << i;
      if (std::isnan(truth[i])) continue;
      ASSERT_NEAR(found[i], truth[i], 2e-5) << i;
    }
  }
}

const char* const kRoundX =
    "fake_quantize_dequantize_moving_average_abs_max X=x InScale=s -> Out=xq OutScale=s "
    "{is_test: true, round_type: 0}\n";

struct ConvCase {
  const char* input;
  const char* filter;
  const char* channels;
  const char* attrs;
};

std::string conv_net(const ConvCase& c, const std::string& rest) {
  return fmt::format(
             "param w: f32({})\nparam b: f32({})\nparam h: f32({})\nparam v: f32({})\n"
             "param s: f32(1)\nparam sw: f32({})\nvar x: f32({})\nvar xq: f32({})\nvar wq: "
             "f32({})\n"
             "var c: f32(-1,-1,-1,-1)\nvar n: f32(-1,-1,-1,-1)\nvar y: f32(-1,-1,-1,-1)\n{}"
             "fake_channel_wise_quantize_dequantize_abs_max X=w -> Out=wq OutScale=sw "
             "{{quant_axis: 0}}\n",
             c.filter, c.channels, c.channels, c.channels, c.channels, c.input, c.input, c.filter,
             kRoundX) +
         fmt::format("conv2d Input=xq Filter=wq -> Output=c {{{}}}\n", c.attrs) + rest;
}

const char* const kNormAndRelu =
    "batch_norm X=c Scale=b Bias=h Mean=h Variance=v -> Y=n MeanOut=h VarianceOut=v "
    "{is_test: true}\nrelu X=n -> Out=y\n";

executor::NamedValues images(const Dims& dims, double scale = 1) {
  Values values = noise(static_cast<size_t>(count_of(dims)), 77);
  for (double& value : values) value *= scale;
  executor::NamedValues feeds;
  feeds["x"] = tensor_value(dims, values);
  return feeds;
}

TEST(Int8Products, ConvolutionsEqualRoundedFloats) {
  const std::pair<ConvCase, Dims> cases[] = {
      {{"2,3,9,7", "5,3,3,3", "5", "strides: [2, 1], paddings: [1, 1]"}, {2, 3, 9, 7}},
      {{"1,16,8,8", "32,16,3,3", "32", "strides: [1, 1], paddings: [1, 1]"}, {1, 16, 8, 8}},
      {{"3,12,6,5", "8,3,2,2", "8", "groups: 4, dilations: [2, 1]"}, {3, 12, 6, 5}},
      {{"2,16,7,7", "16,1,3,3", "16", "groups: 16, paddings: [0, 1, 2, 1]"}, {2, 16, 7, 7}},
      {{"1,20,1,1", "7,20,1,1", "7", "padding_algorithm: \"SAME\""}, {1, 20, 1, 1}},
  };
  for (const auto& [shape, dims] : cases) {
    Net net(conv_net(shape, kNormAndRelu));
    expect_same(net, images(dims), "int8_conv2d");
  }
}

TEST(Int8Products, AConvolutionAddsAnotherImage) {
  const ConvCase shape{"2,16,6,6", "16,16,3,3", "16", "paddings: [1, 1]"};
  Net net(conv_net(shape, "elementwise_add X=c Y=x -> Out=n\nrelu X=n -> Out=y\n"));
  expect_same(net, images({2, 16, 6, 6}), "int8_conv2d");
}

// Images of 20 channels, as a convolution of floats writes them.
TEST(Int8Products, ImagesInBlocksOfChannelsAreRounded) {
  const ConvCase shape{"2,20,6,6", "16,20,3,3", "16", "paddings: [1, 1]"};
  std::string text = conv_net(shape, kNormAndRelu);
  const size_t at = text.find("fake_quantize");
  text.insert(at, "conv2d Input=u Filter=w0 -> Output=x {paddings: [1, 1]}\n");
  Net net("param w0: f32(20,16,3,3)\nvar u: f32(2,16,6,6)\n" + text);
  executor::NamedValues feeds;
  feeds["u"] = tensor_value({2, 16, 6, 6}, noise(2 * 16 * 36, 5));
  expect_same(net, feeds, "int8_conv2d");
}

TEST(Int8Products, NumbersThatAreNoIntegersAreMultipliedAsFloats) {
  const ConvCase shape{"2,16,6,6", "16,16,3,3", "16", "paddings: [1, 1]"};
  Net net(conv_net(shape,
                   "batch_norm X=c Scale=b Bias=h Mean=h Variance=v -> Y=y MeanOut=h "
                   "VarianceOut=v {is_test: true}\n"));
  executor::NamedValues feeds = images({2, 16, 6, 6});
  feeds["x"].as<Tensor>().data<float>()[100] = static_cast<float>(kNan);
  expect_same(net, feeds, "int8_conv2d");
  // scales of 0: all of the input is 0
  net.held("s") = tensor_value({1}, {0});
  expect_same(net, images({2, 16, 6, 6}), "int8_conv2d");
}

TEST(Int8Products, WeightsThatChangeAreRoundedAgain) {
  const ConvCase shape{"1,8,5,5", "8,8,3,3", "8", ""};
  Net net(conv_net(shape, kNormAndRelu));
  expect_same(net, images({1, 8, 5, 5}), "int8_conv2d");
  net.held("w") = tensor_value({8, 8, 3, 3}, noise(576, 99));
  expect_same(net, images({1, 8, 5, 5}), "int8_conv2d");
  // the scales of the weights are where the op that found them wrote them
  EXPECT_EQ(net.run(images({1, 8, 5, 5}), true, "sw"), net.run(images({1, 8, 5, 5}), false, "sw"));
}

TEST(Int8Products, MatricesEqualRoundedFloats) {
  const std::string head = fmt::format(
      "param w: f32(13,9)\nparam b: f32(9)\nparam s: f32(1)\nparam sw: f32(9)\nvar x: "
      "f32(-1,4,13)\n"
      "var xq: f32(-1,4,13)\nvar wq: f32(13,9)\nvar c: f32(-1,4,9)\nvar n: f32(-1,4,9)\n"
      "var y: f32(-1,4,9)\n{}fake_channel_wise_quantize_dequantize_abs_max X=w -> Out=wq "
      "OutScale=sw {{quant_axis: 1}}\n",
      kRoundX);
  for (const char* const product :
       {"mul X=xq Y=wq -> Out=c {x_num_col_dims: 2}\n", "matmul X=xq Y=wq -> Out=c\n",
        "matmul_v2 X=xq Y=wq -> Out=c\n"}) {
    for (const char* const rest :
         {"elementwise_add X=c Y=b -> Out=n {axis: 2}\ngelu X=n -> Out=y\n",
          "scale X=c -> Out=y {scale: 1.0}\n"}) {
      Net net(head + product + rest);
      expect_same(net, images({5, 4, 13}), "int8_fc");
    }
  }
}

// The form of programs that the original has frozen: integers in the weights, conversion after the
// product.
TEST(Int8Products, FrozenProgramsEqualRoundedFloats) {
  const std::string head =
      "param w: f32(13,9)\nparam s: f32(1)\nparam sw: f32(9)\nvar x: f32(-1,13)\n"
      "var xq: f32(-1,13)\nvar c: f32(-1,9)\nvar y: f32(-1,9)\n"
      "fake_quantize_moving_average_abs_max X=x InScale=s -> Out=xq OutScale=s {is_test: true}\n"
      "mul X=xq Y=w -> Out=c\n";
  for (const char* const back :
       {"fake_channel_wise_dequantize_max_abs X=c Scales=sw, s -> Out=y {quant_bits: [8, 8]}\n",
        "fake_dequantize_max_abs X=c Scale=s -> Out=y {max_range: 23000.0}\n"}) {
    Net net(head + back);
    Values integers = noise(117, 3);
    for (double& value : integers) value = std::round(value * 127);
    net.held("w") = tensor_value({13, 9}, integers);
    expect_same(net, images({6, 13}), "int8_fc");
  }
}

// The form of the original's export for ONNX.
TEST(Int8Products, LinearQuantisationEqualsRoundedFloats) {
  const std::string head =
      "param w: f32(13,9)\nparam s: f32(1)\nparam sw: f32(9)\nparam z: f32(1)\nparam zw: f32(9)\n"
      "var x: f32(-1,13)\nvar xi: f32(-1,13)\nvar xq: f32(-1,13)\nvar wi: f32(13,9)\n"
      "var wq: f32(13,9)\nvar y: f32(-1,9)\n"
      "quantize_linear X=x Scale=s ZeroPoint=z -> Y=xi {quant_axis: -1}\n"
      "dequantize_linear X=xi Scale=s ZeroPoint=z -> Y=xq {quant_axis: -1}\n";
  const std::string multiply = "matmul_v2 X=xq Y=wq -> Out=y\n";
  Net both(head +
           "quantize_linear X=w Scale=sw ZeroPoint=zw -> Y=wi {quant_axis: 1}\n"
           "dequantize_linear X=wi Scale=sw ZeroPoint=zw -> Y=wq {quant_axis: 1}\n" +
           multiply);
  expect_same(both, images({6, 13}), "int8_fc");
  Net integers(head + "dequantize_linear X=w Scale=sw ZeroPoint=zw -> Y=wq {quant_axis: 1}\n" +
               multiply);
  Values values = noise(117, 3);
  for (double& value : values) value = std::round(value * 120);
  integers.held("w") = tensor_value({13, 9}, values);
  expect_same(integers, images({6, 13}), "int8_fc");
  integers.held("zw") = tensor_value({9}, Values(9, 3.0));
  EXPECT_THAT(integers.error(images({6, 13})), HasSubstr("WeightZeroPoint must be 0"));
}

// Two convolutions, of which the second reads only what the first one writes.
std::string two_convs(const std::string& between) {
  const ConvCase first{"2,16,6,6", "20,16,3,3", "20", "paddings: [1, 1]"};
  return "param w2: f32(8,20,2,2)\nparam s2: f32(1)\nparam sw2: f32(8)\nvar a: f32(-1,-1,-1,-1)\n"
         "var aq: f32(-1,-1,-1,-1)\nvar w2q: f32(8,20,2,2)\nvar z: f32(-1,-1,-1,-1)\n" +
         conv_net(first,
                  between +
                      "fake_quantize_dequantize_moving_average_abs_max X=a InScale=s2 -> Out=aq "
                      "OutScale=s2 {is_test: true}\n"
                      "fake_channel_wise_quantize_dequantize_abs_max X=w2 -> Out=w2q OutScale=sw2 "
                      "{quant_axis: 0}\nconv2d Input=aq Filter=w2q -> Output=y\n");
}

const char* const kNormAndReluToA =
    "batch_norm X=c Scale=b Bias=h Mean=h Variance=v -> Y=n MeanOut=h VarianceOut=v "
    "{is_test: true}\nrelu X=n -> Out=a\n";

// A number between two integers may become the other one, which moves a sum by a weight times a
// step: up to 0.9 / 127. Nearly all sums have no such number.
void expect_chained_alike(const Values& found, const Values& truth) {
  ASSERT_EQ(found.size(), truth.size());
  int moved = 0;
  for (size_t i = 0; i < truth.size(); ++i) {
    ASSERT_EQ(std::isnan(found[i]), std::isnan(truth[i])) << i;
    if (std::isnan(truth[i])) continue;
    ASSERT_NEAR(found[i], truth[i], 0.02) << i;
    if (std::fabs(found[i] - truth[i]) > 2e-5) ++moved;
  }
  EXPECT_LE(moved, static_cast<int>(truth.size()) / 20);
}

TEST(Int8Chains, AConvolutionWritesTheIntegersOfTheNext) {
  for (const char* const between :
       {kNormAndReluToA, "relu X=c -> Out=a\n", "relu6 X=c -> Out=a {threshold: 0.5}\n"}) {
    Net net(two_convs(between));
    const executor::NamedValues feeds = images({2, 16, 6, 6});
    const Values truth = net.run(feeds, false);
    expect_chained_alike(net.run(feeds, true), truth);
    EXPECT_EQ(net.chained(), 1) << between;
  }
}

TEST(Int8Chains, ResultsThatOthersReadOrThatMayBeNegativeStayFloats) {
  for (const char* const between :
       {"leaky_relu X=c -> Out=a {alpha: 0.5}\n", "scale X=c -> Out=a {scale: 1.0}\n",
        "relu X=c -> Out=a\nscale X=a -> Out=z {scale: 2.0}\n"}) {
    Net net(two_convs(between));
    const executor::NamedValues feeds = images({2, 16, 6, 6});
    const Values truth = net.run(feeds, false);
    expect_chained_alike(net.run(feeds, true), truth);
    EXPECT_EQ(net.chained(), 0) << between;
  }
}

// Steps in which one of the two has to compute in floats, before and after others. The truth is the
// same program with floats between both, whose fused rectifiers make 0 of NaN, too.
TEST(Int8Chains, NumbersThatAreNoIntegersPassThrough) {
  Net net(two_convs(kNormAndReluToA));
  const executor::NamedValues usual = images({2, 16, 6, 6});
  executor::NamedValues strange = images({2, 16, 6, 6});
  strange["x"].as<Tensor>().data<float>()[100] = static_cast<float>(kNan);
  const std::vector<const executor::NamedValues*> steps{&usual, &strange, &usual};
  const auto expect_alike = [&] {
    const std::vector<Values> truth = net.run_steps(steps, true, "y", 1, {"a"});
    EXPECT_EQ(net.chained(), 0);
    const std::vector<Values> found = net.run_steps(steps, true);
    for (size_t i = 0; i < steps.size(); ++i) expect_chained_alike(found[i], truth[i]);
    EXPECT_EQ(net.chained(), 1);
  };
  expect_alike();
  net.held("w2") = tensor_value({8, 20, 2, 2}, Values(640, kNan));  // in the second
  expect_alike();
  net.held("w2") = tensor_value({8, 20, 2, 2}, noise(640, 4));
  net.held("s2") = tensor_value({1}, {0});  // between both
  expect_alike();
}

TEST(Int8Chains, RefusesAScaleWhereTheResultMustBeFloats) {
  const auto message = [](const char* activation, const Dims& scale) {
    RunOp op("int8_conv2d");
    op.in("Input", {1, 4, 3, 3}, {1}).in("Filter", {4, 4, 1, 1}, {1}).in("InScale", {1}, {1});
    op.in("OutScale", scale, {1}).attr("activation", activation).out("Output");
    return op.run_text();
  };
  EXPECT_THAT(message("leaky_relu", {1}), HasSubstr("expected activation relu or relu6"));
  EXPECT_THAT(message("relu", {2}), HasSubstr("'OutScale' has shape [2], expected one element"));
}

}  // namespace
}  // namespace millrace::kernels

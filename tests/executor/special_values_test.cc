// Ops that are computed together treat NaN, infinities and large numbers as the ops one by one.

#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "executor/executor.h"
#include "executor/standard_runtime.h"
#include "framework/text_form/parse.h"
#include "tests/executor/op_types.h"
#include "tests/executor/values.h"

namespace millrace::executor {
namespace {

using ::testing::Contains;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
const std::vector<float> kSpecial{NAN,   kInfinity, -kInfinity, -0.0F, 0.0F,   7.0F,
                                  -7.0F, 1e38F,     -1e38F,     1.0F,  -0.25F, 90.0F};

// `count` values: the special ones in turn, or ordinary ones.
std::vector<float> special(size_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = kSpecial[i % kSpecial.size()];
  return values;
}
std::vector<float> ordinary(size_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = static_cast<float>(i * 7 % 11) * 0.3F - 1.4F;
  return values;
}

// Runs a program that computes y, with all passes and with none.
class SpecialValues : public ::testing::Test {
 protected:
  std::vector<float> run(const std::string& text, bool optimize, const std::string& fused) {
    auto program = parse_program("# millrace program 1\n\nblock 0 {\n" + text + "}\n", "net");
    EXPECT_TRUE(program.ok()) << program.status().to_string();
    auto prepared = Executor(standard_runtime(), {.optimize = optimize}).prepare(**program, scope_);
    EXPECT_TRUE(prepared.ok()) << prepared.status().to_string();
    if (optimize) {
      EXPECT_THAT(op_types((*prepared)->program()), Contains(fused));
    }
    std::vector<Value> results;
    const Status status = (*prepared)->run(feeds_, {"y"}, results);
    EXPECT_TRUE(status.ok()) << status.to_string();
    return status.ok() ? floats(results[0]) : std::vector<float>();
  }
  void expect_alike(const std::string& text, const std::string& fused) {
    const std::vector<float> together = run(text, true, fused);
    const std::vector<float> apart = run(text, false, fused);
    ASSERT_EQ(together.size(), apart.size());
    for (size_t i = 0; i < apart.size(); ++i) {
      const bool both_nan = std::isnan(together[i]) && std::isnan(apart[i]);
      const bool near = std::abs(together[i] - apart[i]) <= 1e-4F * (1.0F + std::abs(apart[i]));
      EXPECT_TRUE(both_nan || together[i] == apart[i] || near)
          << "at " << i << ": " << together[i] << " and " << apart[i] << "\n"
          << text;
    }
  }

  Scope scope_;
  NamedValues feeds_;
};

// NaN and infinities come with the bias of a channel, with an image, or with the filter.
TEST_F(SpecialValues, OfConvolutions) {
  for (const std::string last : {"relu X=s -> Out=y", "relu6 X=s -> Out=y {threshold: 6.0}",
                                 "leaky_relu X=s -> Out=y {alpha: 0.1}"}) {
    for (const int64_t kernel : {1, 3}) {
      const std::string size = std::to_string(kernel);
      const std::string text =
          "  param w: f32(12, 4, " + size + ", " + size + ")\n  param b: f32(12)\n" +
          "  var x: f32(-1, 4, 6, 6)\n  var c: f32(-1, 12, 6, 6)\n  var s: f32(-1, 12, 6, 6)\n"
          "  var y: f32(-1, 12, 6, 6)\n  conv2d Input=x Filter=w -> Output=c {paddings: [" +
          std::to_string(kernel / 2) + ", " + std::to_string(kernel / 2) +
          "]}\n  elementwise_add X=c Y=b -> Out=s {axis: 1}\n  " + last + "\n";
      const auto weights = static_cast<size_t>(48 * kernel * kernel);
      for (const int where : {0, 1, 2}) {
        const auto of = [&](int part, size_t count) {
          return part == where ? special(count) : ordinary(count);
        };
        scope_.local("w") = tensor_value({12, 4, kernel, kernel}, of(0, weights));
        scope_.local("b") = tensor_value({12}, of(1, 12));
        feeds_["x"] = tensor_value({2, 4, 6, 6}, of(2, 288));
        expect_alike(text, "fused_conv2d");
      }
    }
  }
}

TEST_F(SpecialValues, OfProducts) {
  scope_.local("w") = tensor_value({4, 12}, ordinary(48));
  scope_.local("b") = tensor_value({12}, special(12));
  feeds_["x"] = tensor_value({3, 4}, ordinary(12));
  expect_alike(
      "  param w: f32(4, 12)\n  param b: f32(12)\n  var x: f32(-1, 4)\n  var t: f32(-1, 12)\n"
      "  var s: f32(-1, 12)\n  var y: f32(-1, 12)\n  mul X=x Y=w -> Out=t\n"
      "  elementwise_add X=t Y=b -> Out=s\n  relu X=s -> Out=y\n",
      "fc");
}

TEST_F(SpecialValues, OfChains) {
  scope_.local("b") = tensor_value({12}, special(12));
  std::vector<float> values(84);
  for (size_t i = 0; i < values.size(); ++i)  // each row meets other elements of b
    values[i] = kSpecial[(i + i / 12) % kSpecial.size()];
  feeds_["x"] = tensor_value({7, 12}, values);
  for (const std::string op : {"relu", "relu6", "leaky_relu", "sigmoid", "tanh", "swish",
                               "hard_swish", "hard_sigmoid", "elu", "softplus", "brelu", "mish"}) {
    expect_alike(
        "  param b: f32(12)\n  var x: f32(-1, 12)\n  var t: f32(-1, 12)\n  var s: f32(-1, 12)\n"
        "  var y: f32(-1, 12)\n  elementwise_add X=x Y=b -> Out=t\n  " +
            op + " X=t -> Out=s\n  scale X=s -> Out=y {scale: 2.0, bias: 1.0}\n",
        "elementwise_chain");
  }
}

}  // namespace
}  // namespace millrace::executor

#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/cpu/activation/gamma.h"
#include "kernels/cpu/vector_math.h"
#include "tests/kernels/run_op.h"

namespace millrace::kernels {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pointwise;

constexpr double kActivationInf = std::numeric_limits<double>::infinity();

// Distance from the true value in units in the last place.
double ulps(float found, double wanted) {
  const auto rounded = static_cast<float>(wanted);
  if (found == rounded || (std::isnan(found) && std::isnan(rounded))) return 0;
  const float next = std::nextafter(std::abs(rounded), std::numeric_limits<float>::infinity());
  return std::abs(static_cast<double>(found) - wanted) /
         (static_cast<double>(next) - std::abs(static_cast<double>(rounded)));
}

struct Function {
  const char* name;
  float (*fast)(float);
  double (*exact)(double);
};

// Covers the range of floats, with every exponent and both signs.
TEST(VectorMath, StaysWithinThreeUnitsInTheLastPlace) {
  const Function functions[] = {
      {"exp", vmath::exp, [](double x) { return std::exp(x); }},
      {"expm1", vmath::expm1, [](double x) { return std::expm1(x); }},
      {"tanh", vmath::tanh, [](double x) { return std::tanh(x); }},
      {"log", vmath::log, [](double x) { return std::log(x); }},
      {"erf", vmath::erf, [](double x) { return std::erf(x); }},
  };
  for (const Function& f : functions) {
    double worst = 0;
    for (uint64_t bits = 0; bits <= 0xffffffffULL; bits += 99991) {
      const auto x = std::bit_cast<float>(static_cast<uint32_t>(bits));
      worst = std::max(worst, ulps(f.fast(x), f.exact(static_cast<double>(x))));
    }
    EXPECT_LT(worst, 3) << f.name;
  }
}

// Known values: digamma(1) = -gamma, trigamma(1) = pi^2 / 6, and the reflections to the left.
TEST(Gamma, HasTheKnownValues) {
  const double gamma = 0.57721566490153286;
  const double square = M_PI * M_PI;
  EXPECT_NEAR(digamma(1), -gamma, 1e-14);
  EXPECT_NEAR(digamma(0.5), -gamma - 2 * std::log(2), 1e-14);
  EXPECT_NEAR(digamma(-0.5), 2 - gamma - 2 * std::log(2), 1e-13);
  EXPECT_NEAR(trigamma(1), square / 6, 1e-14);
  EXPECT_NEAR(trigamma(0.5), square / 2, 1e-13);
  EXPECT_NEAR(trigamma(-0.5), square / 2 + 4, 1e-12);
  EXPECT_TRUE(std::isnan(digamma(-3)));
  EXPECT_EQ(trigamma(-3), kActivationInf);
}

struct Smooth {
  const char* type;
  double low;  // inputs are in [low, high]
  double high;
};

// Except at kinks, the gradient is the derivative.
TEST(Activation, GradientsAreDerivatives) {
  const Smooth cases[] = {
      {"sigmoid", -3, 3},     {"logsigmoid", -3, 3}, {"tanh", -2, 2},
      {"tanh_shrink", -2, 2}, {"stanh", -2, 2},      {"softsign", 0.1, 3},
      {"softplus", -3, 3},    {"elu", -3, -0.1},     {"celu", -3, -0.1},
      {"selu", -3, -0.1},     {"silu", -3, 3},       {"swish", -3, 3},
      {"mish", -3, 3},        {"gelu", -3, 3},       {"lgamma", 0.3, 4},
      {"digamma", 0.3, 4},    {"logit", 0.1, 0.9},   {"rsqrt", 0.3, 4},
      {"acosh", 1.2, 4},      {"expm1", -2, 2},      {"hard_swish", -2.9, 2.9},
      {"erf", -2, 2},         {"soft_relu", 0.1, 3},
  };
  for (const Smooth& c : cases) {
    SCOPED_TRACE(c.type);
    std::vector<double> x = waves(7);
    for (double& v : x) v = c.low + (c.high - c.low) * (v + 1) / 2;
    RunOp op(c.type);
    op.in("X", tensor_value({7}, x, DType::kFloat64)).out("Out");
    EXPECT_LT(op.gradient_error({"X"}, "Out0"), 2e-5);
  }
}

TEST(Activation, GeluWithTanhHasItsOwnGradient) {
  RunOp op("gelu");
  op.in("X", tensor_value({5}, {-2, -0.5, 0.1, 1, 3}, DType::kFloat64))
      .attr("approximate", true)
      .out("Out");
  EXPECT_LT(op.gradient_error({"X"}, "Out0"), 1e-6);
}

TEST(Activation, WorksInPlaceOnManyThreads) {
  const int64_t count = 100003;
  RunOp op("relu");
  op.in("X", tensor_value({count}, waves(count))).out("Out");
  ASSERT_TRUE(op.run(3).ok());
  const std::vector<double> apart = numbers(op.value("Out0"));
  RunOp over("relu");
  over.in("X", tensor_value({count}, waves(count))).out_in_place("Out", "X");
  ASSERT_TRUE(over.run().ok());
  EXPECT_EQ(numbers(over.value("X0")), apart);
}

TEST(Activation, HalvesAreComputedInFloat) {
  RunOp op("exp");
  op.in("X", tensor_value({3}, {0, 1, -1}, DType::kBfloat16)).out("Out");
  ASSERT_TRUE(op.run().ok());
  EXPECT_THAT(numbers(op.value("Out0")),
              Pointwise(DoubleNear(0.01), {1.0, std::exp(1), std::exp(-1)}));
}

TEST(Activation, SelectedRowsKeepTheirRows) {
  RunOp op("square");
  op.in("X", rows_value({4, 1}, 6, {2, 2}, {1, 2, 3, 4})).out_kind("Out", VarKind::kSelectedRows);
  ASSERT_TRUE(op.run().ok());
  EXPECT_THAT(numbers(op.value("Out0")), ElementsAre(1, 4, 9, 16));
  EXPECT_THAT(op.value("Out0").get_if<SelectedRows>()->rows, ElementsAre(4, 1));
}

TEST(Activation, NamesATypeItHasNoLoopFor) {
  RunOp op("tanh");
  op.in("X", tensor_value({2}, {1, 2}, DType::kInt32)).out("Out");
  EXPECT_THAT(op.run_text(), HasSubstr("no kernel for element type"));
}

TEST(Softmax, SumsToOneAlongEveryAxisAndTakesLargeInputs) {
  for (const int32_t axis : {0, 1, -1}) {
    RunOp op("softmax");
    op.in("X", tensor_value({2, 3, 2}, {1e30, 0, 2, 5, -3, 5, 1, 2, 3, 4, 5, 6}, DType::kFloat64))
        .attr("axis", axis)
        .out("Out");
    ASSERT_TRUE(op.run().ok());
    double sum = 0;
    for (const double v : numbers(op.value("Out0"))) sum += v;
    EXPECT_NEAR(sum, axis == 1 ? 4 : 6, 1e-12) << axis;
  }
}

TEST(Softmax, GradientsAreDerivativesAlongEveryAxis) {
  for (const char* const type : {"softmax", "log_softmax"}) {
    for (const int32_t axis : {0, 1, -1}) {
      RunOp op(type);
      op.in("X", tensor_value({2, 3, 2}, waves(12), DType::kFloat64)).attr("axis", axis).out("Out");
      EXPECT_LT(op.gradient_error({"X"}, "Out0"), 1e-6);
    }
  }
}

TEST(Softmax, TakesNoElements) {
  RunOp op("softmax");
  op.in("X", tensor_value({0, 3}, {})).out("Out");
  ASSERT_TRUE(op.run().ok());
  EXPECT_THAT(dims(op.value("Out0")), ElementsAre(0, 3));
}

TEST(Prelu, GradientsAreDerivativesInEveryMode) {
  struct Case {
    const char* mode;
    const char* format;
    Dims slopes;
  };
  const Case cases[] = {{"all", "NCHW", {1}},
                        {"channel", "NCHW", {3}},
                        {"channel", "NHWC", {2}},
                        {"element", "NCHW", {1, 3, 2}}};
  for (const Case& c : cases) {
    SCOPED_TRACE(std::string(c.mode) + c.format);
    int64_t count = 1;
    for (const int64_t dim : c.slopes) count *= dim;
    RunOp op("prelu");
    op.in("X", tensor_value({2, 3, 2}, waves(12), DType::kFloat64))
        .in("Alpha", tensor_value(c.slopes, waves(count, 2), DType::kFloat64))
        .attr("mode", std::string(c.mode))
        .attr("data_format", std::string(c.format))
        .out("Out");
    EXPECT_LT(op.gradient_error({"X", "Alpha"}, "Out0"), 1e-6);
  }
}

TEST(Prelu, RefusesOtherLayoutsWhereTheyHaveAnEffect) {
  for (const char* const mode : {"channel", "all"}) {
    RunOp op("prelu");
    op.in("X", {1, 2, 2}, {-1, -2, -3, -4}).in("Alpha", {1}, {2}).out("Out");
    op.attr("mode", std::string(mode)).attr("data_format", std::string("NDHWC"));
    const std::string text = op.run_text();
    if (std::string(mode) == "all") {
      EXPECT_EQ(text, "ok");
    } else {
      EXPECT_EQ(text,
                "attribute 'data_format' is 'NDHWC', expected NCHW or NHWC for mode 'channel'");
    }
  }
}

}  // namespace
}  // namespace millrace::kernels

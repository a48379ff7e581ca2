#include "ps/table/sparse_rule.h"

#include <array>
#include <cmath>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

// Every rule follows its formula, computed here in float64.

namespace millrace::ps {
namespace {

using Kind = SparseRuleOptions::Kind;

// The reference: weights and state of one row, as the specification writes them.
struct Reference {
  SparseRuleOptions o;
  std::vector<double> w, a, b;  // a, b: first and second moment, or a: sums of squares
  double p1 = 0, p2 = 0;

  Reference(const SparseRuleOptions& options, const std::vector<float>& start)
      : o(options),
        w(start.begin(), start.end()),
        a(start.size()),
        b(start.size()),
        p1(options.beta1),
        p2(options.beta2) {}

  void step(const std::vector<float>& grad, double show) {
    const size_t n = w.size();
    const double lr = o.learning_rate;
    const double lr_t = lr * std::sqrt(1 - p2) / (1 - p1);
    double squares = 0, m_sum = 0, v_sum = 0;
    for (size_t i = 0; i < n; ++i) {
      const double g = grad[i], sg = g / show;
      squares += sg * sg;
      switch (o.kind) {
        case Kind::kNaive:
          w[i] -= lr * g;
          break;
        case Kind::kAdagrad:
          w[i] -= lr * sg * std::sqrt(o.initial_g2sum / (o.initial_g2sum + a[0]));
          break;
        case Kind::kStdAdagrad:
          w[i] -= lr * sg * std::sqrt(o.initial_g2sum / (o.initial_g2sum + a[i]));
          a[i] += sg * sg;
          break;
        case Kind::kAdam:
          a[i] = o.beta1 * a[i] + (1 - o.beta1) * g;
          b[i] = o.beta2 * b[i] + (1 - o.beta2) * g * g;
          w[i] -= lr_t * a[i] / (std::sqrt(b[i]) + o.epsilon);
          break;
        case Kind::kSharedAdam: {
          const double m = o.beta1 * a[0] + (1 - o.beta1) * g;
          const double v = o.beta2 * b[0] + (1 - o.beta2) * g * g;
          w[i] -= lr_t * m / (std::sqrt(v) + o.epsilon);
          m_sum += m;
          v_sum += v;
          break;
        }
      }
      w[i] = std::min<double>(std::max<double>(w[i], o.min_bound), o.max_bound);
    }
    if (o.kind == Kind::kAdagrad) a[0] += squares / static_cast<double>(n);
    if (o.kind == Kind::kSharedAdam) {
      a[0] = m_sum / static_cast<double>(n);
      b[0] = v_sum / static_cast<double>(n);
    }
    p1 *= o.beta1;
    p2 *= o.beta2;
  }
};

TEST(SparseRuleTest, FollowsItsFormula) {
  for (const Kind kind :
       {Kind::kNaive, Kind::kAdagrad, Kind::kStdAdagrad, Kind::kAdam, Kind::kSharedAdam}) {
    for (const int dim : {1, 3, 8, 16, 21}) {
      SparseRuleOptions options;
      options.kind = kind;
      options.min_bound = -0.5F;
      options.max_bound = 0.5F;
      const SparseRule rule(options, dim);
      const auto count = static_cast<size_t>(dim);
      std::vector<float> state(static_cast<size_t>(rule.state_floats()));
      std::vector<float> weights(count);
      KeyedRandom random(7, static_cast<uint64_t>(dim));
      rule.init(weights.data(), state.data(), random, false);
      for (const float w : weights) EXPECT_LE(std::abs(w), options.initial_range);
      Reference reference(options, weights);
      for (int step = 1; step <= 20; ++step) {
        std::vector<float> grad(count);
        for (float& g : grad) g = static_cast<float>(random.gaussian());
        const float show = 1.0F + static_cast<float>(step % 3);
        ASSERT_TRUE(rule.update(weights.data(), state.data(), grad.data(), show, 1).ok());
        reference.step(grad, show);
      }
      for (size_t i = 0; i < count; ++i)
        EXPECT_NEAR(weights[i], reference.w[i], 2e-6) << static_cast<int>(kind) << " " << dim;
    }
  }
}

TEST(SparseRuleTest, ClipsToItsBounds) {
  SparseRuleOptions options;
  options.kind = Kind::kNaive;
  options.learning_rate = 1;
  options.min_bound = -10;
  options.max_bound = 10;
  const SparseRule rule(options, 2);
  float weights[] = {0, 0};
  const float grad[] = {100, -100};
  ASSERT_TRUE(rule.update(weights, nullptr, grad, 1, 1).ok());
  EXPECT_EQ(weights[0], -10);
  EXPECT_EQ(weights[1], 10);
}

TEST(SparseRuleTest, KnowsTheNamesOfTheOriginal) {
  EXPECT_EQ(*parse_sparse_rule("SparseSharedAdamSGDRule"), Kind::kSharedAdam);
  EXPECT_EQ(parse_sparse_rule("Momentum").status().code(), StatusCode::kInvalidArgument);
}

TEST(InitializerTest, HasTheStatisticsThatItsTextSays) {
  const auto moments = [](std::string_view text) {
    const auto made = parse_initializer(text);
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    std::vector<float> values(20'000);
    KeyedRandom random(made->seed, 5);
    made->fill(values, random);
    double sum = 0, squares = 0, low = 1e9, high = -1e9;
    for (const float v : values) {
      sum += v;
      squares += static_cast<double>(v) * v;
      low = std::min<double>(low, v);
      high = std::max<double>(high, v);
    }
    const double mean = sum / 20'000;
    return std::array<double, 4>{mean, std::sqrt(squares / 20'000 - mean * mean), low, high};
  };
  const auto uniform = moments("uniform_random&0&-1&3");
  EXPECT_NEAR(uniform[0], 1, 0.05);
  EXPECT_NEAR(uniform[1], 4 / std::sqrt(12), 0.05);
  EXPECT_GE(uniform[2], -1);
  EXPECT_LT(uniform[3], 3);
  const auto gaussian = moments("gaussian_random&1&2&0.5");
  EXPECT_NEAR(gaussian[0], 2, 0.02);
  EXPECT_NEAR(gaussian[1], 0.5, 0.02);
  const auto cut = moments("truncated_gaussian_random&1&0&1");
  EXPECT_GE(cut[2], -2);
  EXPECT_LE(cut[3], 2);
  EXPECT_NEAR(cut[1], 0.88, 0.02);
  EXPECT_EQ(moments("fill_constant&0.25")[3], 0.25);
}

TEST(InitializerTest, RefusesOtherTexts) {
  for (const char* text :
       {"", "xavier&0", "uniform_random&0&1", "fill_constant&x", "gaussian_random&0&0&1&2"})
    EXPECT_EQ(parse_initializer(text).status().code(), StatusCode::kInvalidArgument) << text;
}

}  // namespace
}  // namespace millrace::ps

// Products on tiles of bfloat16 parts, compared with sums in double.
#include "kernels/cpu/tile_product.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace millrace::kernels {
namespace {

using tiles::Operands;
using tiles::Shape;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// A matrix with a few elements between its rows, which must not be written.
struct Matrix {
  static constexpr float kGap = 77.0F;
  int64_t rows, columns, stride;
  std::vector<float> values;

  Matrix(int64_t r, int64_t c, uint32_t seed, int64_t gap = 3)
      : rows(r), columns(c), stride(c + gap), values(static_cast<size_t>(r * stride), kGap) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < columns; ++j) at(i, j) = normal(random);
    }
  }
  float& at(int64_t i, int64_t j) { return values[static_cast<size_t>(i * stride + j)]; }
  [[nodiscard]] float at(int64_t i, int64_t j) const {
    return values[static_cast<size_t>(i * stride + j)];
  }
};

struct Problem {
  Shape shape;
  Matrix a, b, c, summand;
  std::vector<float> bias;

  Problem(int64_t rows, int64_t columns, int64_t inner, bool turn_a = false, bool turn_b = false)
      : a(turn_a ? inner : rows, turn_a ? rows : inner, 1),
        b(turn_b ? columns : inner, turn_b ? inner : columns, 2),
        c(rows, columns, 3),
        summand(rows, columns, 4),
        bias(static_cast<size_t>(columns), 0.5F) {
    shape.rows = rows;
    shape.columns = columns;
    shape.inner = inner;
    shape.a_transposed = turn_a;
    shape.b_transposed = turn_b;
    shape.a_stride = a.stride;
    shape.b_stride = b.stride;
    shape.c_stride = c.stride;
  }
  float& a_at(int64_t i, int64_t k) { return shape.a_transposed ? a.at(k, i) : a.at(i, k); }
  float& b_at(int64_t k, int64_t j) { return shape.b_transposed ? b.at(j, k) : b.at(k, j); }
  [[nodiscard]] Operands operands() {
    return {a.values.data(), b.values.data(), nullptr, nullptr, c.values.data()};
  }
  double exact(int64_t i, int64_t j) {
    double sum = 0;
    for (int64_t k = 0; k < shape.inner; ++k) sum += double{a_at(i, k)} * double{b_at(k, j)};
    return sum;
  }
  // One float rounding for each of six sums of 32 terms; ProductsOfAllSizes has tighter limits.
  [[nodiscard]] double tolerance() const {
    return 1e-6 + 3e-6 * std::sqrt(static_cast<double>(shape.inner));
  }
};

class TileProduct : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!tiles::available()) GTEST_SKIP() << "this processor has no tiles (AMX)";
  }
  CpuDevice device_{1};
};

TEST_F(TileProduct, AllFormsAndEdges) {
  const int64_t sizes[][3] = {{1, 1, 1},     {16, 16, 32},   {32, 32, 32},
                              {33, 31, 33},  {64, 96, 64},   {70, 129, 65},
                              {130, 40, 17}, {100, 37, 800}, {31, 200, 769}};
  for (const auto& size : sizes) {
    for (int form = 0; form < 4; ++form) {
      Problem p(size[0], size[1], size[2], form % 2 != 0, form / 2 != 0);
      ASSERT_TRUE(tiles::multiply(device_, p.shape, p.operands()).ok());
      for (int64_t i = 0; i < p.c.rows; ++i) {
        for (int64_t j = 0; j < p.c.columns; ++j)
          ASSERT_NEAR(p.c.at(i, j), p.exact(i, j), p.tolerance()) << i << ' ' << j << ' ' << form;
        for (int64_t j = p.c.columns; j < p.c.stride; ++j)
          ASSERT_EQ(p.c.at(i, j), Matrix::kGap) << i << ' ' << j;
      }
    }
  }
}

TEST_F(TileProduct, AsExactAsSumsOfFloat) {
  Problem p(128, 128, 1000);
  ASSERT_TRUE(tiles::multiply(device_, p.shape, p.operands()).ok());
  double wrong = 0;
  double wrong_in_float = 0;
  for (int64_t i = 0; i < 128; i += 3) {
    for (int64_t j = 0; j < 128; ++j) {
      float sum = 0;
      for (int64_t k = 0; k < 1000; ++k) sum = std::fma(p.a_at(i, k), p.b_at(k, j), sum);
      wrong += std::pow(p.c.at(i, j) - p.exact(i, j), 2);
      wrong_in_float += std::pow(sum - p.exact(i, j), 2);
    }
  }
  EXPECT_LT(wrong, wrong_in_float);
}

// A single product shows the loss of precision of its parts.
TEST_F(TileProduct, ProductsOfAllSizes) {
  Problem p(64, 64, 1);
  std::mt19937 random(7);
  std::uniform_int_distribution<uint32_t> bits;
  for (int round = 0; round < 50; ++round) {
    const auto draw = [&] {
      // exponents from -60 to 60
      const uint32_t exponent = 127 - 60 + bits(random) % 121;
      return std::bit_cast<float>((bits(random) & 0x807fffffU) | exponent << 23);
    };
    for (int64_t i = 0; i < 64; ++i) {
      p.a_at(i, 0) = draw();
      p.b_at(0, i) = draw();
    }
    ASSERT_TRUE(tiles::multiply(device_, p.shape, p.operands()).ok());
    for (int64_t i = 0; i < 64; ++i) {
      for (int64_t j = 0; j < 64; ++j) {
        const double exact = p.exact(i, j);
        if (std::abs(exact) < 1e-30) continue;  // its parts are below the smallest normal number
        ASSERT_NEAR(p.c.at(i, j) / exact, 1.0, 2.5e-7) << p.a_at(i, 0) << ' ' << p.b_at(0, j);
      }
    }
  }
}

TEST_F(TileProduct, NumbersThatPartsCannotStandFor) {
  const float odd[] = {kInfinity,
                       -kInfinity,
                       std::numeric_limits<float>::quiet_NaN(),
                       std::numeric_limits<float>::max(),
                       -std::numeric_limits<float>::max(),
                       0x1.234568p-104F,
                       -0x1.234568p-120F,
                       std::numeric_limits<float>::min()};
  for (const float value : odd) {
    for (int where = 0; where < 4; ++where) {
      Problem p(70, 90, 100, where % 2 != 0, where / 2 != 0);
      // All other rows and columns are unchanged.
      for (int64_t k = 0; k < 100; ++k) p.a_at(40, k) = 0;
      p.a_at(40, 7) = value;
      p.b_at(3, 80) = value;
      p.a_at(5, 3) = 2.0F;
      const float factor = std::abs(value) < 1e-30F ? 2048.0F : 2.0F;
      for (int64_t j = 0; j < 80; ++j) p.b_at(7, j) = factor;
      ASSERT_TRUE(tiles::multiply(device_, p.shape, p.operands()).ok());
      for (int64_t j = 0; j < 80; ++j) {
        const float expected = value * factor;
        if (std::isnan(value)) {
          EXPECT_TRUE(std::isnan(p.c.at(40, j)));
        } else {
          EXPECT_EQ(p.c.at(40, j), expected) << value;
        }
      }
      for (int64_t i = 0; i < 32; ++i)
        ASSERT_NEAR(p.c.at(i, 10), p.exact(i, 10), p.tolerance() * factor) << value;
      EXPECT_EQ(std::isinf(p.c.at(5, 80)), std::isinf(value) || std::abs(value) > 1e38F);
      EXPECT_EQ(std::isnan(p.c.at(5, 80)), std::isnan(value));
    }
  }
}

// Gradients of a net that has memorised its batch (tiny values) must not be slow.
TEST_F(TileProduct, TinyNumbersBesideSmallOnes) {
  Problem p(64, 64, 100);
  for (int64_t i = 0; i < 64; ++i) {
    for (int64_t k = 0; k < 100; ++k) p.a_at(i, k) *= std::ldexp(1.0F, -static_cast<int>(i) - 80);
  }
  ASSERT_TRUE(tiles::multiply(device_, p.shape, p.operands()).ok());
  for (int64_t i = 0; i < 64; ++i) {
    for (int64_t j = 0; j < 64; ++j) {
      const double scale = std::ldexp(1.0, -static_cast<int>(i) - 80);
      ASSERT_NEAR(p.c.at(i, j), p.exact(i, j), p.tolerance() * scale + 400 * 0x1p-126) << i;
    }
  }
}

TEST_F(TileProduct, ZerosAreNotOdd) {
  Problem p(64, 64, 64);
  for (float& value : p.a.values) value = value > 0 ? value : -0.0F;
  std::fill(p.b.values.begin(), p.b.values.begin() + 20 * p.b.stride, 0.0F);
  ASSERT_TRUE(tiles::multiply(device_, p.shape, p.operands()).ok());
  for (int64_t i = 0; i < 64; ++i) {
    for (int64_t j = 0; j < 64; ++j) ASSERT_NEAR(p.c.at(i, j), p.exact(i, j), p.tolerance());
  }
}

// alpha, previous contents of c, bias, summand and rectifier; with the terms in one block and in
// two.
TEST_F(TileProduct, WhatFollowsTheProduct) {
  for (const int64_t inner : {64, 1000}) {
    for (int mask = 0; mask < 32; ++mask) {
      Problem p(70, 80, inner);
      p.shape.alpha = (mask & 1) != 0 ? 0.25F : 1.0F;
      p.shape.accumulate = (mask & 2) != 0;
      p.shape.rectify = (mask & 4) != 0;
      if (p.shape.accumulate && p.shape.alpha != 1.0F && inner == 1000) {
        EXPECT_FALSE(tiles::pay(p.shape, 1));
        continue;
      }
      const Matrix before = p.c;
      Operands o = p.operands();
      if ((mask & 8) != 0) o.bias = p.bias.data();
      if ((mask & 16) != 0) o.summand = p.summand.values.data();
      ASSERT_TRUE(tiles::multiply(device_, p.shape, o).ok());
      for (int64_t i = 0; i < 70; ++i) {
        for (int64_t j = 0; j < 80; ++j) {
          double expected = p.exact(i, j) * p.shape.alpha;
          if (p.shape.accumulate) expected += before.at(i, j);
          if (o.bias != nullptr) expected += 0.5;
          if (o.summand != nullptr) expected += p.summand.at(i, j);
          if (p.shape.rectify) expected = std::max(expected, 0.0);
          ASSERT_NEAR(p.c.at(i, j), expected, p.tolerance()) << inner << ' ' << mask;
        }
      }
    }
  }
}

// A row has the same bits in every batch and for any number of threads.
TEST_F(TileProduct, RowsAndThreadsDoNotCount) {
  Problem whole(300, 200, 1700);
  ASSERT_TRUE(tiles::multiply(device_, whole.shape, whole.operands()).ok());
  for (const int threads : {2, 3, 7}) {
    CpuDevice many(threads);
    Problem again(300, 200, 1700);
    ASSERT_TRUE(tiles::multiply(many, again.shape, again.operands()).ok());
    EXPECT_EQ(whole.c.values, again.c.values) << threads;
  }
  Problem part(300, 200, 1700);
  part.shape.rows = 70;
  Operands o = part.operands();
  o.a += 100 * part.shape.a_stride;
  ASSERT_TRUE(tiles::multiply(device_, part.shape, o).ok());
  for (int64_t i = 0; i < 70; ++i)
    ASSERT_EQ(std::memcmp(&part.c.values[static_cast<size_t>(i * part.c.stride)],
                          &whole.c.values[static_cast<size_t>((100 + i) * whole.c.stride)],
                          200 * sizeof(float)),
              0)
        << i;
}

// A wide product with few blocks of one factor and many threads.
TEST_F(TileProduct, ManyThreadsForFewBlocks) {
  CpuDevice many(8);
  for (const bool wide : {false, true}) {
    Problem p(wide ? 64 : 2000, wide ? 2000 : 64, 128);
    ASSERT_TRUE(tiles::multiply(many, p.shape, p.operands()).ok());
    for (int64_t i = 0; i < p.shape.rows; i += 7) {
      for (int64_t j = 0; j < p.shape.columns; j += 5)
        ASSERT_NEAR(p.c.at(i, j), p.exact(i, j), p.tolerance());
    }
  }
}

TEST_F(TileProduct, SmallOnesStayWithFloatUnits) {
  EXPECT_FALSE(tiles::pay(Problem(8, 400, 400).shape, 1));
  EXPECT_FALSE(tiles::pay(Problem(400, 400, 8).shape, 1));
  EXPECT_FALSE(tiles::pay(Problem(400, 1, 400).shape, 1));
  EXPECT_FALSE(tiles::pay(Problem(129, 129, 128).shape, 1));  // a fifth more work for padding
  EXPECT_TRUE(tiles::pay(Problem(512, 400, 400).shape, 1));
  // Four threads would spend as much time on packing as on multiplying.
  EXPECT_FALSE(tiles::pay(Problem(128, 128, 700).shape, 4));
}

}  // namespace
}  // namespace millrace::kernels

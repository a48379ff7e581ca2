#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/kernels/run_op.h"

namespace millrace::kernels {
namespace {

using ::testing::DoubleNear;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pointwise;
using ::testing::UnorderedElementsAre;

Value wavy(const Dims& dims, double phase, DType dtype = kF64) {
  return tensor_value(dims, waves(count_of(dims), phase), dtype);
}

struct Product {
  const char* type;
  Dims x;
  Dims y;
  bool turn_x;
  bool turn_y;
};

// Batches that are shared, broadcast on either side, folded and not, for every transposition.
const Product kProducts[] = {
    {"matmul_v2", {2, 3}, {3, 4}, false, false},
    {"matmul_v2", {3, 2}, {4, 3}, true, true},
    {"matmul_v2", {5, 2, 3}, {3, 4}, false, false},
    {"matmul_v2", {5, 3, 2}, {3, 4}, true, false},
    {"matmul_v2", {5, 2, 3}, {4, 3}, false, true},
    {"matmul_v2", {5, 3, 2}, {4, 3}, true, true},
    {"matmul_v2", {2, 3}, {5, 3, 4}, false, false},
    {"matmul_v2", {3, 2}, {5, 4, 3}, true, true},
    {"matmul_v2", {2, 1, 2, 3}, {3, 3, 2}, false, false},
    {"matmul_v2", {2, 2, 2, 3}, {2, 1, 2, 3}, false, true},
    {"matmul_v2", {3}, {3, 4}, false, false},
    {"matmul_v2", {2, 3}, {3}, false, false},
    {"matmul_v2", {3}, {3}, false, false},
    {"matmul", {2, 2, 3}, {2, 3, 2}, false, false},
    {"matmul", {3}, {3}, true, true},
};

RunOp product(const Product& p, DType dtype) {
  const bool v2 = std::string(p.type) == "matmul_v2";
  RunOp op(p.type);
  op.in("X", wavy(p.x, 0, dtype))
      .in("Y", wavy(p.y, 1, dtype))
      .attr(v2 ? "trans_x" : "transpose_X", p.turn_x)
      .attr(v2 ? "trans_y" : "transpose_Y", p.turn_y)
      .out("Out");
  if (!v2) op.attr("alpha", 0.5F);
  return op;
}

TEST(Matmul, GradientsAreDerivatives) {
  for (const Product& p : kProducts) {
    SCOPED_TRACE(::testing::PrintToString(p.x) + ::testing::PrintToString(p.y));
    EXPECT_LT(product(p, kF64).gradient_error({"X", "Y"}, "Out0"), 1e-6);
  }
}

// f64 goes through Eigen; the others must agree with it.
TEST(Matmul, AllTypesAgree) {
  for (const auto& [dtype, error] :
       {std::pair{DType::kFloat32, 1e-5}, {DType::kFloat16, 1e-2}, {DType::kBfloat16, 1e-1}}) {
    for (const Product& p : kProducts) {
      SCOPED_TRACE(::testing::PrintToString(p.x) + ::testing::PrintToString(p.y));
      RunOp exact = product(p, kF64);
      RunOp op = product(p, dtype);
      ASSERT_TRUE(exact.run_with_grad({"X", "Y"}).ok());
      const Status status = op.run_with_grad({"X", "Y"});
      ASSERT_TRUE(status.ok()) << status.to_string();
      for (const char* const slot : {"X0@GRAD", "Y0@GRAD"})
        EXPECT_THAT(numbers(op.value(slot)),
                    Pointwise(DoubleNear(error), numbers(exact.value(slot))));
    }
  }
}

TEST(Matmul, AProductOverNothingIsZero) {
  RunOp op("matmul_v2");
  op.in("X", tensor_value({2, 0}, {})).in("Y", tensor_value({0, 3}, {})).out("Out");
  ASSERT_TRUE(op.run_with_grad({"X", "Y"}).ok());
  EXPECT_THAT(dims(op.value("Y0@GRAD")), ElementsAre(0, 3));
  RunOp again("matmul_v2");
  again.in("X", tensor_value({2, 0}, {})).in("Y", tensor_value({0, 3}, {})).out("Out");
  ASSERT_TRUE(again.run().ok());
  EXPECT_THAT(numbers(again.value("Out0")), Each(0));
  EXPECT_THAT(dims(again.value("Out0")), ElementsAre(2, 3));
}

TEST(Matmul, SaysWhatItCannotDo) {
  RunOp ints("matmul_v2");
  ints.in("X", tensor_value({1, 1}, {1}, DType::kInt32))
      .in("Y", tensor_value({1, 1}, {1}, DType::kInt32))
      .out("Out");
  EXPECT_THAT(ints.run_text(), HasSubstr("no matrix product for element type"));
}

TEST(Mul, GradientsAreDerivatives) {
  RunOp op("mul");
  op.in("X", wavy({2, 2, 3}, 0)).in("Y", wavy({3, 2, 2}, 1)).attr("x_num_col_dims", 2).out("Out");
  EXPECT_LT(op.gradient_error({"X", "Y"}, "Out0"), 1e-6);
}

TEST(Addmm, GradientsAreDerivativesWhereInputIsBroadcast) {
  RunOp op("addmm");
  op.in("Input", wavy({4}, 2))
      .in("X", wavy({2, 3}, 0))
      .in("Y", wavy({3, 4}, 1))
      .attr("Alpha", 0.5F)
      .attr("Beta", 2.0F)
      .out("Out");
  EXPECT_LT(op.gradient_error({"Input", "X", "Y"}, "Out0"), 1e-6);
}

TEST(SmallProducts, GradientsAreDerivatives) {
  RunOp dot("dot");
  dot.in("X", wavy({2, 3}, 0)).in("Y", wavy({2, 3}, 1)).out("Out");
  EXPECT_LT(dot.gradient_error({"X", "Y"}, "Out0"), 1e-6);
  RunOp cross("cross");
  cross.in("X", wavy({2, 3, 2}, 0)).in("Y", wavy({2, 3, 2}, 1)).out("Out");
  EXPECT_LT(cross.gradient_error({"X", "Y"}, "Out0"), 1e-6);
  RunOp kron("kron");
  kron.in("X", wavy({2, 2}, 0)).in("Y", wavy({3, 1, 2}, 1)).out("Out");
  EXPECT_LT(kron.gradient_error({"X", "Y"}, "Out0"), 1e-6);
  RunOp mv("mv");
  mv.in("X", wavy({3, 2}, 0)).in("Vec", wavy({2}, 1)).out("Out");
  EXPECT_LT(mv.gradient_error({"X", "Vec"}, "Out0"), 1e-6);
}

TEST(Dist, GradientsAreDerivativesForEveryOrder) {
  for (const float p : {1.0F, 1.5F, 2.0F, 3.0F}) {
    RunOp op("dist");
    op.in("X", wavy({2, 3}, 0)).in("Y", wavy({3}, 1)).attr("p", p).out("Out");
    EXPECT_LT(op.gradient_error({"X", "Y"}, "Out0"), 1e-5);
  }
}

// Worked by hand: (3, 4) and (4, 3) have the cosine 24 / 25.
TEST(CosSim, IsTheCosineOfRows) {
  RunOp op("cos_sim");
  op.in("X", tensor_value({2, 2}, {3, 4, 0, 2}))
      .in("Y", tensor_value({1, 2}, {4, 3}))
      .out("Out")
      .out("XNorm")
      .out("YNorm");
  ASSERT_TRUE(op.run().ok());
  EXPECT_THAT(numbers(op.value("Out0")), Pointwise(DoubleNear(1e-6), {0.96, 0.6}));
  EXPECT_THAT(numbers(op.value("XNorm0")), ElementsAre(5, 2));
  EXPECT_THAT(numbers(op.value("YNorm0")), ElementsAre(5));
}

TEST(CosSim, GradientsAreDerivativesForOneRowAndForMany) {
  for (const int64_t of_y : {1, 3}) {
    RunOp op("cos_sim");
    op.in("X", wavy({3, 4}, 0)).in("Y", wavy({of_y, 4}, 1)).out("Out");
    EXPECT_LT(op.gradient_error({"X", "Y"}, "Out0"), 1e-6);
  }
}

TEST(Clip, CutsTheSumOfARow) {
  RunOp op("clip");
  op.in("X", rows_value({2, 2, 0}, 4, {3, 1}, {1, 2, -5}))
      .attr("min", -2.0F)
      .attr("max", 2.5F)
      .out_kind("Out", VarKind::kSelectedRows);
  ASSERT_TRUE(op.run().ok());
  EXPECT_THAT(op.value("Out0").get_if<SelectedRows>()->rows, ElementsAre(2, 0));
  EXPECT_THAT(numbers(op.value("Out0")), ElementsAre(2.5, -2));
}

TEST(Clip, TakesBoundsFromTensors) {
  RunOp op("clip");
  op.in("X", tensor_value({3}, {-3, 0, 3}))
      .in("Min", tensor_value({1}, {-1}))
      .in("Max", tensor_value({1}, {2}))
      .attr("min", 0.0F)
      .attr("max", 0.0F)
      .out("Out");
  ASSERT_TRUE(op.run().ok());
  EXPECT_THAT(numbers(op.value("Out0")), ElementsAre(-1, 0, 2));
  RunOp crossed("clip");
  crossed.in("X", tensor_value({1}, {1}))
      .in("Min", tensor_value({1}, {3}))
      .attr("min", 0.0F)
      .attr("max", 2.0F)
      .out("Out");
  EXPECT_THAT(crossed.run_text(), HasSubstr("the lower bound is 3, which is above"));
}

TEST(Sum, AddsRowsToADenseTensor) {
  RunOp op("sum");
  op.in("X", tensor_value({3, 2}, {1, 1, 1, 1, 1, 1}))
      .in("X", rows_value({2, 0, 2}, 3, {3, 2}, {1, 2, 3, 4, 5, 6}))
      .out("Out");
  ASSERT_TRUE(op.run().ok());
  EXPECT_THAT(numbers(op.value("Out0")), ElementsAre(4, 5, 1, 1, 7, 9));
}

TEST(Sum, JoinsRowsWithEveryRowOnce) {
  RunOp op("sum");
  op.in("X", rows_value({2, 0}, 3, {2, 1}, {1, 2}))
      .in("X", rows_value({}, 3, {0, 1}, {}))
      .in("X", rows_value({0, 1}, 3, {2, 1}, {10, 20}))
      .out_kind("Out", VarKind::kSelectedRows);
  ASSERT_TRUE(op.run().ok());
  EXPECT_THAT(op.value("Out0").get_if<SelectedRows>()->rows, UnorderedElementsAre(0, 1, 2));
  EXPECT_THAT(numbers(op.value("Out0")), UnorderedElementsAre(1, 12, 20));
}

TEST(Sum, RefusesRowsOutsideOfTheResult) {
  RunOp op("sum");
  op.in("X", tensor_value({3, 1}, {1, 1, 1})).in("X", rows_value({3}, 3, {1, 1}, {1})).out("Out");
  EXPECT_THAT(op.run_text(), HasSubstr("row 3, expected one in [0, 3)"));
}

TEST(Sum, AddsArraysElementByElement) {
  const auto array = [](double first) {
    Value value;
    auto& held = value.as<TensorArray>();
    held.resize(3);
    EXPECT_TRUE(held[0].copy_from(*tensor_value({2}, {first, first}).get_if<Tensor>()).ok());
    return value;
  };
  RunOp op("sum");
  op.in("X", array(1)).in("X", array(2)).out_kind("Out", VarKind::kLodTensorArray);
  ASSERT_TRUE(op.run().ok());
  const auto& out = *op.value("Out0").get_if<TensorArray>();
  ASSERT_EQ(out.size(), 3);
  EXPECT_EQ(*out[0].data<float>(), 3);
  EXPECT_FALSE(out[1].initialized());
}

TEST(Sum, OfThreeMayBeOneOfThem) {
  RunOp op("sum");
  op.in("X", tensor_value({2}, {1, 2}))
      .in("X", tensor_value({2}, {10, 20}))
      .in("X", tensor_value({2}, {100, 200}))
      .out("Out");
  ASSERT_TRUE(op.run().ok());
  EXPECT_THAT(numbers(op.value("Out0")), ElementsAre(111, 222));
}

TEST(Pow, GradientIsTheDerivativeForEveryExponent) {
  for (const float factor : {2.0F, 0.5F, -1.0F, 3.0F}) {
    RunOp op("pow");
    op.in("X", tensor_value({3}, {0.5, 1, 2}, kF64)).attr("factor", factor).out("Out");
    EXPECT_LT(op.gradient_error({"X"}, "Out0"), 1e-6);
  }
}

// Element types that the library does not multiply use another code path with the same results.
TEST(Fc, AddsBiasAndActivation) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kFloat16}) {
    for (const char* const activation : {"", "relu", "gelu", "gelu_tanh", "sigmoid", "tanh"}) {
      RunOp op("fc");
      op.in("Input", {2, 1, 2}, {1, -2, 0.5, 1}, dtype).in("W", {2, 2}, {1, 0.5, -1, 2}, dtype);
      op.in("Bias", {2}, {0.25, -0.5}, dtype).out("Out");
      op.attr("in_num_col_dims", 2).attr("activation_type", std::string(activation));
      ASSERT_EQ(op.run_text(), "ok") << activation;
      EXPECT_THAT(dims(op.value("Out0")), ElementsAre(2, 1, 2));
      const double sums[] = {3.25, -4, -0.25, 1.75};
      for (size_t i = 0; i < 4; ++i) {
        const double x = sums[i];
        const llvm::StringRef name = activation;
        double expected = x;
        if (name == "relu") expected = std::max(x, 0.0);
        if (name == "gelu") expected = x * 0.5 * (1 + std::erf(x / std::sqrt(2.0)));
        if (name == "gelu_tanh")
          expected = x * 0.5 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
        if (name == "sigmoid") expected = 1 / (1 + std::exp(-x));
        if (name == "tanh") expected = std::tanh(x);
        EXPECT_NEAR(op.values("Out0")[i], expected, dtype == DType::kFloat16 ? 2e-3 : 1e-5)
            << activation << " of " << x;
      }
    }
  }
}

TEST(Fc, AddsAnotherTensor) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kFloat16}) {
    for (const bool in_place : {false, true}) {
      RunOp op("fc");
      op.in("Input", {2, 2}, {1, -2, 0.5, 1}, dtype).in("W", {2, 2}, {1, 0.5, -1, 2}, dtype);
      op.in("Bias", {2}, {0.25, -0.5}, dtype).in("ResidualData", {2, 2}, {-4, 8, 1, -1}, dtype);
      if (in_place) {
        op.out_in_place("Out", "ResidualData");
      } else {
        op.out("Out");
      }
      op.attr("activation_type", std::string("relu"));
      ASSERT_EQ(op.run_text(), "ok");
      EXPECT_THAT(op.values(in_place ? "ResidualData0" : "Out0"), ElementsAre(0, 4, 0.75, 0.75));
    }
  }
}

TEST(Fc, SaysWhatDoesNotFit) {
  RunOp op("fc");
  op.in("Input", {2, 2}, {1}).in("W", {2, 3}, {1}).in("Bias", {2}, {1}).out("Out");
  EXPECT_THAT(op.run_text(), HasSubstr("Bias must have 3 elements of the type of Input, found"));
  RunOp residual("fc");
  residual.in("Input", {2, 2}, {1}).in("W", {2, 3}, {1}).in("ResidualData", {1, 3}, {1}).out("Out");
  EXPECT_THAT(residual.run_text(), HasSubstr("'ResidualData' has shape [1, 3], expected [2, 3]"));
}

RunOp attention_op(DType dtype) {
  RunOp op("multi_head_attention");
  op.in("Q", {2, 3, 4}, waves(24), dtype).in("K", {2, 5, 4}, waves(40, 1), dtype);
  op.in("V", {2, 5, 6}, waves(60, 2), dtype).in("Mask", {2, 1, 3, 1}, waves(6, 3), dtype);
  op.out("Out").out("Probs").attr("heads", 2).attr("scale", 0.5F);
  return op;
}

TEST(Attention, HasTheGradientOfItsFormula) {
  EXPECT_LT(attention_op(kF64).gradient_error({"Q", "K", "V"}, "Out0"), 1e-6);
}

TEST(Attention, IsTheSameInFloatsOnThreadsAndWithoutProbs) {
  RunOp expected = attention_op(kF64);
  ASSERT_EQ(expected.run_text(), "ok");
  RunOp op = attention_op(DType::kFloat32);
  ASSERT_EQ(op.run_text(2), "ok");
  EXPECT_THAT(op.values("Out0"), Pointwise(DoubleNear(1e-5), expected.values("Out0")));
  EXPECT_THAT(op.values("Probs0"), Pointwise(DoubleNear(1e-5), expected.values("Probs0")));
  // softmax of two equal scores, and of one that is masked out
  RunOp small("multi_head_attention");
  small.in("Q", {1, 1, 1}, {0}).in("K", {1, 3, 1}, {1}).in("V", {1, 3, 1}, {1, 2, 30}).out("Out");
  small.in("Mask", {1, 1, 1, 3}, {0, 0, -1e9});
  ASSERT_EQ(small.run_text(), "ok");
  EXPECT_THAT(small.values("Out0"), ElementsAre(DoubleNear(1.5, 1e-6)));
}

TEST(Attention, SaysWhatDoesNotFit) {
  RunOp op("multi_head_attention");
  op.in("Q", {1, 2, 2}, {1}).in("K", {1, 3, 2}, {1}).in("V", {1, 3, 2}, {1}).out("Out");
  op.in("Mask", {1, 1, 3, 3}, {0});
  EXPECT_THAT(op.run_text(), HasSubstr("cannot be broadcast to [1, 1, 2, 3]"));
}

}  // namespace
}  // namespace millrace::kernels

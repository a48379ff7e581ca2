#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "executor/compiled_ops/control.h"
#include "executor/standard_runtime.h"
#include "framework/text_form/parse.h"
#include "kernels/registry.h"
#include "tests/kernels/run_op.h"

namespace millrace::kernels {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

RunOp two(const char* type, Value x, Value y, int32_t axis = -1) {
  RunOp op(type);
  op.in("X", std::move(x)).in("Y", std::move(y)).out("Out").attr("axis", axis);
  return op;
}

struct Shapes {
  Dims x;
  Dims y;
  int32_t axis;
};

// All ways in which an operand can be broadcast: at the end, in the middle, at both ends, in X.
const Shapes kShapes[] = {
    {{2, 3, 4}, {4}, -1},       {{2, 3, 4}, {3}, 1},        {{2, 3, 4}, {2, 3}, 0},
    {{2, 3, 4}, {1}, -1},       {{2, 3, 4}, {}, -1},        {{2, 3, 4}, {3, 1}, 1},
    {{2, 3, 4}, {2, 1, 4}, -1}, {{2, 1, 4}, {2, 3, 1}, -1}, {{4}, {2, 3, 4}, -1},
    {{2, 3}, {2, 3}, -1},       {{2, 3, 2, 2}, {3, 2}, 1}};

TEST(Elementwise, GradientsAreDerivativesForEveryWayToBroadcast) {
  for (const char* const type : {"elementwise_add", "elementwise_sub", "elementwise_mul",
                                 "elementwise_div", "elementwise_max", "elementwise_pow"}) {
    for (const Shapes& shapes : kShapes) {
      std::vector<double> x = waves(count_of(shapes.x));
      std::vector<double> y = waves(count_of(shapes.y), 0.7);
      // positive, and Y not close to 0
      for (double& v : x) v = v * 0.5 + 1;
      for (double& v : y) v = v * 0.4 + 0.93;
      SCOPED_TRACE(std::string(type) + " axis " + std::to_string(shapes.axis));
      RunOp op =
          two(type, tensor_value(shapes.x, x, kF64), tensor_value(shapes.y, y, kF64), shapes.axis);
      EXPECT_LT(op.gradient_error({"X", "Y"}, "Out0"), 1e-5);
    }
  }
}

// Sizes that are large enough for threads, split at every level.
TEST(Elementwise, ThreadsDoNotChangeResults) {
  const Shapes cases[] = {{{64, 1200}, {1200}, -1}, {{3, 400, 80}, {400}, 1}, {{90000}, {1}, -1}};
  for (const Shapes& shapes : cases) {
    const auto run = [&](int threads) {
      RunOp op = two("elementwise_mul", tensor_value(shapes.x, waves(count_of(shapes.x))),
                     tensor_value(shapes.y, waves(count_of(shapes.y), 1)), shapes.axis);
      EXPECT_TRUE(op.run_with_grad({"X", "Y"}, threads).ok());
      std::vector<std::vector<double>> out = {
          numbers(op.value("Out0")), numbers(op.value("X0@GRAD")), numbers(op.value("Y0@GRAD"))};
      return out;
    };
    EXPECT_EQ(run(1), run(3));
  }
}

TEST(Elementwise, MayWriteOverX) {
  RunOp op("elementwise_sub");
  op.in("X", tensor_value({2, 2}, {1, 2, 3, 4}))
      .in("Y", tensor_value({2}, {1, 1}))
      .out_in_place("Out", "X");
  ASSERT_TRUE(op.run().ok());
  EXPECT_THAT(numbers(op.value("X0")), ElementsAre(0, 1, 2, 3));
}

TEST(Elementwise, GradientsOfEmptyResultsAreZero) {
  RunOp op = two("elementwise_mul", tensor_value({0, 3}, {}), tensor_value({3}, {1, 2, 3}));
  ASSERT_TRUE(op.run_with_grad({"X", "Y"}).ok());
  EXPECT_THAT(numbers(op.value("X0@GRAD")), IsEmpty());
  EXPECT_THAT(numbers(op.value("Y0@GRAD")), ElementsAre(0, 0, 0));
}

TEST(Elementwise, IntegersWrapAroundAndNeverTrap) {
  constexpr double kMin = std::numeric_limits<int32_t>::min();
  const auto ints = [](std::vector<double> values) {
    const auto count = static_cast<int64_t>(values.size());
    return tensor_value({count}, values, DType::kInt32);
  };
  RunOp div = two("elementwise_div", ints({kMin, -7, 7}), ints({-1, 2, -2}));
  ASSERT_TRUE(div.run().ok());
  EXPECT_THAT(numbers(div.value("Out0")), ElementsAre(kMin, -3, -3));
  RunOp floor = two("elementwise_floordiv", ints({kMin, -7, 7}), ints({-1, 2, -2}));
  ASSERT_TRUE(floor.run().ok());
  EXPECT_THAT(numbers(floor.value("Out0")), ElementsAre(kMin, -4, -4));
  RunOp mod = two("elementwise_mod", ints({kMin, -7, 7}), ints({-1, 3, -3}));
  ASSERT_TRUE(mod.run().ok());
  EXPECT_THAT(numbers(mod.value("Out0")), ElementsAre(0, 2, -2));
}

TEST(Elementwise, SaysWhereItWouldDivideByZero) {
  for (const char* const type : {"elementwise_div", "elementwise_mod", "elementwise_floordiv"}) {
    RunOp op = two(type, tensor_value({3}, {1, 2, 3}, DType::kInt64),
                   tensor_value({3}, {1, 0, 3}, DType::kInt64));
    EXPECT_THAT(op.run_text(), HasSubstr("division by zero: element 1 of Y is 0")) << type;
  }
}

TEST(Elementwise, RefusesOperandsOfDifferentTypes) {
  RunOp op = two("elementwise_add", tensor_value({1}, {1}), tensor_value({1}, {1}, kF64));
  EXPECT_THAT(op.run_text(), HasSubstr("X and Y must have one element type"));
}

TEST(Elementwise, NanWinsInMaxAndLosesInFmax) {
  const auto run = [](const char* type) {
    RunOp op = two(type, tensor_value({2}, {kNan, 1}), tensor_value({2}, {1, kNan}));
    EXPECT_TRUE(op.run().ok());
    return numbers(op.value("Out0"));
  };
  for (const double v : run("elementwise_max")) EXPECT_TRUE(std::isnan(v));
  for (const double v : run("elementwise_min")) EXPECT_TRUE(std::isnan(v));
  EXPECT_THAT(run("elementwise_fmax"), ElementsAre(1, 1));
  EXPECT_THAT(run("elementwise_fmin"), ElementsAre(1, 1));
}

// The form of clipping by a global norm in old programs.
TEST(Elementwise, ScalesSelectedRows) {
  RunOp op("elementwise_mul");
  op.in("X", rows_value({3, 0}, 5, {2, 2}, {1, 2, 3, 4}))
      .in("Y", tensor_value({1}, {2}))
      .out_kind("Out", VarKind::kSelectedRows);
  ASSERT_TRUE(op.run().ok());
  EXPECT_THAT(numbers(op.value("Out0")), ElementsAre(2, 4, 6, 8));
  EXPECT_THAT(op.value("Out0").get_if<SelectedRows>()->rows, ElementsAre(3, 0));
}

// Runs a program with and without rewrites. Returns whether a chain was formed.
bool chain_gives_the_same(const std::string& ops, const std::vector<std::string>& vars) {
  std::string text = "# millrace program 1\nblock 0 {\n  param one: f32(1)\n";
  for (const std::string& name : vars) text += "  var \"" + name + "\": f32(-1, 7)\n";
  const auto program = parse_program(text + ops + "}\n", "test");
  EXPECT_TRUE(program.ok()) << program.status().to_string();
  Scope scope;
  scope.local("one") = tensor_value({1}, {0.75});
  executor::NamedValues feeds;
  std::vector<double> x = waves(700, 1);
  for (double& v : x) v = 0.5 + 0.4 * v;
  feeds["x"] = tensor_value({100, 7}, x);
  feeds["z"] = tensor_value({100, 7}, waves(700, 2));
  std::vector<double> found[2];
  bool chained = false;
  for (const bool optimize : {false, true}) {
    auto prepared = executor::Executor(executor::standard_runtime(), {.optimize = optimize})
                        .prepare(**program, scope);
    EXPECT_TRUE(prepared.ok()) << prepared.status().to_string();
    if (!prepared.ok()) return false;
    std::vector<Value> results;
    const Status status = (*prepared)->run(feeds, {"y"}, results);
    EXPECT_TRUE(status.ok()) << status.to_string();
    if (!status.ok()) return false;
    found[optimize ? 1 : 0] = numbers(results[0]);
    chained = (*prepared)->program().root().back().type() == "elementwise_chain";
  }
  EXPECT_THAT(found[1], ::testing::Pointwise(::testing::DoubleNear(1e-6), found[0])) << ops;
  return chained;
}

TEST(Chain, GivesWhatItsOpsGive) {
  for (const char* const type :
       {"relu",    "relu6",      "leaky_relu", "brelu",    "hard_sigmoid", "hard_swish",
        "sigmoid", "logsigmoid", "tanh",       "softplus", "softsign",     "elu",
        "selu",    "silu",       "swish",      "mish",     "exp",          "expm1",
        "log",     "log1p",      "sqrt",       "rsqrt",    "square",       "reciprocal",
        "erf",     "abs",        "floor",      "ceil",     "round"}) {
    const std::string name = type;
    EXPECT_TRUE(chain_gives_the_same(
        "  " + name + " X=x -> Out=a\n  elementwise_mul X=z Y=a -> Out=b\n" +
            "  scale X=b -> Out=y {scale: 0.5, bias: 2.0, bias_after_scale: false}\n",
        {"x", "z", "a", "b", "y"}))
        << type;
    EXPECT_TRUE(chain_gives_the_same(
        "  " + name + " X=x -> Out=o\n  scale X=o -> Out=o2\n  scale X=z -> Out=d\n  " + name +
            "_grad X=x Out=o \"Out@GRAD\"=d -> \"X@GRAD\"=g\n  elementwise_sub X=g Y=one -> "
            "Out=h\n" +
            "  elementwise_div X=h Y=x -> Out=i\n  elementwise_add X=i Y=z -> Out=y\n",
        {"x", "z", "o", "o2", "d", "g", "h", "i", "y"}))
        << type;
  }
}

TEST(Chain, RefusesStepsThatItDoesNotKnow) {
  const auto run = [](const std::string& step) {
    RunOp op("elementwise_chain");
    op.in("X", {2}, {1, 2}).out("Out").attr("steps", std::vector<std::string>{step});
    return op.run_text();
  };
  EXPECT_EQ(run("relu X=x0 -> Out=t"), "ok");
  EXPECT_THAT(run("softmax X=x0 -> Out=t"), HasSubstr("no loop for 'softmax'"));
  EXPECT_THAT(run("relu X=x1 -> Out=t"), HasSubstr("'relu' has X 'x1', expected t or x0 to x0"));
  EXPECT_THAT(run("relu X=t -> Out=t"), HasSubstr("'relu' has X 't'"));
}

StatusOr<Kernel> make_nothing(const KernelSetup& /*op*/) {
  return Kernel([](const KernelContext& /*ctx*/) { return Ok(); });
}

TEST(RegistryDeathTest, AKernelOrControlOfATypeIsNeverReplaced) {
  KernelRegistry registry;
  registry.add("relu", make_nothing);
  EXPECT_EQ(registry.find("relu"), make_nothing);
  EXPECT_DEATH(registry.add("relu", make_nothing),
               "internal error: the kernel of op 'relu' is registered twice");
  executor::ControlRegistry controls;
  executor::add_standard_controls(controls);
  EXPECT_DEATH(executor::add_standard_controls(controls),
               "internal error: the control of op '.*' is registered twice");
}

TEST(Logical, TakesNumbersAsTruth) {
  RunOp op("logical_and");
  op.in("X", tensor_value({3}, {0, 2, -1})).in("Y", tensor_value({3}, {1, 1, 0})).out("Out");
  ASSERT_TRUE(op.run().ok());
  EXPECT_THAT(numbers(op.value("Out0")), ElementsAre(0, 1, 0));
}

TEST(Bitwise, RefusesFloats) {
  RunOp op("bitwise_or");
  op.in("X", tensor_value({1}, {1})).in("Y", tensor_value({1}, {1})).out("Out");
  EXPECT_THAT(op.run_text(), HasSubstr("no kernel for element type"));
}

}  // namespace
}  // namespace millrace::kernels

// Kernels of 16-bit floats, which compute in f32, and variants of ops that the original's tests
// use.
#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "executor/standard_runtime.h"
#include "framework/names.h"
#include "tests/kernels/run_op.h"

namespace millrace::kernels {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Values = std::vector<double>;

constexpr DType kF16 = DType::kFloat16;

// Inputs that both types represent exactly.
Values halves(int64_t count, unsigned start) {
  Values values = noise(static_cast<size_t>(count), start);
  for (double& value : values) value = std::round(value * 64) / 64;
  return values;
}

using Build = RunOp (*)(DType);

RunOp f16_conv2d(DType dtype) {
  RunOp op("conv2d");
  op.in("Input", {1, 2, 5, 4}, halves(40, 1), dtype)
      .in("Filter", {3, 2, 3, 3}, halves(54, 2), dtype);
  op.out("Output").ints("paddings", {1, 1});
  return op;
}
RunOp f16_conv2d_transpose(DType dtype) {
  RunOp op("conv2d_transpose");
  op.in("Input", {1, 2, 3, 4}, halves(24, 1), dtype)
      .in("Filter", {2, 3, 3, 3}, halves(54, 2), dtype);
  op.out("Output").ints("strides", {2, 2});
  return op;
}
RunOp f16_conv3d(DType dtype) {
  RunOp op("conv3d");
  op.in("Input", {1, 2, 3, 3, 4}, halves(72, 1), dtype);
  op.in("Filter", {2, 2, 2, 2, 2}, halves(32, 2), dtype).out("Output");
  return op;
}
RunOp f16_pool2d(DType dtype) {
  RunOp op("pool2d");
  op.in("X", {1, 2, 4, 4}, halves(32, 1), dtype).out("Out").attr("pooling_type", "avg");
  op.ints("ksize", {2, 2}).ints("strides", {2, 2});
  return op;
}
RunOp f16_pool3d(DType dtype) {
  RunOp op("pool3d");
  op.in("X", {1, 2, 4, 4, 4}, halves(128, 1), dtype).out("Out").attr("pooling_type", "max");
  op.ints("ksize", {2, 2, 2}).ints("strides", {2, 2, 2});
  return op;
}
RunOp f16_softmax(DType dtype) {
  RunOp op("softmax_with_cross_entropy");
  op.in("Logits", {3, 4}, halves(12, 1), dtype).in("Label", {3, 1}, {0, 3, 1}, kI64);
  op.out("Softmax").out("Loss");
  return op;
}
RunOp f16_fused(DType dtype) {
  RunOp op("fused_elemwise_activation");
  op.in("X", {3, 4}, halves(12, 1), dtype).in("Y", {3, 4}, halves(12, 2), dtype);
  op.out("Out").out("IntermediateOut").attr("axis", -1);
  op.attr("functor_list", std::vector<std::string>{"elementwise_add", "relu"});
  return op;
}

struct HalfOp {
  const char* name;
  Build build;
  const char* output;
  std::vector<std::string> slots;
};

class HalfKernels : public ::testing::TestWithParam<DType> {};

// The gradients of 16-bit floats equal those of f32, rounded once.
TEST_P(HalfKernels, ComputeInFloatAndRoundOnce) {
  const DType type = GetParam();
  const double rounding = type == kF16 ? 1e-3 : 8e-3;
  const std::vector<HalfOp> all = {
      {"conv2d", f16_conv2d, "Output0", {"Input", "Filter"}},
      {"conv2d_transpose", f16_conv2d_transpose, "Output0", {"Input", "Filter"}},
      {"conv3d", f16_conv3d, "Output0", {"Input", "Filter"}},
      {"pool2d", f16_pool2d, "Out0", {"X"}},
      {"pool3d", f16_pool3d, "Out0", {"X"}},
      {"softmax_with_cross_entropy", f16_softmax, "Loss0", {"Logits"}},
      {"fused_elemwise_activation", f16_fused, "Out0", {"X", "Y"}}};
  for (const HalfOp& each : all) {
    RunOp wide = each.build(DType::kFloat32);
    RunOp half = each.build(type);
    ASSERT_EQ(wide.run_text(), "ok") << each.name;
    ASSERT_EQ(half.run_text(), "ok") << each.name;
    const Dims shape(wide.tensor(each.output).dims().begin(),
                     wide.tensor(each.output).dims().end());
    for (RunOp* const op : {&wide, &half}) {
      op->with_grad(each.slots)
          .feed(std::string(each.output) + "@GRAD", shape, halves(count_of(shape), 3),
                op == &half ? type : DType::kFloat32);
      ASSERT_EQ(op->run_text(), "ok") << each.name;
    }
    std::vector<std::string> names{each.output};
    for (const std::string& slot : each.slots) names.push_back(slot + "0@GRAD");
    for (const std::string& name : names) {
      EXPECT_EQ(half.tensor(name).dtype(), type) << each.name << " " << name;
      EXPECT_EQ(half.tensor(name).dims(), wide.tensor(name).dims()) << each.name << " " << name;
      const Values exact = wide.values(name);
      const Values found = half.values(name);
      for (size_t i = 0; i < exact.size(); ++i)
        EXPECT_NEAR(found[i], exact[i], rounding * std::max(1.0, std::abs(exact[i])))
            << each.name << " " << name << " " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, HalfKernels, ::testing::Values(kF16, DType::kBfloat16));

RunOp conv_behind_relu(const char* type, bool fused, Values image) {
  RunOp op(type);
  op.in("Input", {1, 2, 4, 4}, std::move(image), kF64);
  op.in("Filter", {2, 1, 3, 3}, waves(18), kF64).out("Output").attr("groups", 2);
  if (fused) op.attr("fuse_relu_before_depthwise_conv", true);
  return op;
}

TEST(ConvBehindRelu, SeesWhatIsAboveZero) {
  for (const char* const type : {"depthwise_conv2d", "conv2d"}) {
    Values image = noise(32);
    RunOp fused = conv_behind_relu(type, true, image);
    for (double& pixel : image) pixel = std::max(pixel, 0.0);
    RunOp apart = conv_behind_relu(type, false, image);
    ASSERT_EQ(fused.run_text(), "ok");
    ASSERT_EQ(apart.run_text(), "ok");
    EXPECT_EQ(fused.values("Output0"), apart.values("Output0")) << type;
    EXPECT_LT(fused.gradient_error({"Input", "Filter"}, "Output0"), 1e-6) << type;
  }
}

TEST(CreatedRows, AreWholeTables) {
  for (const char* const type : {"uniform_random", "gaussian_random", "fill_constant"}) {
    RunOp op(type);
    op.out_kind("Out", VarKind::kSelectedRows).attr("shape", std::vector<int64_t>{3, 2});
    op.attr("dtype", 5);
    ASSERT_EQ(op.run_text(), "ok") << type;
    const auto* const rows = op.value("Out0").get_if<SelectedRows>();
    ASSERT_NE(rows, nullptr) << type;
    EXPECT_EQ(rows->height, 3);
    EXPECT_THAT(rows->rows, ElementsAre(0, 1, 2));
    EXPECT_EQ(rows->value.numel(), 6);
  }
}

TEST(FillAnyLike, RefusesAValueBeyondTheType) {
  const auto filled = [](DType dtype, float value) {
    RunOp op("fill_any_like");
    op.in("X", {2}, {0, 0}, dtype).out("Out").attr("value", value);
    return op.run_text();
  };
  EXPECT_THAT(filled(kI32, 3e9F), HasSubstr("which is beyond element type"));
  EXPECT_THAT(filled(kI32, -3e9F), HasSubstr("which is beyond element type"));
  EXPECT_THAT(filled(kI64, 9.3e18F), HasSubstr("which is beyond element type"));
  EXPECT_THAT(filled(kI32, NAN), HasSubstr("which is beyond element type"));
  EXPECT_THAT(filled(kF16, 1e5F), HasSubstr("which is beyond element type"));
  EXPECT_THAT(filled(DType::kBool, 3), HasSubstr("which is beyond element type"));
  EXPECT_EQ(filled(kI32, -2147483648.0F), "ok");
  EXPECT_EQ(filled(kF16, 65504), "ok");
  EXPECT_EQ(filled(kF16, INFINITY), "ok");
}

TEST(SplitSelectedRows, SectionsMayReachBeyondTheTable) {
  RunOp op("split_selected_rows");
  op.in("X", rows_value({0, 5, 20}, 21, {3, 1}, {1, 2, 3})).out("Out", 2);
  op.attr("height_sections", std::vector<int64_t>{15, 8});
  ASSERT_EQ(op.run_text(), "ok");
  const auto* const last = op.value("Out1").get_if<SelectedRows>();
  ASSERT_NE(last, nullptr);
  EXPECT_EQ(last->height, 8);
  EXPECT_THAT(last->rows, ElementsAre(5));
}

// grads = 0.5 * 0 + 0.5 * 4; update = -sqrt(1 / 3) * 2
TEST(Adadelta, StepsByOneWithoutALearningRate) {
  RunOp op("adadelta");
  op.in("Param", {1}, {10}).in("Grad", {1}, {2}).in("AvgSquaredGrad", {1}, {0});
  op.in("AvgSquaredUpdate", {1}, {0}).attr("rho", 0.5F).attr("epsilon", 1.0F);
  op.out_in_place("ParamOut", "Param").out_in_place("AvgSquaredGradOut", "AvgSquaredGrad");
  op.out_in_place("AvgSquaredUpdateOut", "AvgSquaredUpdate");
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_NEAR(op.values("Param0").front(), 10 - 2 / std::sqrt(3.0), 1e-6);
}

// Gradients that are not requested leave holes in the slot.
TEST(MultiplexGrad, SkipsAbsentGradients) {
  auto program = Program::create();
  Block& block = program->root();
  for (const char* const name : {"ids", "dout", "da", "dc"})
    block.declare(name, VarSpec::shapeless(VarKind::kLodTensor));
  Op& op = block.append_op("multiplex_grad");
  op.set_input("Ids", "ids").set_input("Out@GRAD", "dout");
  op.set_output("X@GRAD", llvm::ArrayRef<llvm::StringRef>({"da", names::kEmpty, "dc"}));
  Scope scope;
  auto prepared = executor::Executor(executor::standard_runtime()).prepare(*program, scope);
  ASSERT_TRUE(prepared.ok()) << prepared.status().to_string();
  executor::NamedValues feeds;
  feeds["ids"] = tensor_value({3, 1}, {2, 1, 0}, kI32);
  feeds["dout"] = tensor_value({3, 1}, {5, 6, 7});
  std::vector<Value> results;
  const Status status = (*prepared)->run(feeds, {"da", "dc"}, results);
  ASSERT_TRUE(status.ok()) << status.to_string();
  EXPECT_THAT(numbers(results[0]), ElementsAre(0, 0, 7));
  EXPECT_THAT(numbers(results[1]), ElementsAre(5, 0, 0));
}

TEST(FilterByInstag, MapsHaveLodsOfOnes) {
  const auto filtered = [](double wanted) {
    RunOp op("filter_by_instag");
    op.in("Ins", {3, 1}, {10, 11, 12}, DType::kFloat32, Lod({{0, 1, 3}}));
    op.in("Ins_tag", {2, 1}, {4, 5}, kI64, Lod({{0, 1, 2}}));
    op.in("Filter_tag", {1}, {wanted}, kI64).out("Out").out("LossWeight").out("IndexMap");
    op.with_grad({"Ins"}).feed("Out0@GRAD", {wanted == 5 ? 2 : 1, 1}, {1});
    return op;
  };
  RunOp some = filtered(5);
  ASSERT_EQ(some.run_text(), "ok");
  EXPECT_THAT(some.values("IndexMap0"), ElementsAre(0, 1, 2));
  EXPECT_EQ(some.tensor("IndexMap0").lod(), Lod({{0, 1}}));
  EXPECT_EQ(some.tensor("LossWeight0").lod(), Lod({{0, 1}}));
  EXPECT_THAT(some.values("Ins0@GRAD"), ElementsAre(0, 1, 1));
  RunOp none = filtered(9);
  ASSERT_EQ(none.run_text(), "ok");
  EXPECT_THAT(none.values("IndexMap0"), ElementsAre(0, 1, 1));
  EXPECT_THAT(none.values("LossWeight0"), ElementsAre(0));
  EXPECT_THAT(none.values("Ins0@GRAD"), Each(0));
}

TEST(Pool, GlobalAndAdaptiveKeepsTheImage) {
  RunOp op("max_pool2d_with_index");
  op.in("X", {1, 1, 2, 2}, {4, 3, 2, 1}).out("Out").out("Mask").ints("ksize", {1, 1});
  op.attr("global_pooling", true).attr("adaptive", true);
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(op.values("Out0"), ElementsAre(4, 3, 2, 1));
}

// Values and gradients of release 2.6.2: windows of the size of the image that slide beyond it.
TEST(Pool, GlobalAndAdaptiveMaximaLookAtTheRestOfTheImage) {
  RunOp op("pool3d");
  op.in("X", {1, 1, 2, 2, 3}, {11, 7, 4, 0, 2, 9, 1, 6, 8, 5, 10, 3}).out("Out");
  op.attr("pooling_type", "max").attr("global_pooling", true).attr("adaptive", true);
  ASSERT_EQ(op.ints("ksize", {1, 1, 1}).run_text(), "ok");
  EXPECT_THAT(op.values("Out0"), ElementsAre(11, 10, 9, 10, 10, 9, 10, 10, 8, 10, 10, 3));
  RunOp grad("pool3d_grad");
  grad.in("X", {1, 1, 2, 2, 3}, {11, 7, 4, 0, 2, 9, 1, 6, 8, 5, 10, 3});
  grad.in("Out", {1, 1, 2, 2, 3}, {11, 10, 9, 10, 10, 9, 10, 10, 8, 10, 10, 3});
  grad.in("Out@GRAD", {1, 1, 2, 2, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}).out("X@GRAD");
  grad.attr("pooling_type", "max").attr("global_pooling", true).attr("adaptive", true);
  ASSERT_EQ(grad.ints("ksize", {1, 1, 1}).run_text(), "ok");
  EXPECT_THAT(grad.values("X@GRAD0"), ElementsAre(1, 0, 0, 0, 0, 9, 0, 0, 9, 0, 47, 12));
  RunOp strides("pool2d");  // windows that begin beyond the image are empty
  strides.in("X", {1, 1, 3, 4}, {99, 12, 17, 15, 14, 16, 1, 2, 21, 13, 4, 20}).out("Out");
  strides.attr("pooling_type", "max").attr("global_pooling", true).attr("adaptive", true);
  ASSERT_EQ(strides.ints("ksize", {2, 3}).ints("strides", {2, 1}).run_text(), "ok");
  const double none = std::numeric_limits<float>::lowest();
  EXPECT_THAT(strides.values("Out0"),
              ElementsAre(99, 20, 20, 20, 21, 20, 20, 20, none, none, none, none));
}

}  // namespace
}  // namespace millrace::kernels

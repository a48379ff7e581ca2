// Properties of the kernels of ops/tensor that the reference corpus does not cover: the strided
// copy compared with a plain loop, ops that the reference lacks, gradients, empty tensors,
// messages.
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/cpu/strided.h"
#include "tests/kernels/run_op.h"

namespace millrace::kernels {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Values = std::vector<double>;
using Strings = std::vector<std::string>;

Values counted(int64_t count, double first = 0) {
  Values values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), first);
  return values;
}

// Copies element by element.
template <typename U>
void plain_copy(const StridedBox& box, size_t dim, U* to, const U* from) {
  if (dim == box.dims.size()) {
    *to = *from;
    return;
  }
  for (int64_t i = 0; i < box.dims[dim]; ++i)
    plain_copy(box, dim + 1, to + i * box.to[dim], from + i * box.from[dim]);
}

template <typename U>
void expect_copied(const StridedBox& box, int64_t from_size, int64_t from_offset, int64_t to_size) {
  std::vector<U> from(static_cast<size_t>(from_size));
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<U>(i * 2654435761U + 7);
  std::vector<U> found(static_cast<size_t>(to_size), U{});
  std::vector<U> wanted = found;
  plain_copy(box, 0, wanted.data(), from.data() + from_offset);
  CpuDevice device(2);
  copy_strided(device, sizeof(U), box, reinterpret_cast<std::byte*>(found.data()),
               reinterpret_cast<const std::byte*>(from.data() + from_offset));
  EXPECT_TRUE(found == wanted);
}

TEST(Strided, CopiesEveryElementOfEveryKindOfBox) {
  const std::vector<std::pair<Dims, std::vector<size_t>>> forms = {{{7}, {0}},
                                                                   {{33, 70}, {1, 0}},
                                                                   {{2, 19, 3, 24}, {0, 2, 1, 3}},
                                                                   {{5, 1, 9}, {2, 1, 0}},
                                                                   {{3, 17, 40}, {0, 2, 1}},
                                                                   {{4, 3, 2, 5}, {3, 1, 0, 2}},
                                                                   {{300, 301}, {1, 0}},
                                                                   {{0, 4}, {1, 0}},
                                                                   {{64, 8, 8}, {1, 2, 0}}};
  for (const auto& [dims, order] : forms) {
    const Dims strides = row_major(dims);
    StridedBox box;
    for (const size_t axis : order) box.push(dims[axis], 0, strides[axis]);
    box.to = row_major(box.dims);
    const int64_t count =
        std::accumulate(dims.begin(), dims.end(), int64_t{1}, std::multiplies<>());
    expect_copied<uint8_t>(box, count, 0, count);
    expect_copied<uint16_t>(box, count, 0, count);
    expect_copied<uint32_t>(box, count, 0, count);
    expect_copied<uint64_t>(box, count, 0, count);
  }
}

TEST(Strided, CopiesBackwardsAndRepeats) {
  StridedBox backwards;
  backwards.push(3, 10, -10);
  backwards.push(10, 1, 1);
  expect_copied<uint32_t>(backwards, 30, 20, 30);
  StridedBox repeated;
  repeated.push(4, 12, 0);
  repeated.push(3, 4, 1);
  repeated.push(4, 1, 0);
  expect_copied<uint64_t>(repeated, 3, 0, 48);
}

TEST(Strided, SumsWhatFallsOnOneElement) {
  auto from = Tensor::create(DType::kBfloat16, {2, 3});
  auto to = Tensor::create(DType::kBfloat16, {3});
  ASSERT_TRUE(from.ok() && to.ok());
  for (int i = 0; i < 6; ++i) from->data<Bfloat16>()[i] = Bfloat16(static_cast<float>(i));
  StridedBox box;
  box.push(2, 0, 3);
  box.push(3, 1, 1);
  CpuDevice device;
  ASSERT_TRUE(sum_strided(device, box, *to, *from).ok());
  EXPECT_EQ(static_cast<float>(to->data<Bfloat16>()[0]), 3.0F);
  EXPECT_EQ(static_cast<float>(to->data<Bfloat16>()[2]), 7.0F);
}

TEST(Transpose, WorksInPlace) {
  RunOp op("transpose");
  op.in("X", {2, 2}, {1, 2, 3, 4}).ints("axis", {1, 0}).out_in_place("Out", "X");
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(op.values("X0"), ElementsAre(1, 3, 2, 4));
}

TEST(Reshape, SolvesAShapeFromTensors) {
  RunOp op("reshape2");
  op.in("X", {2, 3, 4}, counted(24)).in("Shape", {3}, {0, -1, 2}, kI32).out("Out").out("XShape");
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(op.tensor("Out0").dims(), ElementsAre(2, 6, 2));
  RunOp wrong("reshape2");
  wrong.in("X", {2, 3}, counted(6)).in("Shape", {2}, {4, -1}, kI32).out("Out");
  EXPECT_THAT(wrong.run_text(), HasSubstr("does not fit the 6 elements of X f32 [2, 3]"));
}

TEST(OlderSpellings, SqueezeUnsqueezeFlatten) {
  RunOp squeeze("squeeze");
  squeeze.in("X", {1, 2, 1}, {5, 6}).ints("axes", {0}).out("Out").with_grad({"X"});
  squeeze.feed("Out0@GRAD", {2, 1}, {1, 2});
  ASSERT_EQ(squeeze.run_text(), "ok");
  EXPECT_THAT(squeeze.tensor("Out0").dims(), ElementsAre(2, 1));
  EXPECT_THAT(squeeze.tensor("X0@GRAD").dims(), ElementsAre(1, 2, 1));
  RunOp unsqueeze("unsqueeze");
  unsqueeze.in("X", {2}, {5, 6}).in("AxesTensor", {2}, {0, 2}, kI32).out("Out");
  ASSERT_EQ(unsqueeze.run_text(), "ok");
  EXPECT_THAT(unsqueeze.tensor("Out0").dims(), ElementsAre(1, 2, 1));
  RunOp flatten("flatten");
  flatten.in("X", {2, 3, 4}, counted(24)).attr("axis", 2).out("Out");
  ASSERT_EQ(flatten.run_text(), "ok");
  EXPECT_THAT(flatten.tensor("Out0").dims(), ElementsAre(6, 4));
}

TEST(OneHot, KeepsLodAndChecksClasses) {
  const auto make = [](bool allow) {
    RunOp op("one_hot");
    op.in("X", {2, 1}, {1, 3}, kI64, Lod({{0, 1, 2}})).attr("depth", 3).attr("dtype", 5);
    op.attr("allow_out_of_range", allow).out("Out");
    return op;
  };
  RunOp allowed = make(true);
  ASSERT_EQ(allowed.run_text(), "ok");
  EXPECT_THAT(allowed.values("Out0"), ElementsAre(0, 1, 0, 0, 0, 0));
  EXPECT_EQ(allowed.tensor("Out0").lod().to_string(), "[[0, 1, 2]]");
  EXPECT_THAT(make(false).run_text(), HasSubstr("X has class 3 at 1, expected one of [0, 3)"));
}

TEST(ExpandAs, RepeatsToTheTarget) {
  RunOp op("expand_as");
  op.in("X", {2, 1}, {1, 2}, kF64).in("target_tensor", {4, 2}, {0}, kF64).out("Out");
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(op.values("Out0"), ElementsAre(1, 1, 2, 2, 1, 1, 2, 2));
  EXPECT_LT(op.gradient_error({"X"}, "Out0"), 1e-6);
}

TEST(Diag, PutsAVectorOnTheDiagonal) {
  RunOp op("diag");
  op.in("Diagonal", {2}, {3, 4}).out("Out");
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(op.values("Out0"), ElementsAre(3, 0, 0, 4));
}

TEST(PadConstantLike, PadsAtTheEnd) {
  RunOp op("pad_constant_like");
  op.in("X", {2, 3}, {0}, kF64).in("Y", {1, 2}, {7, 8}, kF64).attr("pad_value", 9.0F).out("Out");
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(op.values("Out0"), ElementsAre(7, 8, 9, 9, 9, 9));
  EXPECT_LT(op.gradient_error({"Y"}, "Out0"), 1e-6);
}

RunOp pad2d(const char* mode, const char* format, const Dims& dims) {
  RunOp op("pad2d");
  op.in("X", dims, counted(dims[0] * dims[1] * dims[2] * dims[3], 1), kF64);
  op.ints("paddings", {1, 0, 2, 1}).attr("mode", mode).attr("data_format", format);
  op.attr("pad_value", 0.5F).out("Out");
  return op;
}

TEST(Pad2d, HasThreeModesAndTwoLayouts) {
  RunOp constant = pad2d("constant", "NCHW", {1, 1, 2, 2});
  ASSERT_EQ(constant.run_text(), "ok");
  EXPECT_THAT(constant.values("Out0"),
              ElementsAre(.5, .5, .5, .5, .5, .5, .5, 1, 2, .5, .5, .5, 3, 4, .5));
  RunOp edge = pad2d("edge", "NHWC", {1, 2, 2, 1});
  ASSERT_EQ(edge.run_text(), "ok");
  EXPECT_THAT(edge.values("Out0"), ElementsAre(1, 1, 1, 2, 2, 1, 1, 1, 2, 2, 3, 3, 3, 4, 4));
  RunOp reflect = pad2d("reflect", "NCHW", {1, 1, 2, 3});
  ASSERT_EQ(reflect.run_text(), "ok");
  EXPECT_THAT(reflect.values("Out0"),
              ElementsAre(6, 5, 4, 5, 6, 5, 3, 2, 1, 2, 3, 2, 6, 5, 4, 5, 6, 5));
  for (const char* const mode : {"constant", "edge", "reflect"}) {
    EXPECT_LT(pad2d(mode, "NHWC", {1, 2, 3, 2}).gradient_error({"X"}, "Out0"), 1e-6) << mode;
  }
  EXPECT_THAT(pad2d("reflect", "NCHW", {1, 1, 2, 2}).run_text(), HasSubstr("cannot be padded"));
}

TEST(RandomCrop, TakesAWindowOfEachInstance) {
  RunOp op("random_crop");
  op.in("X", {3, 5, 6}, counted(90)).in("Seed", {1}, {11}, kI64).ints("shape", {2, 3});
  op.out("Out").out("SeedOut");
  ASSERT_EQ(op.run_text(), "ok");
  const Values out = op.values("Out0");
  ASSERT_EQ(out.size(), 18U);
  for (size_t n = 0; n < 3; ++n) {
    const double first = out[n * 6];
    EXPECT_GE(first, static_cast<double>(n) * 30);
    EXPECT_LE(first + 8, static_cast<double>(n) * 30 + 29);
    EXPECT_EQ(out[n * 6 + 2], first + 2);
    EXPECT_EQ(out[n * 6 + 3], first + 6);
  }
  EXPECT_NE(op.values("SeedOut0")[0], 11);
}

TEST(Gather, GradientAlongAnAxisBelongsToItsBatch) {
  RunOp op("gather");
  op.in("X", {2, 3, 2}, counted(12), kF64).in("Index", {3}, {2, 0, 2}, kI64).attr("axis", 1);
  op.out("Out");
  EXPECT_LT(op.gradient_error({"X"}, "Out0"), 1e-6);
}

TEST(Gather, ChecksTheIndex) {
  RunOp op("gather");
  op.in("X", {3, 2}, {1}).in("Index", {2}, {0, -1}, kI32).out("Out");
  EXPECT_THAT(op.run_text(), HasSubstr("Index has -1 at 1, expected a number in [0, 3)"));
  RunOp nd("gather_nd");
  nd.in("X", {3, 2}, {1}).in("Index", {1, 2}, {2, 2}, kI64).out("Out");
  EXPECT_THAT(nd.run_text(), HasSubstr("Index has coordinate 2 in dim 1 at row 0"));
  RunOp scatter("scatter");
  scatter.in("X", {3, 2}, {1}).in("Ids", {1}, {3}, kI64).in("Updates", {1, 2}, {1}).out("Out");
  EXPECT_THAT(scatter.run_text(), HasSubstr("Ids has 3 at 0, expected a number in [0, 3)"));
}

TEST(Split, CountsANegativeAxisFromTheEnd) {
  RunOp op("split");
  op.in("X", {2, 3}, counted(6)).ints("sections", {1, -1}).attr("axis", -1).out("Out", 2);
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(op.values("Out0"), ElementsAre(0, 3));
  EXPECT_THAT(op.values("Out1"), ElementsAre(1, 2, 4, 5));
}

TEST(Slice, TakesBoundsFromTensors) {
  RunOp op("slice");
  op.in("Input", {4, 2}, counted(8)).ints("axes", {0}).in("StartsTensor", {1}, {-3}, kI64);
  op.in("EndsTensor", {1}, {100}, kI64).out("Out");
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(op.values("Out0"), ElementsAre(2, 3, 4, 5, 6, 7));
}

TEST(StridedSlice, OfOneElementHasOneDim) {
  for (const bool from_tensor : {false, true}) {
    RunOp op("strided_slice");
    op.in("Input", {4}, counted(4)).ints("axes", {0}).ints("ends", {3}).ints("strides", {1});
    if (from_tensor) op.in("StartsTensor", {1}, {2}, kI64);
    op.ints("starts", {2}).ints("decrease_axis", {0}).out("Out");
    ASSERT_EQ(op.run_text(), "ok");
    EXPECT_THAT(op.tensor("Out0").dims(), ElementsAre(1)) << from_tensor;
    EXPECT_THAT(op.values("Out0"), ElementsAre(2)) << from_tensor;
  }
}

TEST(Gradients, AgreeWithFiniteDifferences) {
  RunOp strided("strided_slice");
  strided.in("Input", {5, 3}, counted(15), kF64).ints("axes", {0, 1}).ints("starts", {-1, 0});
  strided.ints("ends", {-6, 3}).ints("strides", {-2, 2}).out("Out");
  EXPECT_LT(strided.gradient_error({"Input"}, "Out0"), 1e-6);
  RunOp tile("tile");
  tile.in("X", {2, 3}, counted(6), kF64).ints("repeat_times", {2, 1, 3}).out("Out");
  EXPECT_LT(tile.gradient_error({"X"}, "Out0"), 1e-6);
  for (const char* const reduce : {"assign", "add", "mul", "multiply", "mean", "amin", "amax"}) {
    for (const bool include_self : {true, false}) {
      RunOp put("put_along_axis");
      put.in("Input", {2, 3}, counted(6), kF64).in("Index", {2, 2}, {0, 0, 2, 1}, kI64);
      put.in("Value", {2, 2}, {1.5, 2.5, 3.5, 4.5}, kF64).attr("Axis", 1);
      put.attr("Reduce", std::string(reduce)).attr("Include_self", include_self).out("Result");
      EXPECT_LT(put.gradient_error({"Input", "Value"}, "Result0"), 1e-6) << reduce << include_self;
    }
  }
  RunOp pad("pad");
  pad.in("X", {3, 2}, counted(6), kF64).ints("paddings", {-1, 2, 1, 0}).out("Out");
  EXPECT_LT(pad.gradient_error({"X"}, "Out0"), 1e-6);
  RunOp roll("roll");
  roll.in("X", {3, 4}, counted(12), kF64).attr("shifts", std::vector<int64_t>{5, -1});
  roll.attr("axis", std::vector<int64_t>{0, 1}).out("Out");
  EXPECT_LT(roll.gradient_error({"X"}, "Out0"), 1e-6);
}

TEST(Empty, TensorsWithoutElementsPass) {
  RunOp concat("concat");
  concat.in("X", {0, 2}, {}).in("X", {2, 2}, {1, 2, 3, 4}).attr("axis", 0).out("Out");
  ASSERT_EQ(concat.run_text(), "ok");
  EXPECT_THAT(concat.values("Out0"), ElementsAre(1, 2, 3, 4));
  RunOp gather("gather");
  gather.in("X", {3, 2}, {1}).in("Index", {0}, {}, kI64).out("Out");
  ASSERT_EQ(gather.run_text(), "ok");
  EXPECT_THAT(gather.tensor("Out0").dims(), ElementsAre(0, 2));
  RunOp top("arg_max");
  top.in("X", {2, 0}, {}).attr("axis", int64_t{1}).out("Out");
  EXPECT_THAT(top.run_text(), HasSubstr("dim 1 of X f32 [2, 0] has no elements"));
}

TEST(Order, EqualElementsStayInOrderAndNanIsLargest) {
  RunOp op("argsort");
  op.in("X", {5}, {2, std::nan(""), 1, 2, 1}).out("Out").out("Indices");
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(op.values("Indices0"), ElementsAre(2, 4, 0, 3, 1));
  RunOp many("top_k");
  many.in("X", {2}, {1, 2}).in("K", {1}, {3}, kI32).out("Out").out("Indices");
  EXPECT_THAT(many.run_text(), HasSubstr("k is 3, expected a number from 1 to 2"));
}

TEST(Unique, ComparesSlicesAlongAnAxis) {
  RunOp op("unique");
  op.in("X", {3, 2}, {5, 6, 1, 2, 5, 6}, kI64).ints("axis", {0}).attr("is_sorted", true);
  op.attr("dtype", 3).out("Out").out("Index").out("Counts");
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(op.values("Out0"), ElementsAre(1, 2, 5, 6));
  EXPECT_THAT(op.values("Index0"), ElementsAre(1, 0, 1));
  EXPECT_THAT(op.values("Counts0"), ElementsAre(1, 2));
}

TEST(Multiplex, ChecksIds) {
  RunOp op("multiplex");
  op.in("X", {2, 1}, {1, 2}).in("X", {2, 1}, {3, 4}).in("Ids", {2, 1}, {1, 2}, kI32).out("Out");
  EXPECT_THAT(op.run_text(), HasSubstr("Ids has 2 at 1, expected a number in [0, 2)"));
}

// Rows of the same number of bytes in all would be mixed up.
TEST(Multiplex, OperandsAndIdsMustFit) {
  const auto refusal = [](const Dims& second, DType dtype, const Dims& ids) {
    RunOp op("multiplex");
    op.in("X", {2, 3}, {1}).in("X", second, {3}, dtype).in("Ids", ids, {0}, kI32).out("Out");
    return op.run_text();
  };
  EXPECT_EQ(refusal({2, 3}, DType::kFloat32, {2, 1}), "ok");
  EXPECT_THAT(refusal({3, 2}, DType::kFloat32, {2, 1}), HasSubstr("type and shape of X[0]"));
  EXPECT_THAT(refusal({2, 3}, kI32, {2, 1}), HasSubstr("type and shape of X[0]"));
  EXPECT_THAT(refusal({2, 3}, DType::kFloat32, {3, 1}), HasSubstr("a number for each row"));
}

// Programs may give a shape more than once: as an attribute, as a tensor, and as a list of tensors.
// The precedence is that of the original 2.6.2.
TEST(Shapes, AreThoseOfTheTensorBeforeTheList) {
  const auto with_both = [](const char* type, const char* attr, const char* tensor,
                            const char* list) {
    RunOp op(type);
    op.in("X", {1, 2}, {1, 2}).in(tensor, {2}, {4, 2}, kI32);
    op.in(list, {1}, {3}, kI32).in(list, {1}, {2}, kI32).ints(attr, {2, 2}).out("Out");
    EXPECT_EQ(op.run_text(), "ok") << type;
    return dims(op.value("Out0"));
  };
  EXPECT_THAT(with_both("expand_v2", "shape", "Shape", "expand_shapes_tensor"), ElementsAre(4, 2));
  EXPECT_THAT(with_both("expand", "expand_times", "ExpandTimes", "expand_times_tensor"),
              ElementsAre(4, 4));
  EXPECT_THAT(with_both("tile", "repeat_times", "RepeatTimes", "repeat_times_tensor"),
              ElementsAre(4, 4));

  RunOp fill("fill_constant");
  fill.in("ShapeTensor", {2}, {1, 4}, kI32);
  fill.in("ShapeTensorList", {1}, {3}, kI32).in("ShapeTensorList", {1}, {1}, kI32);
  fill.ints("shape", {2, 2}).attr("value", 1.5F).attr("dtype", 5).out("Out");
  ASSERT_EQ(fill.run_text(), "ok");
  EXPECT_THAT(dims(fill.value("Out0")), ElementsAre(1, 4));

  RunOp slice("slice");
  slice.in("Input", {6, 1}, counted(6)).in("StartsTensor", {1}, {1}, kI32);
  slice.in("StartsTensorList", {1}, {2}, kI32).in("EndsTensor", {1}, {4}, kI32);
  slice.ints("axes", {0}).ints("starts", {0}).ints("ends", {2}).ints("infer_flags", {-1});
  slice.out("Out");
  ASSERT_EQ(slice.run_text(), "ok");
  EXPECT_THAT(slice.values("Out0"), ElementsAre(1, 2, 3));
}

TEST(Shapes, AreThoseOfTheListWhereOpsWantIt) {
  RunOp reshape("reshape2");
  reshape.in("X", {3, 4}, counted(12)).in("Shape", {2}, {4, 3}, kI32);
  reshape.in("ShapeTensor", {1}, {6}, kI32).in("ShapeTensor", {1}, {2}, kI32);
  reshape.ints("shape", {2, 6}).out("Out").out("XShape");
  ASSERT_EQ(reshape.run_text(), "ok");
  EXPECT_THAT(dims(reshape.value("Out0")), ElementsAre(6, 2));

  // and the attribute is used before the tensor
  const auto drawn = [](const std::vector<int32_t>& attr, bool list) {
    RunOp op("gaussian_random");
    op.in("ShapeTensor", {2}, {3, 1}, kI32);
    if (list) op.in("ShapeTensorList", {1}, {1}, kI32).in("ShapeTensorList", {1}, {5}, kI32);
    op.ints("shape", attr).attr("seed", 1).attr("dtype", 5).out("Out");
    EXPECT_EQ(op.run_text(), "ok");
    return dims(op.value("Out0"));
  };
  EXPECT_THAT(drawn({2, 2}, true), ElementsAre(1, 5));
  EXPECT_THAT(drawn({2, 2}, false), ElementsAre(2, 2));
  EXPECT_THAT(drawn({}, false), ElementsAre(3, 1));
}

TEST(ExpandAs, TakesTheShapeOfYWhereTheAttributeLeavesADimOpen) {
  const auto expanded = [](const std::vector<int32_t>& target) {
    RunOp op("expand_as_v2");
    op.in("X", {1, 3}, {1, 2, 3}).in("Y", {4, 3}, {0}).ints("target_shape", target).out("Out");
    EXPECT_EQ(op.run_text(), "ok");
    return dims(op.value("Out0"));
  };
  EXPECT_THAT(expanded({-1, 3}), ElementsAre(4, 3));
  EXPECT_THAT(expanded({2, -1}), ElementsAre(4, 3));
  EXPECT_THAT(expanded({2, 3}), ElementsAre(2, 3));
  EXPECT_THAT(expanded({}), ElementsAre(4, 3));
}

}  // namespace
}  // namespace millrace::kernels

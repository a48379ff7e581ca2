#include <gtest/gtest.h>

#include "tests/ops/one_op.h"

namespace millrace::ops {
namespace {

constexpr DType kBool = DType::kBool;

TEST(Reshape, SolvesAndCopiesDims) {
  EXPECT_EQ(x_out("reshape", {2, 3, 4}).ints("shape", {0, -1}).infer(), "Out0 f32[2, 12]");
  EXPECT_EQ(x_out("reshape", {-1, 3, 4}).ints("shape", {0, -1}).infer(), "Out0 f32[-1, 12]");
  EXPECT_EQ(x_out("reshape", {-1, 3, 4}).ints("shape", {-1, 12}).infer(), "Out0 f32[-1, 12]");
  EXPECT_EQ(x_out("reshape", {-1, 64, 1, 40}).ints("shape", {0, 0, -1}).infer(),
            "Out0 f32[-1, 64, 40]");
  EXPECT_EQ(x_out("reshape", {6}).ints("shape", {}).infer(),
            "error: X [6] does not have the number of elements of shape []");
  EXPECT_EQ(x_out("reshape", {1}).ints("shape", {}).infer(), "Out0 f32[]");
  EXPECT_EQ(x_out("reshape2", {2, 3}).out("XShape").ints("shape", {6}).infer(),
            "Out0 f32[6]; XShape0 f32[0, 2, 3]");
}

TEST(Reshape, KeepsLodOnlyWithTheRows) {
  EXPECT_EQ(OneOp("reshape").in("X", {-1, 4}, kF32, 1).out("Out").ints("shape", {0, 2, 2}).infer(),
            "Out0 f32[-1, 2, 2] lod1");
  EXPECT_EQ(OneOp("reshape").in("X", {3, 4}, kF32, 1).out("Out").ints("shape", {12}).infer(),
            "Out0 f32[12]");
}

TEST(Reshape, RejectsImpossibleShapes) {
  EXPECT_EQ(x_out("reshape", {2, 3}).ints("shape", {4, -1}).infer(),
            "error: X [2, 3] does not have the number of elements of shape [4, -1]");
  EXPECT_EQ(x_out("reshape", {2, 3}).ints("shape", {-1, -1}).infer(),
            "error: attribute 'shape' has -1 at 0 and 1, expected at most one");
  EXPECT_EQ(x_out("reshape", {6}).ints("shape", {6, 0}).infer(),
            "error: attribute 'shape' has 0 at 1, but X [6] has no such dim");
  EXPECT_EQ(x_out("reshape", {6}).ints("shape", {-2}).infer(),
            "error: attribute 'shape' has -2 at 0, expected a size, 0 or -1");
}

TEST(Reshape, TakesShapesFromTensors) {
  EXPECT_EQ(x_out("reshape2", {2, 3}).in("Shape", {4}, kI32).infer(), "Out0 f32[-1, -1, -1, -1]");
  EXPECT_EQ(x_out("reshape2", {6, 2})
                .in("ShapeTensor", {1}, kI32)
                .in("ShapeTensor", {1}, kI32)
                .ints("shape", {-1, 4})
                .infer(),
            "Out0 f32[-1, 4]");
  EXPECT_EQ(OneOp("reshape").in_unknown("X").out("Out").ints("shape", {4}).infer(), "Out0 ?");
}

TEST(XShape, GivesTheGradientItsShape) {
  for (const char* const type : {"reshape2_grad", "squeeze2_grad", "unsqueeze2_grad",
                                 "flatten2_grad", "flatten_contiguous_range_grad"}) {
    EXPECT_EQ(OneOp(type).in("Out@GRAD", {12}).in("XShape", {0, -1, 3, 4}).out("X@GRAD").infer(),
              "X@GRAD0 f32[-1, 3, 4]")
        << type;
  }
  EXPECT_EQ(OneOp("transpose2_grad")
                .in("Out@GRAD", {4, 2, 3})
                .out("X@GRAD")
                .ints("axis", {2, 0, 1})
                .infer(),
            "X@GRAD0 f32[2, 3, 4]");
  EXPECT_EQ(x_out("reshape2", {6}).out("XShape").grad(),
            "reshape2_grad(Out@GRAD=Out0@GRAD; XShape=XShape0 -> X@GRAD=X0@GRAD)");
}

TEST(Transpose, PermutesDims) {
  EXPECT_EQ(x_out("transpose", {2, -1, 4}).ints("axis", {1, 2, 0}).infer(), "Out0 f32[-1, 4, 2]");
  EXPECT_EQ(x_out("transpose", {2, 3}).ints("axis", {0}).infer(),
            "error: attribute 'axis' must list the 2 dims of X [2, 3], found [0]");
  EXPECT_EQ(x_out("transpose", {2, 3}).ints("axis", {0, 0}).infer(),
            "error: attribute 'axis' names dim 0 twice");
  EXPECT_EQ(x_out("transpose", {2, 3}).ints("axis", {0, 2}).infer(),
            "error: attribute 'axis' has axis 2, which is outside of [-2, 2) for rank 2");
}

TEST(Squeeze, DropsDimsOfOne) {
  EXPECT_EQ(x_out("squeeze", {1, 3, 1}).ints("axes", {}).infer(), "Out0 f32[3]");
  EXPECT_EQ(x_out("squeeze", {1, 3, 1}).ints("axes", {-1}).infer(), "Out0 f32[1, 3]");
  EXPECT_EQ(x_out("squeeze", {-1, 3, -1}).ints("axes", {2}).infer(), "Out0 f32[-1, 3]");
  EXPECT_EQ(x_out("squeeze", {1, 3}).ints("axes", {5}).infer(),
            "error: attribute 'axes' has axis 5, which is outside of [-2, 2) for rank 2");
}

TEST(Unsqueeze, InsertsDimsOfOne) {
  EXPECT_EQ(x_out("unsqueeze", {2, 3}).ints("axes", {0, 2}).infer(), "Out0 f32[1, 2, 1, 3]");
  EXPECT_EQ(x_out("unsqueeze", {2, 3}).ints("axes", {-1}).infer(), "Out0 f32[2, 3, 1]");
  EXPECT_EQ(x_out("unsqueeze2", {2}).in("AxesTensor", {2}, kI32).infer(), "Out0 f32[-1, -1, -1]");
  EXPECT_EQ(x_out("unsqueeze", {2}).ints("axes", {3}).infer(),
            "error: attribute 'axes' has axis 3, which is outside of [-2, 2) for rank 2");
}

TEST(Flatten, MergesDims) {
  EXPECT_EQ(x_out("flatten", {2, 3, 4}).attr("axis", 2).infer(), "Out0 f32[6, 4]");
  EXPECT_EQ(x_out("flatten2", {-1, 3, 4}).attr("axis", 0).infer(), "Out0 f32[1, -1]");
  for (const char* const type : {"flatten", "flatten2"})
    EXPECT_EQ(x_out(type, {}).attr("axis", 0).infer(), "Out0 f32[1]");
  EXPECT_EQ(x_out("flatten", {2, 3}).attr("axis", 3).infer(),
            "error: attribute 'axis' is 3, which is outside of [-2, 2] for X [2, 3]");
  EXPECT_EQ(x_out("flatten_contiguous_range", {-1, 3, 4, 5})
                .attr("start_axis", 1)
                .attr("stop_axis", -1)
                .infer(),
            "Out0 f32[-1, 60]");
  EXPECT_EQ(
      x_out("flatten_contiguous_range", {2, 3}).attr("start_axis", 1).attr("stop_axis", 0).infer(),
      "error: attribute 'stop_axis' (0) is before 'start_axis' (1) in X [2, 3]");
}

TEST(Concat, AddsUpTheAxis) {
  EXPECT_EQ(x_out("concat", {2, 3}).in("X", {2, 4}).attr("axis", 1).infer(), "Out0 f32[2, 7]");
  EXPECT_EQ(x_out("concat", {-1, 3}).in("X", {2, -1}).attr("axis", -1).infer(), "Out0 f32[2, -1]");
  EXPECT_EQ(x_out("concat", {2, 3}).in("X", {2, 3}).in("AxisTensor", {1}, kI32).infer(),
            "Out0 f32[-1, -1]");
  EXPECT_EQ(x_out("concat", {2, 3}).in("X", {3, 3}).attr("axis", 1).infer(),
            "error: X[1] [3, 3] must agree with the others in dim 0: expected 2, found 3");
  EXPECT_EQ(x_out("concat", {2, 3}).in("X", {2}).attr("axis", 0).infer(),
            "error: X[1] [2] and X[0] must have the same rank 2");
  EXPECT_EQ(x_out("concat", {2, 3}).attr("axis", 2).infer(),
            "error: attribute 'axis' has axis 2, which is outside of [-2, 2) for rank 2");
}

TEST(Concat, KeepsPlacesOfUnwantedGradients) {
  EXPECT_EQ(x_out("concat", {2}).in("X", {2}).in("X", {2}).grad({"X1"}),
            "concat_grad(Out@GRAD=Out0@GRAD; X=X0,X1,X2 -> X@GRAD=X0@GRAD,@EMPTY@,X2@GRAD)");
}

TEST(Split, CutsTheAxis) {
  EXPECT_EQ(OneOp("split").in("X", {6, 4}).out("Out", 2).attr("num", 2).infer(),
            "Out0 f32[3, 4]; Out1 f32[3, 4]");
  EXPECT_EQ(OneOp("split")
                .in("X", {6, 4})
                .out("Out", 2)
                .ints("sections", {1, -1})
                .attr("axis", -1)
                .infer(),
            "Out0 f32[6, 1]; Out1 f32[6, 3]");
  EXPECT_EQ(OneOp("split").in("X", {-1, 4}).out("Out", 2).attr("num", 2).infer(),
            "Out0 f32[-1, 4]; Out1 f32[-1, 4]");
  EXPECT_EQ(OneOp("split").in("X", {5}).out("Out", 2).attr("num", 2).infer(),
            "error: attribute 'num' (2) does not divide the dim of X of size 5");
  EXPECT_EQ(OneOp("split").in("X", {5}).out("Out", 2).ints("sections", {2, 2}).infer(),
            "error: attribute 'sections' [2, 2] must add up to the dim of X of size 5, found 4");
  EXPECT_EQ(OneOp("split").in("X", {6}).out("Out", 2).attr("num", 3).infer(),
            "error: Out must have 3 vars, one for each part, found 2");
  EXPECT_EQ(OneOp("split").in("X", {6}).out("Out", 2).attr("num", 2).grad(),
            "concat(X=Out0@GRAD,Out1@GRAD -> Out=X0@GRAD)");
}

TEST(Split, WantsToKnowHowManyParts) {
  EXPECT_EQ(OneOp("split").in("X", {6, 4}).out("Out", 2).attr("num", 0).infer(),
            "error: attribute 'num' must be at least 1 where 'sections' is empty, found 0: 'Out' "
            "has 2 vars");
  EXPECT_EQ(OneOp("split").in("X", {6, 4}).in("AxisTensor", {1}).out("Out", 2).infer(),
            "error: attribute 'num' must be at least 1 where 'sections' is empty, found 0: 'Out' "
            "has 2 vars");
}

TEST(Stack, AddsADim) {
  EXPECT_EQ(OneOp("stack").in("X", {2, -1}).in("X", {2, 3}).out("Y").attr("axis", -1).infer(),
            "Y0 f32[2, 3, 2]");
  EXPECT_EQ(OneOp("stack").in("X", {2}).in("X", {3}).out("Y").infer(),
            "error: X[1] must have the shape of the others [2], found [3]");
  EXPECT_EQ(OneOp("unstack").in("X", {2, 3}).out("Y", 3).attr("axis", 1).infer(),
            "Y0 f32[2]; Y1 f32[2]; Y2 f32[2]");
  EXPECT_EQ(OneOp("unstack").in("X", {2, 3}).out("Y", 2).attr("axis", 1).infer(),
            "error: dim 1 of X [2, 3] must be the number of outputs, found 2");
  EXPECT_EQ(OneOp("unstack_grad").in("Y@GRAD", {4}).in("Y@GRAD", {4}).out("X@GRAD").infer(),
            "X@GRAD0 f32[2, 4]");
  EXPECT_EQ(OneOp("stack_grad").in("Y@GRAD", {2, 4}).out("X@GRAD", 2).infer(),
            "X@GRAD0 f32[4]; X@GRAD1 f32[4]");
  EXPECT_EQ(OneOp("unbind").in("X", {2, 3}).out("Out", 2).grad(),
            "stack(X=Out0@GRAD,Out1@GRAD -> Y=X0@GRAD)");
}

OneOp slice(const Dims& dims, std::vector<int32_t> axes, std::vector<int32_t> starts,
            std::vector<int32_t> ends) {
  OneOp op("slice");
  op.in("Input", dims).out("Out");
  op.ints("axes", std::move(axes)).ints("starts", std::move(starts)).ints("ends", std::move(ends));
  return op;
}

TEST(Slice, ClampsBounds) {
  EXPECT_EQ(slice({5, 4}, {0, 1}, {1, -2}, {100, -1}).infer(), "Out0 f32[4, 1]");
  EXPECT_EQ(slice({-1, 4}, {0, 1}, {0, 3}, {1, 1}).infer(), "Out0 f32[-1, 0]");
  EXPECT_EQ(slice({5, 4}, {0}, {1}, {2}).ints("decrease_axis", {0}).infer(), "Out0 f32[4]");
  EXPECT_EQ(slice({5}, {0}, {1}, {2}).ints("decrease_axis", {0}).infer(), "Out0 f32[]");
  EXPECT_EQ(slice({5, 4}, {0}, {1}, {3}).ints("decrease_axis", {0}).infer(),
            "error: attribute 'decrease_axis' drops dim 0 of [2, 4], expected size 1, found 2");
  EXPECT_EQ(
      slice({5, 4}, {0, 1}, {1}, {3}).infer(),
      "error: attributes 'axes', 'starts' and 'ends' must have the same length, found 2, 1 and 1");
  EXPECT_EQ(slice({5}, {1}, {0}, {1}).infer(),
            "error: attribute 'axes' has axis 1, which is outside of [-1, 1) for rank 1");
}

TEST(Slice, LeavesBoundsOfTensorsOpen) {
  EXPECT_EQ(slice({5, 4}, {0, 1}, {-1, 0}, {-1, 2})
                .in("StartsTensorList", {1}, kI32)
                .in("StartsTensorList", {1}, kI32)
                .ints("infer_flags", {-1, 1})
                .infer(),
            "Out0 f32[-1, 2]");
  EXPECT_EQ(slice({5, 4}, {0}, {}, {}).in("StartsTensor", {1}).in("EndsTensor", {1}).infer(),
            "Out0 f32[-1, 4]");
  EXPECT_EQ(slice({5}, {0}, {0}, {1}).grad(),
            "slice_grad(Input=Input0; Out@GRAD=Out0@GRAD -> Input@GRAD=Input0@GRAD)");
}

TEST(StridedSlice, CountsSteps) {
  const auto sliced = [](int start, int end, int stride) {
    return OneOp("strided_slice")
        .in("Input", {7})
        .out("Out")
        .ints("axes", {0})
        .ints("starts", {start})
        .ints("ends", {end})
        .ints("strides", {stride})
        .infer();
  };
  EXPECT_EQ(sliced(0, 6, 2), "Out0 f32[3]");
  EXPECT_EQ(sliced(0, 7, 2), "Out0 f32[4]");
  EXPECT_EQ(sliced(-1, -8, -2), "Out0 f32[4]");
  EXPECT_EQ(sliced(6, -1, -3), "Out0 f32[3]");
  EXPECT_EQ(sliced(4, 2, 1), "Out0 f32[0]");
  EXPECT_EQ(sliced(0, 1, 0), "error: attribute 'strides' must not have 0 at 0");
}

TEST(StridedSlice, OfOneElementHasOneDim) {
  const auto one = [](const char* type) {
    OneOp op(type);
    op.in("Input", {7}).out("Out").ints("axes", {0}).ints("starts", {2}).ints("ends", {3});
    return op.ints("decrease_axis", {0}).infer();
  };
  EXPECT_EQ(one("strided_slice"), "Out0 f32[1]");
  EXPECT_EQ(one("slice"), "Out0 f32[]");
}

TEST(Crop, CutsABox) {
  EXPECT_EQ(x_out("crop", {4, 5}).ints("offsets", {1, 2}).ints("shape", {2, -1}).infer(),
            "Out0 f32[2, 3]");
  EXPECT_EQ(x_out("crop_tensor", {4, 5}).in("Shape", {2}, kI32).infer(), "Out0 f32[-1, -1]");
  EXPECT_EQ(x_out("crop", {4, 5}).ints("offsets", {3, 0}).ints("shape", {2, 5}).infer(),
            "error: dim 0 of X [4, 5] is too small for offset 3 and size 2");
}

TEST(Expand, RepeatsOrBroadcasts) {
  EXPECT_EQ(x_out("expand", {2, -1}).ints("expand_times", {3, 2}).infer(), "Out0 f32[6, -1]");
  EXPECT_EQ(
      x_out("expand", {2, 3}).ints("expand_times", {3}).infer(),
      "error: attribute 'expand_times' must have an entry for each dim of X [2, 3], found [3]");
  EXPECT_EQ(x_out("tile", {3}).ints("repeat_times", {2, 2}).infer(), "Out0 f32[2, 6]");
  EXPECT_EQ(x_out("tile", {2, 3}).ints("repeat_times", {2}).infer(), "Out0 f32[2, 6]");
  EXPECT_EQ(x_out("expand_v2", {1, 3}).ints("shape", {2, 4, -1}).infer(), "Out0 f32[2, 4, 3]");
  EXPECT_EQ(x_out("expand_v2", {2, 3}).ints("shape", {3, 3}).infer(),
            "error: dim 0 of X [2, 3] must be 1 or that of attribute 'shape' [3, 3]");
  EXPECT_EQ(x_out("expand_as_v2", {1, 3}).in("Y", {4, 3}).infer(), "Out0 f32[4, 3]");
  EXPECT_EQ(x_out("expand_as", {2, 3}).in("target_tensor", {4, 3}, kI64).infer(), "Out0 f32[4, 3]");
  EXPECT_EQ(x_out("expand_as", {2, 3}).in("target_tensor", {3, 3}).infer(),
            "error: dim 0 of target_tensor [3, 3] must be a multiple of that of X [2, 3]");
}

TEST(Gather, PicksSlices) {
  EXPECT_EQ(x_out("gather", {5, 3}).in("Index", {2, 1}, kI64).infer(), "Out0 f32[2, 3]");
  EXPECT_EQ(x_out("gather", {5, 3}).in("Index", {-1}, kI64).attr("axis", 1).infer(),
            "Out0 f32[5, -1]");
  EXPECT_EQ(x_out("gather", {5, 3}).in("Index", {}, kI64).infer(), "Out0 f32[3]");
  EXPECT_EQ(x_out("gather", {5, 3}).in("Index", {2, 2}, kI64).infer(),
            "error: Index must have rank 0 or 1 or be [n, 1], found [2, 2]");
  EXPECT_EQ(x_out("gather_nd", {5, 3, 2}).in("Index", {4, 2}, kI64).infer(), "Out0 f32[4, 2]");
  EXPECT_EQ(x_out("gather_nd", {5}).in("Index", {4, 2}, kI64).infer(),
            "error: the last dim of Index [4, 2] must be at most the rank of X [5]");
  EXPECT_EQ(x_out("index_select", {5, 3}).in("Index", {4}, kI64).attr("dim", -1).infer(),
            "Out0 f32[5, 4]");
  EXPECT_EQ(x_out("index_sample", {5, 3}).in("Index", {5, 2}, kI64).infer(), "Out0 f32[5, 2]");
  EXPECT_EQ(x_out("index_sample", {5, 3}).in("Index", {4, 2}, kI64).infer(),
            "error: X [5, 3] and Index [4, 2] must have the same number of rows");
  EXPECT_EQ(
      OneOp("gather_tree").in("Ids", {3, 2, 2}, kI64).in("Parents", {3, 2, 2}).out("Out").infer(),
      "Out0 i64[3, 2, 2]");
}

TEST(AlongAxis, TakesAndPuts) {
  EXPECT_EQ(OneOp("take_along_axis")
                .in("Input", {4, 3})
                .in("Index", {2, 3}, kI64)
                .out("Result")
                .attr("Axis", 0)
                .infer(),
            "Result0 f32[2, 3]");
  EXPECT_EQ(OneOp("put_along_axis")
                .in("Input", {4, 3})
                .in("Index", {2}, kI64)
                .in("Value", {2})
                .out("Result")
                .attr("Axis", 0)
                .infer(),
            "error: Input [4, 3] and Index [2] must have the same rank");
  EXPECT_EQ(OneOp("put_along_axis")
                .in("Input", {4, 3})
                .in("Index", {2, 3}, kI64)
                .in("Value", {3, 2})
                .out("Result")
                .attr("Axis", 0)
                .infer(),
            "error: Index and Value must have the same shape, found [2, 3] and [3, 2]");
}

TEST(Scatter, KeepsX) {
  EXPECT_EQ(x_out("scatter", {5, 3}).in("Ids", {2}, kI64).in("Updates", {2, 3}).infer(),
            "Out0 f32[5, 3]");
  EXPECT_EQ(x_out("scatter", {5, 3}).in("Ids", {2}, kI64).in("Updates", {3, 3}).infer(),
            "error: Updates [3, 3] must have one row for each of Ids [2]");
  EXPECT_EQ(x_out("scatter", {5, 3, 4}).in("Ids", {2}, kI64).in("Updates", {2, 4, 3}).infer(),
            "error: Updates must be [2, 3, 4], found [2, 4, 3]");
  EXPECT_EQ(x_out("scatter_nd_add", {5}).in("Index", {2, 1}, kI64).in("Updates", {2}).infer(),
            "Out0 f32[5]");
  EXPECT_EQ(x_out("scatter_nd_add", {5, 3}).in("Index", {2, 1}, kI64).in("Updates", {3, 2}).infer(),
            "error: Updates must be [2, 3], found [3, 2]");
  EXPECT_EQ(OneOp("scatter_grad")
                .in("Ids", {2}, kI64)
                .in("Updates", {2, 3})
                .in("Out@GRAD", {5, 3})
                .out("X@GRAD")
                .out("Updates@GRAD")
                .infer(),
            "X@GRAD0 f32[5, 3]; Updates@GRAD0 f32[2, 3]");
}

TEST(Shape, CountsDims) {
  EXPECT_EQ(OneOp("shape").in("Input", {2, -1, 3}).out("Out").infer(), "Out0 i32[3]");
  EXPECT_EQ(OneOp("shape").in_unknown("Input").out("Out").infer(), "Out0 i32[-1]");
  EXPECT_EQ(OneOp("size").in("Input", {2, -1}).out("Out").infer(), "Out0 i64[]");
  EXPECT_EQ(OneOp("shape").in("Input", {2}).out("Out").grad(),
            "error: op type 'shape' has no gradient rule");
}

TEST(Order, GivesValuesAndIndices) {
  EXPECT_EQ(x_out("top_k", {4, 10}).out("Indices").attr("k", 3).infer(),
            "Out0 f32[4, 3]; Indices0 i64[4, 3]");
  EXPECT_EQ(x_out("top_k", {4, 10}).attr("k", 11).infer(),
            "error: attribute 'k' is 11, but dim 1 of X [4, 10] has only 10 elements");
  EXPECT_EQ(x_out("top_k", {4, 10}).in("K", {1}, kI32).infer(), "Out0 f32[4, -1]");
  EXPECT_EQ(x_out("top_k_v2", {4, 10}).attr("k", 2).attr("axis", 0).infer(), "Out0 f32[2, 10]");
  EXPECT_EQ(x_out("argsort", {4, 10}).out("Indices").infer(),
            "Out0 f32[4, 10]; Indices0 i64[4, 10]");
  EXPECT_EQ(x_out("kthvalue", {4, 10}).attr("keepdim", true).infer(), "Out0 f32[4, 1]");
  EXPECT_EQ(x_out("kthvalue", {4, 10}).attr("k", 2).attr("axis", 0).infer(), "Out0 f32[10]");
}

TEST(ArgExtreme, DropsTheAxis) {
  EXPECT_EQ(x_out("arg_max", {4, 10}).attr("axis", int64_t{-1}).infer(), "Out0 i64[4]");
  EXPECT_EQ(x_out("arg_min", {4, 10})
                .attr("axis", int64_t{0})
                .attr("keepdims", true)
                .attr("dtype", 2)
                .infer(),
            "Out0 i32[1, 10]");
  EXPECT_EQ(x_out("arg_max", {4, 10}).attr("axis", int64_t{0}).attr("flatten", true).infer(),
            "Out0 i64[]");
  EXPECT_EQ(x_out("arg_max", {4}).attr("axis", int64_t{0}).attr("dtype", 5).infer(),
            "error: attribute 'dtype' must be int32 (2), int64 (3) or -1, found 5");
}

TEST(Where, WantsOneShape) {
  EXPECT_EQ(x_out("where", {2, -1}).in("Y", {2, 3}).in("Condition", {2, 3}, kBool).infer(),
            "Out0 f32[2, -1]");
  EXPECT_EQ(x_out("where", {2, 3}).in("Y", {2, 4}).in("Condition", {2, 3}, kBool).infer(),
            "error: X and Y must have the same shape, found [2, 3] and [2, 4]");
  EXPECT_EQ(OneOp("where_index").in("Condition", {2, 3}, kBool).out("Out").infer(),
            "Out0 i64[-1, 2]");
  EXPECT_EQ(OneOp("masked_select").in("X", {2, 3}).in("Mask", {2, 3}, kBool).out("Y").infer(),
            "Y0 f32[-1]");
}

TEST(Pad, GrowsDims) {
  EXPECT_EQ(x_out("pad", {2, -1}).ints("paddings", {1, 1, 0, 2}).infer(), "Out0 f32[4, -1]");
  EXPECT_EQ(x_out("pad", {2}).ints("paddings", {1}).infer(),
            "error: attribute 'paddings' must have two entries for each dim of X [2], found 1");
  EXPECT_EQ(x_out("pad2d", {1, 2, 5, 6}).ints("paddings", {1, 2, 3, 4}).infer(),
            "Out0 f32[1, 2, 8, 13]");
  EXPECT_EQ(x_out("pad2d", {1, 5, 6, 2})
                .ints("paddings", {1, 2, 3, 4})
                .attr("data_format", "NHWC")
                .infer(),
            "Out0 f32[1, 8, 13, 2]");
  EXPECT_EQ(x_out("pad3d", {1, 2, 5, 6, 7}).ints("paddings", {1, 1, 2, 2, 3, 3}).infer(),
            "Out0 f32[1, 2, 11, 10, 9]");
  EXPECT_EQ(x_out("pad3d", {1, 2, 5, 6, 7}).in("Paddings", {6}, kI32).infer(),
            "Out0 f32[1, 2, -1, -1, -1]");
  EXPECT_EQ(x_out("pad_constant_like", {3, 4}).in("Y", {2, 4}).infer(), "Out0 f32[3, 4]");
  EXPECT_EQ(x_out("pad_constant_like", {3, 4}).in("Y", {4, 4}).infer(),
            "error: no dim of Y [4, 4] may be larger than that of X [3, 4]");
}

TEST(OneHot, AddsTheDepth) {
  EXPECT_EQ(OneOp("one_hot").in("X", {-1, 1}, kI64, 1).out("Out").attr("depth", 7).infer(),
            "Out0 f32[-1, 7] lod1");
  EXPECT_EQ(OneOp("one_hot").in("X", {4}, kI64).out("Out").attr("depth", 7).infer(),
            "error: the last dim of X must be 1, found [4]");
  EXPECT_EQ(
      OneOp("one_hot_v2").in("X", {4}, kI64).out("Out").attr("depth", 7).attr("dtype", 3).infer(),
      "Out0 i64[4, 7]");
  EXPECT_EQ(OneOp("one_hot_v2").in("X", {4}, kI64).out("Out").infer(),
            "error: attribute 'depth' must be at least 1, found -1");
}

TEST(Diagonal, MakesAndReadsMatrices) {
  EXPECT_EQ(OneOp("diag").in("Diagonal", {3}).out("Out").infer(), "Out0 f32[3, 3]");
  EXPECT_EQ(x_out("diag_v2", {3}).attr("offset", -1).infer(), "Out0 f32[4, 4]");
  EXPECT_EQ(x_out("diag_v2", {3, 5}).attr("offset", 3).infer(), "Out0 f32[2]");
  EXPECT_EQ(OneOp("eye").out("Out").attr("num_rows", int64_t{3}).infer(), "Out0 f32[3, 3]");
  EXPECT_EQ(x_out("tril_triu", {3}).infer(), "error: X must have a rank from 2 to 64, found [3]");
  EXPECT_EQ(x_out("fill_diagonal", {3, 4}).grad(),
            "fill_diagonal_grad(Out@GRAD=Out0@GRAD -> X@GRAD=X0@GRAD)");
}

TEST(Reverse, IsItsOwnGradient) {
  for (const char* const type : {"reverse", "flip"}) {
    EXPECT_EQ(x_out(type, {2, 3}).ints("axis", {-1}).infer(), "Out0 f32[2, 3]");
    EXPECT_EQ(x_out(type, {2, 3}).ints("axis", {1}).grad(),
              std::string(type) + "(X=Out0@GRAD -> Out=X0@GRAD)");
    EXPECT_EQ(x_out(type, {2, 3}).ints("axis", {2}).infer(),
              "error: attribute 'axis' has axis 2, which is outside of [-2, 2) for rank 2");
  }
  EXPECT_EQ(x_out("roll", {2, 3})
                .attr("shifts", std::vector<int64_t>{1})
                .attr("axis", std::vector<int64_t>{0, 1})
                .infer(),
            "error: attributes 'shifts' and 'axis' must have the same length, found 1 and 2");
}

TEST(Unique, LeavesTheCountOpen) {
  EXPECT_EQ(OneOp("unique").in("X", {6}).out("Out").out("Index").out("Counts").infer(),
            "Out0 f32[-1]; Index0 i64[6]; Counts0 i64[-1]");
  EXPECT_EQ(OneOp("unique").in("X", {6, 2}).out("Out").ints("axis", {0}).infer(),
            "Out0 f32[-1, 2]");
  EXPECT_EQ(OneOp("unique_with_counts")
                .in("X", {6})
                .out("Out")
                .out("Index")
                .out("Count")
                .attr("dtype", 2)
                .infer(),
            "Out0 f32[-1]; Index0 i32[6]; Count0 i32[-1]");
}

TEST(Combine, JoinsOperands) {
  EXPECT_EQ(OneOp("meshgrid").in("X", {2}).in("X", {3}).out("Out", 2).infer(),
            "Out0 f32[2, 3]; Out1 f32[2, 3]");
  EXPECT_EQ(OneOp("meshgrid").in("X", {2}).out("Out").grad(),
            "meshgrid_grad(X=X0; outputs@GRAD=Out0@GRAD -> X@GRAD=X0@GRAD)");
  EXPECT_EQ(OneOp("multiplex").in("X", {2, 3}).in("X", {2, 3}).in("Ids", {2, 1}).out("Out").infer(),
            "Out0 f32[2, 3]");
  EXPECT_EQ(x_out("partial_concat", {2, 5})
                .in("X", {2, 5})
                .attr("start_index", -3)
                .attr("length", 2)
                .infer(),
            "Out0 f32[2, 4]");
  EXPECT_EQ(x_out("partial_sum", {2, 5}).in("X", {2, 5}).attr("start_index", 1).infer(),
            "Out0 f32[2, 4]");
  EXPECT_EQ(x_out("partial_sum", {2, 5}).attr("start_index", 4).attr("length", 2).infer(),
            "error: attributes 'start_index' (4) and 'length' (2) leave the 5 columns of X");
}

TEST(ShardIndex, ChecksTheShard) {
  EXPECT_EQ(OneOp("shard_index")
                .in("X", {4, 1}, kI64)
                .out("Out")
                .attr("nshards", 2)
                .attr("shard_id", 2)
                .infer(),
            "error: attribute 'shard_id' (2) must be less than 'nshards' (2)");
}

TEST(RandomCrop, CutsTheTrailingDims) {
  EXPECT_EQ(x_out("random_crop", {-1, 8, 8}).in("Seed", {1}, kI64).ints("shape", {4, 5}).infer(),
            "Out0 f32[-1, 4, 5]");
  EXPECT_EQ(x_out("random_crop", {2, 8}).in("Seed", {1}, kI64).ints("shape", {9}).infer(),
            "error: attribute 'shape' has 9 in dim 1, but X [2, 8] is smaller");
}

TEST(FusionTransposeFlattenConcat, JoinsMatrices) {
  OneOp op("fusion_transpose_flatten_concat");
  op.in("X", {2, 3, 4, 5}).in("X", {2, 1, -1, 5}).out("Out").ints("trans_axis", {0, 2, 3, 1});
  op.attr("flatten_axis", 1).attr("concat_axis", 1);
  EXPECT_EQ(op.infer(), "Out0 f32[2, -1]");
  op.attr("concat_axis", 2);
  EXPECT_EQ(op.infer(), "error: attribute 'concat_axis' must be 0 or 1, found 2");
  op.ints("trans_axis", {0, 2, 2, 1}).attr("concat_axis", 0);
  EXPECT_EQ(op.infer(), "error: attribute 'trans_axis' must be a permutation, found [0, 2, 2, 1]");
}

}  // namespace
}  // namespace millrace::ops

#include <algorithm>

#include "ops/infer_helpers.h"
#include "ops/lod_offsets.h"
#include "ops/registry.h"
#include "ops/tensor/helpers.h"
#include "ops/tensor/slice_axes.h"

namespace millrace::ops {
namespace slice {
namespace {

int64_t slice_size(int64_t size, int64_t start, int64_t end, int64_t /*stride*/) {
  const auto clamp = [&](int64_t at) {
    return std::clamp<int64_t>(at < 0 ? at + size : at, 0, size);
  };
  return std::max<int64_t>(clamp(end) - clamp(start), 0);
}

// Number of elements from start to end with the given stride, backwards if it is negative. In that
// case an end of -1 means "before the first element", not the last element.
int64_t strided_size(int64_t size, int64_t start, int64_t end, int64_t stride) {
  if (start < 0) start += size;
  if (end < 0 && !(end == -1 && stride < 0)) end += size;
  if (stride < 0) {
    ++start;
    ++end;
  }
  if (stride < 0 ? start <= end : start >= end) return 0;
  const int64_t left = std::max<int64_t>(0, std::min(start, end));
  const int64_t right = std::min(size, std::max(start, end));
  const int64_t step = stride < 0 ? -stride : stride;
  return right <= left ? 0 : (right - left + step - 1) / step;
}

Status infer(InferContext& ctx) {
  return infer_sliced(ctx, slice_size, /*hands_lod_on=*/false);
}

Status infer_strided(InferContext& ctx) {
  return infer_sliced(ctx, strided_size, /*hands_lod_on=*/true);
}

OpDef family(llvm::StringRef type) {
  OpDef def(type);
  def.input("Input", "at least one dim, or a tensor array", Arity::kOne, kTensor | kTensorArray)
      .input("StartsTensor", "the starts as one tensor", Arity::kOptional)
      .input("EndsTensor", "the ends as one tensor", Arity::kOptional)
      .input("StartsTensorList", "one start for each axis", Arity::kAny)
      .input("EndsTensorList", "one end for each axis", Arity::kAny)
      .output("Out", "the slice", Arity::kOne, kTensor | kTensorArray)
      .required_attr<std::vector<int32_t>>("axes", "dims to slice")
      .attr("starts", std::vector<int32_t>{}, "first element of each axis; negative: from the end")
      .attr("ends", std::vector<int32_t>{}, "one past the last element of each axis")
      .attr("infer_flags", std::vector<int32_t>{}, "-1: the bounds of the axis come from a tensor")
      .range(-1, 1)
      .attr("decrease_axis", std::vector<int32_t>{}, "dims of size 1 to drop from the result");
  return def;
}

}  // namespace
}  // namespace slice

/// slice, strided_slice
void add_tensor_slice(OpRegistry& registry) {
  using namespace slice;
  registry.add(family("slice")
                   .doc("the elements from starts to ends along some dims")
                   .infer(infer)
                   .grad({.type = "slice_grad",
                          .inputs = {"Input", "StartsTensor", "EndsTensor", "StartsTensorList",
                                     "EndsTensorList", "Out@GRAD"},
                          .outputs = {"Input@GRAD"},
                          .infer = infer_grad_without_offsets}));
  registry.add(
      family("strided_slice")
          .doc("every strides-th element from starts to ends along some dims")
          .input("StridesTensor", "the strides as one tensor", Arity::kOptional)
          .input("StridesTensorList", "one stride for each axis", Arity::kAny)
          .attr("strides", std::vector<int32_t>{}, "stride of each axis; not 0")
          .infer(infer_strided)
          .grad({.type = "strided_slice_grad",
                 .inputs = {"Input", "StartsTensor", "EndsTensor", "StridesTensor",
                            "StartsTensorList", "EndsTensorList", "StridesTensorList", "Out@GRAD"},
                 .outputs = {"Input@GRAD"}}));
}

}  // namespace millrace::ops

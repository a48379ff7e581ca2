#include <algorithm>

#include "ops/infer_helpers.h"
#include "ops/registry.h"

// Conversion between sequences with LoD and dense tensors with a length per row.
namespace millrace::ops {
namespace padding {
namespace {

Status infer_pad(InferContext& ctx) {
  const VarMeta& x = ctx.input("X");
  int64_t sequences = -1;
  int64_t length = ctx.attr<int32_t>("padded_length");
  if (!x.lod.empty()) {
    const llvm::ArrayRef<int64_t> offsets = x.lod.level(0);
    sequences = static_cast<int64_t>(offsets.size()) - 1;
    int64_t longest = 0;
    for (size_t i = 1; i < offsets.size(); ++i)
      longest = std::max(longest, offsets[i] - offsets[i - 1]);
    if (length < 0) length = longest;
  }
  ctx.set_output("Length", DType::kInt64, {sequences});
  if (!dims_known(x)) return Ok();
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "X", 2, 100));
  Dims dims{sequences, length};
  dims.append(x.dims.begin() + 1, x.dims.end());
  ctx.set_output("Out", tensor_meta(x.dtype, dims));
  return Ok();
}

Status infer_unpad(InferContext& ctx) {
  const VarMeta& x = ctx.input("X");
  const VarMeta& length = ctx.input("Length");
  if (!dims_known(x)) return Ok();
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "X", 2, 100));
  if (dims_known(length) && length.rank() > 0 && !dims_agree(length.dims[0], x.dims[0])) {
    return ctx.error("'Length' has shape {}, expected {} entries as 'X' {} has rows",
                     dims_text(length.dims), x.dims[0], dims_text(x.dims));
  }
  Dims dims{-1};
  if (x.rank() == 2) dims.push_back(1);
  dims.append(x.dims.begin() + 2, x.dims.end());
  ctx.set_output("Out", tensor_meta(x.dtype, dims, 1));
  return Ok();
}

Status infer_mask(InferContext& ctx) {
  const VarMeta& x = ctx.input("X");
  if (!dims_known(x)) return Ok();
  Dims dims = x.dims;
  const auto length = ctx.attr<int32_t>("maxlen");
  dims.push_back(ctx.has_input("MaxLenTensor") || length <= 0 ? -1 : length);
  ctx.set_output("Y", ctx.dtype_attr("out_dtype"), dims);
  return Ok();
}

}  // namespace
}  // namespace padding

void add_sequence_padding(OpRegistry& registry) {
  using namespace padding;
  registry.add(OpDef("sequence_pad")
                   .doc("one row of fixed length for each sequence")
                   .input("X", "sequences")
                   .input("PadValue", "one element, or one step")
                   .output("Out", "[sequences, length, ...]")
                   .output("Length", "length of each sequence, int64")
                   .attr("padded_length", -1, "length of the rows; -1: that of the longest")
                   .range(-1)
                   .infer(infer_pad)
                   .grad({"sequence_pad_grad", {"Out@GRAD", "X"}, {"X@GRAD"}, {}}));
  registry.add(OpDef("sequence_unpad")
                   .doc("inverse of sequence_pad")
                   .input("X", "[sequences, length, ...]")
                   .input("Length", "length of each sequence, int64")
                   .output("Out", "sequences")
                   .infer(infer_unpad)
                   .grad({"sequence_unpad_grad", {"Out@GRAD", "X"}, {"X@GRAD"}, {}}));
  registry.add(OpDef("sequence_mask")
                   .doc("Y[..., k] = 1 where k < X[...]")
                   .input("X", "lengths")
                   .input("MaxLenTensor", "one element; replaces the attribute", Arity::kOptional)
                   .output("Y", "dims of X, then the length")
                   .attr("maxlen", -1, "length; -1: the largest of X")
                   .range(-1)
                   .attr("out_dtype", 3, "element type of Y, VarType number")
                   .infer(infer_mask));
}

}  // namespace millrace::ops

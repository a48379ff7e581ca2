#include "ops/tensor/helpers.h"

#include <utility>

#include "ops/infer_helpers.h"
#include "ops/lod_offsets.h"

namespace millrace::ops {

VarMeta keep_lod_of_same_rows(const VarMeta& x, llvm::ArrayRef<int64_t> dims) {
  VarMeta out = with_dims(x, dims);
  const bool same_rows = !x.dims.empty() && !dims.empty() && x.dims[0] == dims[0];
  return same_rows ? out : without_lod(std::move(out));
}

VarMeta unknown_like(const VarMeta& x) {
  return shapeless_meta(x.dtype);
}

void set_xshape(InferContext& ctx, const VarMeta& x) {
  if (!x.has_shape) return;
  Dims dims = x.dims;
  dims.insert(dims.begin(), 0);
  ctx.set_output("XShape", with_dims(x, dims));
}

Status infer_from_xshape(InferContext& ctx) {
  return infer_from_xshape(ctx, /*with_offsets=*/true);
}

Status infer_from_xshape(InferContext& ctx, bool with_offsets) {
  if (ctx.has_input("X")) {
    ctx.copy("X", "X@GRAD");
    return Ok();
  }
  VarMeta xshape = ctx.input("XShape");
  if (!xshape.has_shape) return Ok();
  if (xshape.dims.empty())
    return ctx.error("XShape must have a leading dim of 0, found {}", dims_text(xshape.dims));
  xshape.dims.erase(xshape.dims.begin());
  xshape.dtype = ctx.has_input("Out@GRAD") ? ctx.input("Out@GRAD").dtype : xshape.dtype;
  if (!with_offsets) xshape.lod = {};
  ctx.set_output("X@GRAD", std::move(xshape));
  return Ok();
}

GradSpec grad_of_x(llvm::StringRef type, std::vector<llvm::StringRef> inputs) {
  inputs.push_back("Out@GRAD");
  GradSpec spec;
  spec.type = type;
  spec.inputs = std::move(inputs);
  spec.outputs = {"X@GRAD"};
  return spec;
}

GradSpec grad_like_out(llvm::StringRef type) {
  GradSpec spec = grad_of_x(type, {});
  spec.shape_like = {{"X@GRAD", "Out@GRAD"}};
  return spec;
}

GradSpec grad_by_xshape(llvm::StringRef type, std::vector<llvm::StringRef> more) {
  more.push_back("XShape");
  GradSpec spec = grad_of_x(type, std::move(more));
  spec.infer = infer_from_xshape;
  return spec;
}

std::optional<Dims> dims_by_shape_tensor(const InferContext& ctx) {
  const size_t parts = ctx.input_count("ShapeTensor");
  if (parts == 0) return std::nullopt;
  const auto constant = ctx.attr<std::vector<int64_t>>("shape");
  if (constant.size() == parts) return Dims(constant.begin(), constant.end());
  return Dims(parts, -1);
}

int64_t list_length(const VarMeta& list) {
  // A longer list cannot be a shape; treat its length as unknown.
  constexpr int64_t kMaxRank = 64;
  if (!list.has_shape) return -1;
  const int64_t length = dims_product(list.dims);
  return length <= kMaxRank ? length : -1;
}

}  // namespace millrace::ops

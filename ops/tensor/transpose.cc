#include "ops/infer_helpers.h"
#include "ops/lod_offsets.h"
#include "ops/registry.h"
#include "ops/tensor/helpers.h"

namespace millrace::ops {
namespace transpose_ops {
namespace {

Status infer(InferContext& ctx) {
  const VarMeta x = ctx.input("X");
  set_xshape(ctx, x);
  if (!x.has_shape) {
    ctx.set_output("Out", unknown_like(x));
    return Ok();
  }
  const auto axis = ctx.attr<std::vector<int64_t>>("axis");
  if (axis.size() != x.rank()) {
    return ctx.error("attribute 'axis' must list the {} dims of X {}, found {}", x.rank(),
                     dims_text(x.dims), dims_text(axis));
  }
  Dims dims;
  std::vector<bool> used(x.rank(), false);
  for (const int64_t from : axis) {
    MILLRACE_ASSIGN_OR_RETURN(const int64_t normal, checked_axis(ctx, "axis", from, x.rank()));
    const auto at = static_cast<size_t>(normal);
    if (used[at]) return ctx.error("attribute 'axis' names dim {} twice", normal);
    used[at] = true;
    dims.push_back(x.dims[at]);
  }
  ctx.set_output("Out", tensor_meta(x.dtype, dims));
  return Ok();
}

// Programs of some releases pass neither X nor XShape to the gradient op. The shape then follows
// from the inverse permutation.
Status infer_grad(InferContext& ctx) {
  if (ctx.has_input("X")) {
    ctx.set_output("X@GRAD", without_offsets(ctx.input("X")));
    return Ok();
  }
  if (ctx.has_input("XShape")) return infer_from_xshape(ctx, /*with_offsets=*/false);
  const VarMeta grad = ctx.input("Out@GRAD");
  const auto axis = ctx.attr<std::vector<int64_t>>("axis");
  if (!grad.has_shape || axis.size() != grad.rank()) return Ok();
  Dims dims(grad.rank(), -1);
  for (size_t i = 0; i < axis.size(); ++i) {
    MILLRACE_ASSIGN_OR_RETURN(const int64_t to, checked_axis(ctx, "axis", axis[i], grad.rank()));
    dims[static_cast<size_t>(to)] = grad.dims[i];
  }
  ctx.set_output("X@GRAD", tensor_meta(grad.dtype, dims));
  return Ok();
}

OpDef family(llvm::StringRef type) {
  OpDef def(type);
  def.doc("dim i of Out is dim axis[i] of X")
      .input("X", "any shape")
      .output("Out", "dims of X in the order of axis")
      .required_attr<std::vector<int32_t>>("axis", "a permutation of the dims of X")
      .infer(infer);
  return def;
}

GradSpec with_infer(GradSpec spec) {
  spec.infer = infer_grad;
  return spec;
}

}  // namespace
}  // namespace transpose_ops

/// transpose, transpose2
void add_tensor_transpose(OpRegistry& registry) {
  using namespace transpose_ops;
  registry.add(family("transpose").grad(with_infer(grad_of_x("transpose_grad", {"X", "Out"}))));
  registry.add(family("transpose2")
                   .intermediate("XShape", "0 and the dims of X; no data")
                   .grad(with_infer(grad_by_xshape("transpose2_grad"))));
}

}  // namespace millrace::ops

#include "ops/infer_helpers.h"
#include "ops/registry.h"
#include "ops/tensor/helpers.h"

namespace millrace::ops {
namespace one_hot {
namespace {

StatusOr<int64_t> depth_of(const InferContext& ctx) {
  if (ctx.has_input("depth_tensor")) return int64_t{-1};
  const auto depth = ctx.attr<int64_t>("depth");
  if (depth < 1) return ctx.error("attribute 'depth' must be at least 1, found {}", depth);
  return depth;
}

Status infer(InferContext& ctx) {
  VarMeta out = ctx.input("X");
  MILLRACE_ASSIGN_OR_RETURN(const int64_t depth, depth_of(ctx));
  if (out.has_shape) {
    if (out.rank() == 0 || !dims_agree(out.dims.back(), 1)) {
      return ctx.error("the last dim of X must be 1, found {}", dims_text(out.dims));
    }
    out.dims.back() = depth;
  }
  out.dtype = ctx.dtype_attr("dtype");
  ctx.set_output("Out", std::move(out));
  return Ok();
}

Status infer_v2(InferContext& ctx) {
  VarMeta out = ctx.input("X");
  MILLRACE_ASSIGN_OR_RETURN(const int64_t depth, depth_of(ctx));
  if (out.has_shape) out.dims.push_back(depth);
  out.dtype = ctx.dtype_attr("dtype");
  ctx.set_output("Out", std::move(out));
  return Ok();
}

OpDef family(llvm::StringRef type, llvm::StringRef doc) {
  OpDef def(type);
  def.doc(doc)
      .input("depth_tensor", "one element; replaces the attribute", Arity::kOptional)
      .attr("depth", -1, "number of classes; -1 if a tensor holds it")
      .range(-1)
      .attr("dtype", 5, "element type of Out, a VarType number")
      .attr("allow_out_of_range", false, "a class outside of [0, depth) results in a row of zeros");
  return def;
}

}  // namespace
}  // namespace one_hot

/// one_hot, one_hot_v2
void add_tensor_one_hot(OpRegistry& registry) {
  using namespace one_hot;
  registry.add(family("one_hot", "a row with a 1 at the class, in place of the last dim of 1")
                   .input("X", "int32 or int64; the last dim is 1")
                   .output("Out", "X with depth as the last dim; LoD of X")
                   .infer(infer));
  registry.add(family("one_hot_v2", "a row with a 1 at the class, in a new last dim")
                   .input("X", "int32 or int64; any shape")
                   .output("Out", "X with depth as an additional last dim; LoD of X")
                   .infer(infer_v2));
}

}  // namespace millrace::ops

#include "ops/infer_helpers.h"
#include "ops/registry.h"
#include "ops/tensor/helpers.h"

namespace millrace::ops {
namespace squeeze {
namespace {

// A listed dim that is not 1 is kept, as in 2.x; an unknown one is assumed to be 1.
StatusOr<Dims> squeezed(const InferContext& ctx, const VarMeta& x) {
  const auto axes = ctx.attr<std::vector<int64_t>>("axes");
  std::vector<bool> named(std::max<size_t>(x.rank(), 1), false);
  for (const int64_t axis : axes) {
    MILLRACE_ASSIGN_OR_RETURN(const int64_t normal, checked_axis(ctx, "axes", axis, x.rank()));
    named[static_cast<size_t>(normal)] = true;
  }
  Dims out;
  for (size_t i = 0; i < x.rank(); ++i) {
    const bool goes = axes.empty() ? x.dims[i] == 1 : named[i] && (x.dims[i] == 1 || x.dims[i] < 0);
    if (!goes) out.push_back(x.dims[i]);
  }
  return out;
}

Status infer(InferContext& ctx) {
  const VarMeta x = ctx.input("X");
  set_xshape(ctx, x);
  if (!x.has_shape) {
    ctx.set_output("Out", unknown_like(x));
    return Ok();
  }
  MILLRACE_ASSIGN_OR_RETURN(const Dims dims, squeezed(ctx, x));
  ctx.set_output("Out", keep_lod_of_same_rows(x, dims));
  return Ok();
}

// Inserts the dims in the order of the list. Each axis refers to the shape built so far.
StatusOr<Dims> unsqueezed(const InferContext& ctx, const VarMeta& x) {
  Dims out = x.dims;
  for (const int64_t axis : ctx.attr<std::vector<int64_t>>("axes")) {
    MILLRACE_ASSIGN_OR_RETURN(const int64_t at, checked_axis(ctx, "axes", axis, out.size() + 1));
    out.insert(out.begin() + at, 1);
  }
  return out;
}

Status infer_unsqueeze(InferContext& ctx) {
  const VarMeta x = ctx.input("X");
  set_xshape(ctx, x);
  int64_t inserted = 0;
  const bool from_tensors = ctx.has_input("AxesTensorList") || ctx.has_input("AxesTensor");
  if (from_tensors) {
    const size_t parts = ctx.input_count("AxesTensorList");
    inserted = parts > 0 ? static_cast<int64_t>(parts) : list_length(ctx.input("AxesTensor"));
  }
  if (!x.has_shape || inserted < 0) {
    ctx.set_output("Out", unknown_like(x));
    return Ok();
  }
  if (from_tensors) {
    const Dims dims(x.rank() + static_cast<size_t>(inserted), -1);
    ctx.set_output("Out", tensor_meta(x.dtype, dims));
    return Ok();
  }
  MILLRACE_ASSIGN_OR_RETURN(const Dims dims, unsqueezed(ctx, x));
  ctx.set_output("Out", keep_lod_of_same_rows(x, dims));
  return Ok();
}

OpDef squeeze_family(llvm::StringRef type) {
  OpDef def(type);
  def.doc("X without dims of 1")
      .input("X", "any shape")
      .output("Out", "X with fewer dims")
      .attr("axes", std::vector<int32_t>{}, "dims to drop where they are 1; empty: all of them")
      .infer(infer)
      .inplace("X", "Out");
  return def;
}

OpDef unsqueeze_family(llvm::StringRef type) {
  OpDef def(type);
  def.doc("X with dims of 1 inserted")
      .input("X", "any shape")
      .input("AxesTensor", "the axes as one tensor; replaces the attribute", Arity::kOptional)
      .input("AxesTensorList", "one element for each axis; replaces the attribute", Arity::kAny)
      .output("Out", "X with more dims")
      .attr("axes", std::vector<int32_t>{},
            "positions of the new dims, inserted one after the other")
      .infer(infer_unsqueeze)
      .inplace("X", "Out");
  return def;
}

}  // namespace
}  // namespace squeeze

/// squeeze, squeeze2, unsqueeze, unsqueeze2
void add_tensor_squeeze(OpRegistry& registry) {
  using namespace squeeze;
  registry.add(squeeze_family("squeeze").grad(grad_of_x("squeeze_grad", {"X"})));
  registry.add(squeeze_family("squeeze2")
                   .intermediate("XShape", "0 and the dims of X; no data")
                   .grad(grad_by_xshape("squeeze2_grad")));
  registry.add(unsqueeze_family("unsqueeze").grad(grad_of_x("unsqueeze_grad", {"X"})));
  registry.add(unsqueeze_family("unsqueeze2")
                   .intermediate("XShape", "0 and the dims of X; no data")
                   .grad(grad_by_xshape("unsqueeze2_grad", {"AxesTensor", "AxesTensorList"})));
}

}  // namespace millrace::ops

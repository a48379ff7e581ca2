#include <algorithm>

#include <llvm/ADT/STLExtras.h>

#include "ops/infer_helpers.h"
#include "ops/lod_offsets.h"
#include "ops/registry.h"
#include "ops/tensor/helpers.h"

namespace millrace::ops {
namespace expand {
namespace {

// The numbers in an attribute, or -1 for each number in a tensor; nullopt if their count is
// unknown.
std::optional<Dims> numbers(const InferContext& ctx, llvm::StringRef attr, llvm::StringRef tensor,
                            llvm::StringRef list) {
  const auto own = ctx.attr<std::vector<int64_t>>(attr);
  if (const size_t parts = ctx.input_count(list); parts > 0) {
    if (own.size() == parts) return Dims(own.begin(), own.end());
    return Dims(parts, -1);
  }
  if (ctx.has_input(tensor)) {
    const int64_t count = list_length(ctx.input(tensor));
    if (count < 0) return std::nullopt;
    return Dims(static_cast<size_t>(count), -1);
  }
  return Dims(own.begin(), own.end());
}

Status infer_expand_op(InferContext& ctx) {
  const VarMeta x = ctx.input("X");
  const auto counts = numbers(ctx, "expand_times", "ExpandTimes", "expand_times_tensor");
  if (!x.has_shape || !counts) {
    ctx.set_output("Out", unknown_like(x));
    return Ok();
  }
  if (counts->size() != x.rank()) {
    return ctx.error("attribute 'expand_times' must have an entry for each dim of X {}, found {}",
                     dims_text(x.dims), dims_text(*counts));
  }
  Dims dims = x.dims;
  for (size_t i = 0; i < dims.size(); ++i) dims[i] = dims_product({dims[i], (*counts)[i]});
  ctx.set_output("Out", keep_lod_of_same_rows(x, dims));
  return Ok();
}

// The shorter one of dims and counts is padded with 1 at the front.
Status infer_tile(InferContext& ctx) {
  const VarMeta x = ctx.input("X");
  auto counts = numbers(ctx, "repeat_times", "RepeatTimes", "repeat_times_tensor");
  if (!x.has_shape || !counts) {
    ctx.set_output("Out", unknown_like(x));
    return Ok();
  }
  Dims dims = x.dims;
  const size_t rank = std::max(dims.size(), counts->size());
  dims.insert(dims.begin(), rank - dims.size(), 1);
  counts->insert(counts->begin(), rank - counts->size(), 1);
  for (size_t i = 0; i < rank; ++i) dims[i] = dims_product({dims[i], (*counts)[i]});
  ctx.set_output("Out", keep_lod_of_same_rows(x, dims));
  return Ok();
}

// Broadcasts the dims of X, aligned at the end, to the target. A target of -1 is the dim of X if
// keep is set, else unknown.
StatusOr<Dims> stretched(const InferContext& ctx, const VarMeta& x, Dims target,
                         llvm::StringRef source, bool keep) {
  const std::string_view name(source.data(), source.size());
  if (target.size() < x.rank()) {
    return ctx.error("{} {} must have at least the rank of X {}", name, dims_text(target),
                     dims_text(x.dims));
  }
  const size_t lead = target.size() - x.rank();
  for (size_t i = 0; i < target.size(); ++i) {
    int64_t& dim = target[i];
    if (dim < -1) dim = -1;
    if (i < lead) {
      if (dim < 0 && keep)
        return ctx.error("{} {} has -1 at {}, where X {} has no dim", name, dims_text(target), i,
                         dims_text(x.dims));
      continue;
    }
    const int64_t own = x.dims[i - lead];
    if (dim < 0 && keep) {
      dim = own;
    } else if (own != 1 && !dims_agree(own, dim)) {
      return ctx.error("dim {} of X {} must be 1 or that of {} {}", i - lead, dims_text(x.dims),
                       name, dims_text(target));
    }
  }
  return target;
}

Status infer_expand_v2(InferContext& ctx) {
  const VarMeta x = ctx.input("X");
  const auto shape = numbers(ctx, "shape", "Shape", "expand_shapes_tensor");
  if (!x.has_shape || !shape) {
    ctx.set_output("Out", unknown_like(x));
    return Ok();
  }
  const bool dynamic = ctx.has_input("Shape") || ctx.has_input("expand_shapes_tensor");
  MILLRACE_ASSIGN_OR_RETURN(const Dims dims,
                            stretched(ctx, x, *shape, "attribute 'shape'", !dynamic));
  ctx.set_output("Out", keep_lod_of_same_rows(x, dims));
  return Ok();
}

Status infer_expand_as_v2(InferContext& ctx) {
  const VarMeta x = ctx.input("X");
  const auto attr = ctx.attr<std::vector<int64_t>>("target_shape");
  // if the attribute has an unknown dim, all dims are those of Y
  const bool is_open = attr.empty() || llvm::any_of(attr, [](int64_t dim) { return dim < 0; });
  std::optional<Dims> target;
  if (!attr.empty()) target = Dims(attr.begin(), attr.end());
  if (is_open && ctx.input("Y").has_shape) target = ctx.input("Y").dims;
  if (!x.has_shape || !target) {
    ctx.set_output("Out", unknown_like(x));
    return Ok();
  }
  MILLRACE_ASSIGN_OR_RETURN(const Dims dims,
                            stretched(ctx, x, *target, "attribute 'target_shape'", /*keep=*/false));
  ctx.set_output("Out", tensor_meta(x.dtype, dims));
  return Ok();
}

Status infer_expand_as(InferContext& ctx) {
  const VarMeta x = ctx.input("X");
  const VarMeta target = ctx.input("target_tensor");
  if (!target.has_shape || !x.has_shape) {
    ctx.set_output("Out", unknown_like(x));
    return Ok();
  }
  if (target.rank() != x.rank()) {
    return ctx.error("X {} and target_tensor {} must have the same rank", dims_text(x.dims),
                     dims_text(target.dims));
  }
  for (size_t i = 0; i < x.rank(); ++i) {
    if (x.dims[i] > 0 && target.dims[i] >= 0 && target.dims[i] % x.dims[i] != 0) {
      return ctx.error("dim {} of target_tensor {} must be a multiple of that of X {}", i,
                       dims_text(target.dims), dims_text(x.dims));
    }
  }
  ctx.set_output("Out", keep_lod_of_same_rows(x, target.dims));
  return Ok();
}

}  // namespace
}  // namespace expand

/// expand, expand_as, expand_v2, expand_as_v2, tile
void add_tensor_expand(OpRegistry& registry) {
  using namespace expand;
  registry.add(OpDef("expand")
                   .doc("repeats X expand_times[i] times along dim i")
                   .input("X", "at least one dim")
                   .input("ExpandTimes", "the counts as one tensor", Arity::kOptional)
                   .input("expand_times_tensor", "one count for each dim", Arity::kAny)
                   .output("Out", "dims of X times the counts")
                   .attr("expand_times", std::vector<int32_t>{}, "counts; -1: from a tensor")
                   .range(-1)
                   .infer(infer_expand_op)
                   .grad(without_offsets(
                       grad_of_x("expand_grad", {"X", "ExpandTimes", "expand_times_tensor"}))));
  registry.add(OpDef("tile")
                   .doc("repeats X repeat_times[i] times along dim i")
                   .input("X", "any shape")
                   .input("RepeatTimes", "the counts as one tensor", Arity::kOptional)
                   .input("repeat_times_tensor", "one count for each dim", Arity::kAny)
                   .output("Out", "dims of X times the counts")
                   .attr("repeat_times", std::vector<int32_t>{}, "counts; -1: from a tensor")
                   .range(-1)
                   .infer(infer_tile)
                   .grad(without_offsets(
                       grad_of_x("tile_grad", {"X", "RepeatTimes", "repeat_times_tensor"}))));
  registry.add(OpDef("expand_v2")
                   .doc("broadcasts X to a shape")
                   .input("X", "any shape")
                   .input("Shape", "the shape as one tensor", Arity::kOptional)
                   .input("expand_shapes_tensor", "one size for each dim", Arity::kAny)
                   .output("Out", "the shape")
                   .attr("shape", std::vector<int32_t>{}, "sizes; -1: as in X; -2: from a tensor")
                   .range(-2)
                   .infer(infer_expand_v2)
                   .grad(grad_of_x("expand_v2_grad", {"X", "Shape", "expand_shapes_tensor"})));
  registry.add(
      OpDef("expand_as_v2")
          .doc("broadcasts X to the shape of another tensor")
          .input("X", "any shape")
          .input("Y", "its shape is the target if target_shape leaves a dim open", Arity::kOptional)
          .output("Out", "the target shape")
          .attr("target_shape", std::vector<int32_t>{}, "the target; -1: unknown")
          .range(-1)
          .infer(infer_expand_as_v2)
          .grad(grad_of_x("expand_as_v2_grad", {"X"})));
  registry.add(OpDef("expand_as")
                   .doc("repeats X until it has the shape of another tensor")
                   .input("X", "at least one dim")
                   .input("target_tensor", "rank of X, dims that are multiples of those of X")
                   .output("Out", "shape of target_tensor, dtype of X")
                   .infer(infer_expand_as)
                   .grad(grad_of_x("expand_as_grad", {"X", "target_tensor"})));
}

}  // namespace millrace::ops

#include "ops/infer_helpers.h"
#include "ops/lod_offsets.h"
#include "ops/registry.h"
#include "ops/tensor/helpers.h"

namespace millrace::ops {
namespace reshape_ops {
namespace {

// The target shape in the notation of attribute shape (0: the dim of X, -1: the remaining
// elements), or nullopt if its rank is unknown. With ShapeTensor, the attribute holds the constant
// dims.
std::optional<Dims> wanted_shape(const InferContext& ctx, bool& dynamic) {
  const auto attr = ctx.attr<std::vector<int64_t>>("shape");
  dynamic = true;
  if (std::optional<Dims> dims = dims_by_shape_tensor(ctx)) return dims;
  if (ctx.has_input("Shape")) {
    const int64_t rank = list_length(ctx.input("Shape"));
    if (rank < 0) return std::nullopt;
    return Dims(static_cast<size_t>(rank), -1);
  }
  dynamic = false;
  return Dims(attr.begin(), attr.end());
}

// Replaces every 0 by the dim of X at the same position. \returns which dims were copied
StatusOr<std::vector<bool>> copy_dims(const InferContext& ctx, const VarMeta& x, bool dynamic,
                                      Dims& shape) {
  std::vector<bool> copied(shape.size(), false);
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] < -1) {
      return ctx.error("attribute 'shape' has {} at {}, expected a size, 0 or -1", shape[i], i);
    }
    if (shape[i] != 0) continue;
    if (i < x.rank()) {
      shape[i] = x.dims[i];
      copied[i] = true;
    } else if (!dynamic) {
      // A tensor without elements may be given a shape with zeros.
      if (dims_product(x.dims) == 0 || dims_product(x.dims) < 0) continue;
      return ctx.error("attribute 'shape' has 0 at {}, but X {} has no such dim", i,
                       dims_text(x.dims));
    }
  }
  return copied;
}

// Product of the dims that were not copied; -1 if one of them is unknown.
int64_t product_of_rest(llvm::ArrayRef<int64_t> dims, const std::vector<bool>& copied) {
  Dims rest;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (i >= copied.size() || !copied[i]) rest.push_back(dims[i]);
  }
  return dims_product(rest);
}

// Computes the -1 of shape from the number of elements. Copied dims cancel out, so the batch size
// may be unknown.
Status solve(const InferContext& ctx, const VarMeta& x, const std::vector<bool>& copied,
             Dims& shape) {
  std::optional<size_t> open;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] != -1 || copied[i]) continue;
    if (open) {
      return ctx.error("attribute 'shape' has -1 at {} and {}, expected at most one", *open, i);
    }
    open = i;
  }
  const int64_t have = product_of_rest(x.dims, copied);
  Dims given = shape;
  if (open) given[*open] = 1;
  const int64_t want = product_of_rest(given, copied);
  if (have < 0 || want < 0) return Ok();
  const bool fits = open ? (want != 0 && have % want == 0) : have == want;
  // Where a copied dim is 0, any shape has the right number of elements.
  if (!fits && dims_product(x.dims) != 0) {
    return ctx.error("X {} does not have the number of elements of shape {}", dims_text(x.dims),
                     dims_text(shape));
  }
  if (open) shape[*open] = want == 0 ? 0 : have / want;
  return Ok();
}

Status infer(InferContext& ctx) {
  const VarMeta x = ctx.input("X");
  bool dynamic = false;
  std::optional<Dims> shape = wanted_shape(ctx, dynamic);
  set_xshape(ctx, x);
  if (!x.has_shape || !shape) {
    ctx.set_output("Out", with_offsets_of(unknown_like(x), x));
    return Ok();
  }
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<bool> copied, copy_dims(ctx, x, dynamic, *shape));
  // A shape from tensors has -1 for each value that is in a tensor.
  if (!dynamic) MILLRACE_RETURN_IF_ERROR(solve(ctx, x, copied, *shape));
  ctx.set_output("Out", with_offsets_of(keep_lod_of_same_rows(x, *shape), x));
  return Ok();
}

OpDef family(llvm::StringRef type) {
  OpDef def(type);
  def.doc("the elements of X in another shape")
      .input("X", "any shape")
      .input("Shape", "the shape as a tensor; replaces the attribute", Arity::kOptional)
      .input("ShapeTensor", "one element for each dim; replaces the attribute", Arity::kAny)
      .output("Out", "as many elements as X")
      .attr("shape", std::vector<int32_t>{},
            "sizes; 0: the dim of X at this position, -1: computed from the others")
      .range(-1)
      .infer(infer)
      .inplace("X", "Out");
  return def;
}

}  // namespace
}  // namespace reshape_ops

/// reshape, reshape2
void add_tensor_reshape(OpRegistry& registry) {
  using namespace reshape_ops;
  registry.add(family("reshape").grad(
      without_offsets(grad_of_x("reshape_grad", {"X", "Out", "Shape", "ShapeTensor"}))));
  registry.add(family("reshape2")
                   .intermediate("XShape", "0 and the dims of X; no data")
                   .grad(grad_by_xshape("reshape2_grad")));
}

}  // namespace millrace::ops

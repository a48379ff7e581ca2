#include "ops/infer_helpers.h"
#include "ops/registry.h"
#include "ops/tensor/helpers.h"

namespace millrace::ops {
namespace flatten_concat {
namespace {

// Dims of X in the order of the axes, as a matrix.
StatusOr<Dims> flattened(const InferContext& ctx, const VarMeta& x, size_t index) {
  const auto axes = ctx.attr<std::vector<int64_t>>("trans_axis");
  if (axes.size() != x.rank()) {
    return ctx.error("attribute 'trans_axis' must list the dims of X[{}] {}, found {}", index,
                     dims_text(x.dims), dims_text(axes));
  }
  std::vector<bool> used(x.rank(), false);
  Dims dims;
  for (const int64_t axis : axes) {
    if (axis < 0 || axis >= static_cast<int64_t>(x.rank()) || used[static_cast<size_t>(axis)])
      return ctx.error("attribute 'trans_axis' must be a permutation, found {}", dims_text(axes));
    used[static_cast<size_t>(axis)] = true;
    dims.push_back(x.dims[static_cast<size_t>(axis)]);
  }
  const auto at = ctx.attr<int64_t>("flatten_axis");
  if (at < 0 || at > static_cast<int64_t>(dims.size())) {
    return ctx.error("attribute 'flatten_axis' must be from 0 to {}, found {}", dims.size(), at);
  }
  const llvm::ArrayRef<int64_t> all(dims);
  return Dims{dims_product(all.take_front(static_cast<size_t>(at))),
              dims_product(all.drop_front(static_cast<size_t>(at)))};
}

Status infer(InferContext& ctx) {
  const VarMeta first = ctx.input("X");
  const auto axis = ctx.attr<int64_t>("concat_axis");
  if (axis < 0 || axis > 1)
    return ctx.error("attribute 'concat_axis' must be 0 or 1, found {}", axis);
  Dims out;
  for (size_t i = 0; i < ctx.input_count("X"); ++i) {
    const VarMeta& x = ctx.input("X", i);
    if (!x.has_shape) {
      ctx.set_output("Out", first.dtype, {-1, -1});
      return Ok();
    }
    MILLRACE_ASSIGN_OR_RETURN(const Dims dims, flattened(ctx, x, i));
    if (i == 0) {
      out = dims;
      continue;
    }
    int64_t& joined = out[static_cast<size_t>(axis)];
    int64_t& kept = out[static_cast<size_t>(1 - axis)];
    const int64_t more = dims[static_cast<size_t>(axis)];
    if (joined < 0 || more < 0 || __builtin_add_overflow(joined, more, &joined)) joined = -1;
    const int64_t other = dims[static_cast<size_t>(1 - axis)];
    if (!dims_agree(kept, other)) {
      return ctx.error("X[{}] becomes {}, which does not fit to the others along dim {}", i,
                       dims_text(dims), 1 - axis);
    }
    if (kept < 0) kept = other;
  }
  ctx.set_output("Out", first.dtype, out);
  return Ok();
}

}  // namespace
}  // namespace flatten_concat

void add_tensor_flatten_concat(OpRegistry& registry) {
  registry.add(
      OpDef("fusion_transpose_flatten_concat")
          .doc("the operands, transposed, reshaped to matrices and concatenated")
          .input("X", "the same rank", Arity::kMany)
          .output("Out", "a matrix")
          .required_attr<std::vector<int32_t>>("trans_axis",
                                               "a permutation of the dims of each operand")
          .required_attr<int32_t>("flatten_axis", "dims before it become rows, the others columns")
          .range(0)
          .required_attr<int32_t>("concat_axis", "0: more rows; 1: more columns")
          .range(0, 1)
          .infer(flatten_concat::infer));
}

}  // namespace millrace::ops

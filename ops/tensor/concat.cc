#include "ops/infer_helpers.h"
#include "ops/registry.h"
#include "ops/tensor/helpers.h"

namespace millrace::ops {
namespace concat_ops {
namespace {

// Combines dims with those of one more operand: they must agree except along axis, where they add.
Status append(const InferContext& ctx, const VarMeta& x, size_t index, size_t axis, Dims& out) {
  if (x.rank() != out.size()) {
    return ctx.error("X[{}] {} and X[0] must have the same rank {}", index, dims_text(x.dims),
                     out.size());
  }
  for (size_t d = 0; d < out.size(); ++d) {
    if (d == axis) {
      if (out[d] < 0 || x.dims[d] < 0 || __builtin_add_overflow(out[d], x.dims[d], &out[d]))
        out[d] = -1;
    } else if (!dims_agree(out[d], x.dims[d])) {
      return ctx.error("X[{}] {} must agree with the others in dim {}: expected {}, found {}",
                       index, dims_text(x.dims), d, out[d], x.dims[d]);
    } else if (out[d] < 0) {
      out[d] = x.dims[d];
    }
  }
  return Ok();
}

// Concatenates sequences of rows: the offsets of each operand are appended to the previous ones. If
// an operand has no LoD, the result has the LoD of the first operand.
StatusOr<Lod> joined_lod(const InferContext& ctx, size_t count) {
  const Lod& first = ctx.input("X").lod;
  if (first.empty()) return first;
  std::vector<LodLevel> levels = first.levels();
  for (size_t i = 1; i < count; ++i) {
    const Lod& next = ctx.input("X", i).lod;
    if (next.empty()) return first;
    if (next.size() != levels.size()) {
      return ctx.error("X[{}] has {} LoD levels and X[0] {}, expected the same number", i,
                       next.size(), levels.size());
    }
    for (size_t l = 0; l < levels.size(); ++l) {
      const int64_t end = levels[l].back();
      for (const int64_t offset : next.level(l).drop_front()) levels[l].push_back(end + offset);
    }
  }
  return Lod(std::move(levels));
}

Status infer(InferContext& ctx) {
  const VarMeta first = ctx.input("X");
  const size_t count = ctx.input_count("X");
  for (size_t i = 0; i < count; ++i) {
    if (!ctx.input("X", i).has_shape) {
      ctx.set_output("Out", unknown_like(first));
      return Ok();
    }
  }
  if (ctx.has_input("AxisTensor")) {
    ctx.set_output("Out", with_dims(first, Dims(first.rank(), -1)));
    return Ok();
  }
  MILLRACE_ASSIGN_OR_RETURN(const int64_t axis,
                            checked_axis(ctx, "axis", ctx.attr<int64_t>("axis"), first.rank()));
  Dims dims = first.dims;
  for (size_t i = 1; i < count; ++i) {
    MILLRACE_RETURN_IF_ERROR(append(ctx, ctx.input("X", i), i, static_cast<size_t>(axis), dims));
  }
  VarMeta out = with_dims(first, dims);
  if (axis == 0) {
    MILLRACE_ASSIGN_OR_RETURN(out.lod, joined_lod(ctx, count));
  }
  ctx.set_output("Out", std::move(out));
  return Ok();
}

}  // namespace
}  // namespace concat_ops

void add_tensor_concat(OpRegistry& registry) {
  registry.add(OpDef("concat")
                   .doc("the operands, concatenated along a dim")
                   .input("X", "the same shape except along axis", Arity::kMany)
                   .input("AxisTensor", "one element; replaces the attribute", Arity::kOptional)
                   .output("Out", "shape of the operands, the sum along axis")
                   .attr("axis", 0, "dim along which to join")
                   .infer(concat_ops::infer)
                   .grad(grad_of_x("concat_grad", {"AxisTensor", "X"})));
}

}  // namespace millrace::ops

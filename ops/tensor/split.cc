#include <limits>

#include "ops/grad.h"
#include "ops/grad_rules.h"
#include "ops/infer_helpers.h"
#include "ops/lod_offsets.h"
#include "ops/registry.h"
#include "ops/tensor/helpers.h"

namespace millrace::ops {
namespace split_ops {
namespace {

StatusOr<Dims> equal_parts(const InferContext& ctx, int64_t size, int64_t num, size_t outputs) {
  if (num != static_cast<int64_t>(outputs)) {
    return ctx.error("Out must have {} vars, one for each part, found {}", num, outputs);
  }
  if (size >= 0 && size % num != 0) {
    return ctx.error("attribute 'num' ({}) does not divide the dim of X of size {}", num, size);
  }
  return Dims(static_cast<size_t>(num), size < 0 ? -1 : size / num);
}

// One section may be -1: the remaining size.
StatusOr<Dims> given_parts(const InferContext& ctx, int64_t size,
                           llvm::ArrayRef<int64_t> sections) {
  Dims parts(sections.begin(), sections.end());
  int64_t sum = 0;
  std::optional<size_t> open;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i] >= 0) {
      if (__builtin_add_overflow(sum, parts[i], &sum)) sum = std::numeric_limits<int64_t>::max();
    } else if (parts[i] < -1 || open) {
      return ctx.error("attribute 'sections' may have one -1 and sizes, found {}",
                       dims_text(parts));
    } else {
      open = i;
    }
  }
  if (size < 0) return parts;
  if (open ? sum > size : sum != size) {
    return ctx.error("attribute 'sections' {} must add up to the dim of X of size {}, found {}",
                     dims_text(parts), size, sum);
  }
  if (open) parts[*open] = size - sum;
  return parts;
}

// Sizes of the parts along the axis.
StatusOr<Dims> parts_of(const InferContext& ctx, int64_t size, size_t outputs) {
  if (ctx.has_input("SectionsTensorList")) return Dims(ctx.input_count("SectionsTensorList"), -1);
  const auto sections = ctx.attr<std::vector<int64_t>>("sections");
  if (!sections.empty()) return given_parts(ctx, size, sections);
  return equal_parts(ctx, size, ctx.attr<int64_t>("num"), outputs);
}

// The attributes alone determine the number of parts; the number of outputs may be wrong.
Status check_stated(const InferContext& ctx) {
  if (ctx.has_input("SectionsTensorList") || !ctx.attr<std::vector<int64_t>>("sections").empty() ||
      ctx.attr<int64_t>("num") > 0)
    return Ok();
  return ctx.error(
      "attribute 'num' must be at least 1 where 'sections' is empty, found {}: 'Out' has {} vars",
      ctx.attr<int64_t>("num"), ctx.output_count("Out"));
}

Status infer(InferContext& ctx) {
  MILLRACE_RETURN_IF_ERROR(check_stated(ctx));
  const VarMeta x = ctx.input("X");
  const size_t outputs = ctx.output_count("Out");
  if (!x.has_shape || outputs == 0) return Ok();
  if (ctx.has_input("AxisTensor")) {
    for (size_t i = 0; i < outputs; ++i)
      ctx.set_output("Out", tensor_meta(x.dtype, Dims(x.rank(), -1)), i);
    return Ok();
  }
  MILLRACE_ASSIGN_OR_RETURN(const int64_t axis,
                            checked_axis(ctx, "axis", ctx.attr<int64_t>("axis"), x.rank()));
  if (x.rank() == 0) return ctx.error("X must have at least one dim");
  const auto at = static_cast<size_t>(axis);
  MILLRACE_ASSIGN_OR_RETURN(const Dims parts, parts_of(ctx, x.dims[at], outputs));
  if (parts.size() != outputs) {
    return ctx.error("Out must have {} vars, one for each part, found {}", parts.size(), outputs);
  }
  for (size_t i = 0; i < outputs; ++i) {
    VarMeta out = x;
    out.dims[at] = parts[i];
    // Splitting the rows does not keep the sequences.
    if (at == 0) out = without_lod(std::move(out));
    ctx.set_output("Out", std::move(out), i);
  }
  return Ok();
}

// The gradient of a split is the concatenation of the parts' gradients.
StatusOr<std::vector<GradOp>> grad(const GradContext& ctx) {
  std::vector<std::string> wanted = ctx.input_grad("X");
  if (wanted.empty()) return std::vector<GradOp>{};
  GradOp op("concat");
  op.input("X", ctx.output_grad("Out"));
  if (auto axis = ctx.input("AxisTensor"); !axis.empty()) op.input("AxisTensor", std::move(axis));
  op.output("Out", std::move(wanted));
  copy_attrs(ctx, op);
  return one_grad_op(std::move(op));
}

}  // namespace
}  // namespace split_ops

void add_tensor_split(OpRegistry& registry) {
  using namespace split_ops;
  registry.add(
      OpDef("split")
          .doc("splits X into parts along a dim")
          .input("X", "at least one dim")
          .input("AxisTensor", "one element; replaces the attribute", Arity::kOptional)
          .input("SectionsTensorList", "one element for each part; replaces sections", Arity::kAny)
          .output("Out", "the parts in order", Arity::kMany)
          .attr("sections", std::vector<int32_t>{}, "sizes of the parts; one may be -1")
          .range(-1)
          .attr("num", 0, "number of equal parts; read if sections is empty")
          .range(0)
          .attr("axis", 0, "dim to split")
          .infer(infer)
          .grad(grad));
}

}  // namespace millrace::ops

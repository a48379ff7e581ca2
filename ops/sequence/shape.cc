#include <algorithm>

#include "ops/grad_rules.h"
#include "ops/infer_helpers.h"
#include "ops/registry.h"
#include "ops/sequence/lods.h"

// Ops that move rows of LoD sequences. The number of result rows is known at run time only.
namespace millrace::ops {
namespace shape {
namespace {

VarMeta rows_unknown(const VarMeta& meta, int32_t lod_level) {
  VarMeta out = meta;
  if (!out.dims.empty()) out.dims[0] = -1;
  out.lod_level = lod_level;
  return out;
}

Status infer_concat(InferContext& ctx) {
  const VarMeta& first = ctx.input("X");
  if (!dims_known(first) || first.dims.empty()) return Ok();
  VarMeta out = first;
  // the original joins sequences of the first level and returns no other
  if (!first.lod.empty()) out.lod = Lod({first.lod.levels().front()});
  for (size_t i = 1; i < ctx.input_count("X"); ++i) {
    const VarMeta& next = ctx.input("X", i);
    if (!dims_known(next)) return Ok();
    if (next.rank() != first.rank() ||
        !std::equal(next.dims.begin() + 1, next.dims.end(), first.dims.begin() + 1, dims_agree)) {
      return ctx.error("'X' has shapes {} and {}, expected the same dims after the first",
                       dims_text(first.dims), dims_text(next.dims));
    }
    const bool known = out.dims[0] >= 0 && next.dims[0] >= 0;
    out.dims[0] = known ? out.dims[0] + next.dims[0] : -1;
    if (out.lod.empty() || next.lod.empty()) continue;
    LodLevel offsets = out.lod.levels().front();
    const LodLevel& others = next.lod.levels().front();
    if (others.size() != offsets.size()) {
      return ctx.error("'X' has {} and {} sequences, expected the same number", offsets.size() - 1,
                       others.size() - 1);
    }
    for (size_t k = 0; k < offsets.size(); ++k) offsets[k] += others[k];
    out.lod = Lod({std::move(offsets)});
  }
  ctx.set_output("Out", std::move(out));
  return Ok();
}

Status infer_expand(InferContext& ctx) {
  const VarMeta& x = ctx.input("X");
  if (!dims_known(x)) return Ok();
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "X", 1, 100));
  const auto level = ctx.attr<int32_t>("ref_level");
  const int32_t levels = ctx.input("Y").lod_level;
  if (levels > 0 && level >= levels) {
    return ctx.error("attribute 'ref_level' is {}, but 'Y' has {} LoD levels", level, levels);
  }
  VarMeta out = rows_unknown(x, std::max(x.lod_level, 1));
  if (const Lod& lod = ctx.input("Y").lod; !lod.empty()) {
    const size_t at = level < 0 ? lod.size() - 1 : static_cast<size_t>(level);
    Expanded result = expanded(x.lod, x.dims[0], lod.level(at));
    out.dims[0] = result.rows;
    out.lod = std::move(result.lod);
    out.lod_level = static_cast<int32_t>(out.lod.size());
  }
  ctx.set_output("Out", std::move(out));
  return Ok();
}

Status infer_expand_as(InferContext& ctx) {
  const VarMeta& x = ctx.input("X");
  if (!dims_known(x)) return Ok();
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "X", 1, 100));
  const VarMeta& y = ctx.input("Y");
  VarMeta out = rows_unknown(x, std::max(y.lod_level, 1));
  out.lod = y.lod;
  if (!y.lod.empty()) out.dims[0] = expanded({}, x.dims[0], y.lod.level(0)).rows;
  ctx.set_output("Out", std::move(out));
  return Ok();
}

Status infer_same_rows(InferContext& ctx) {
  ctx.copy("X", "Y");
  return Ok();
}

Status infer_some_rows(InferContext& ctx) {
  const VarMeta& x = ctx.input("X");
  if (dims_known(x)) ctx.set_output("Out", rows_unknown(x, x.lod_level));
  return Ok();
}

Status infer_enumerate(InferContext& ctx) {
  const VarMeta& x = ctx.input("X");
  if (!dims_known(x)) return Ok();
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "X", 2, 2));
  if (!dims_agree(x.dims[1], 1))
    return ctx.error("'X' has shape {}, expected [rows, 1]", dims_text(x.dims));
  VarMeta out = x;
  out.dims[1] = ctx.attr<int32_t>("win_size");
  ctx.set_output("Out", std::move(out));
  return Ok();
}

Status infer_reshape(InferContext& ctx) {
  const VarMeta& x = ctx.input("X");
  if (!dims_known(x)) return Ok();
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "X", 2, 2));
  const auto width = ctx.attr<int32_t>("new_dim");
  const int64_t count = dims_product(x.dims);
  if (count >= 0 && count % width != 0) {
    return ctx.error("attribute 'new_dim' is {}, which does not divide the {} elements of 'X' {}",
                     width, count, dims_text(x.dims));
  }
  VarMeta out =
      tensor_meta(x.dtype, {count < 0 ? -1 : count / width, width}, std::max(x.lod_level, 1));
  if (!x.lod.empty()) {
    LodLevel offsets(x.lod.last().begin(), x.lod.last().end());
    for (int64_t& offset : offsets) offset = offset * x.dims[1] / width;
    out.lod = with_last(x.lod, std::move(offsets));
  }
  ctx.set_output("Out", std::move(out));
  return Ok();
}

Status infer_scatter(InferContext& ctx) {
  MILLRACE_RETURN_IF_ERROR(check_same_count(ctx, "Ids", "Updates"));
  ctx.copy("X", "Out");
  return Ok();
}

StatusOr<std::vector<GradOp>> grad_reverse(const GradContext& ctx) {
  std::vector<std::string> wanted = ctx.input_grad("X");
  if (wanted.empty()) return std::vector<GradOp>{};
  GradOp op("sequence_reverse");
  op.input("X", ctx.output_grad("Y")).output("Y", std::move(wanted));
  copy_attrs(ctx, op);
  return one_grad_op(std::move(op));
}

// The new offsets are the LoD of Y, or the elements of Y, or the attribute.
Status infer_lod_reset(InferContext& ctx) {
  const VarMeta& x = ctx.input("X");
  if (!dims_known(x)) return Ok();
  VarMeta out = x;
  const int32_t levels = ctx.has_input("Y") ? std::max(ctx.input("Y").lod_level, 1) : 1;
  if (!ctx.has_input("Y") && ctx.attr<std::vector<int32_t>>("target_lod").empty()) {
    return ctx.error(
        "attribute 'target_lod' is empty, expected offsets because input 'Y' is absent");
  }
  const bool append = ctx.attr<bool>("append");
  out.lod_level = append ? x.lod_level + 1 : levels;
  // If the offsets are the elements of Y, the kernel sets them.
  std::vector<LodLevel> wanted;
  if (!ctx.has_input("Y")) {
    wanted = {ctx.attr<std::vector<int64_t>>("target_lod")};
  } else if (!ctx.input("Y").lod.empty()) {
    wanted = ctx.input("Y").lod.levels();
  }
  if (append && !wanted.empty()) {
    std::vector<LodLevel> all = x.lod.levels();
    all.push_back(wanted.back());
    wanted = std::move(all);
  }
  out.lod = Lod(std::move(wanted));
  ctx.set_output("Out", std::move(out));
  return Ok();
}

void add_moves(OpRegistry& registry) {
  registry.add(OpDef("sequence_concat")
                   .doc("sequence i of Out = sequences i of all X, one after another")
                   .input("X", "sequences", Arity::kMany)
                   .output("Out", "sequences")
                   .infer(infer_concat)
                   .grad({"sequence_concat_grad", {"Out@GRAD", "X"}, {"X@GRAD"}, {}, true}));
  registry.add(OpDef("sequence_expand")
                   .doc("repeats sequence i of X as often as entry i of a LoD level of Y is long")
                   .input("X", "sequences, or one row each")
                   .input("Y", "only its LoD is used")
                   .output("Out", "sequences")
                   .attr("ref_level", -1, "LoD level of Y; -1: the last")
                   .range(-1)
                   .infer(infer_expand)
                   .grad({"sequence_expand_grad", {"Out@GRAD", "X", "Y"}, {"X@GRAD"}, {}, true}));
  registry.add(
      OpDef("sequence_expand_as")
          .doc("repeats row i of X as often as sequence i of Y is long")
          .input("X", "one row for each sequence")
          .input("Y", "only its LoD is used")
          .output("Out", "LoD of Y")
          .infer(infer_expand_as)
          .grad({"sequence_expand_as_grad", {"Out@GRAD", "X", "Y"}, {"X@GRAD"}, {}, true}));
  registry.add(OpDef("sequence_reverse")
                   .doc("every sequence in reverse order")
                   .input("X", "sequences")
                   .output("Y", "shape and LoD of X")
                   .infer(infer_same_rows)
                   .grad(grad_reverse));
  registry.add(OpDef("sequence_slice")
                   .doc("a part of every sequence")
                   .input("X", "sequences")
                   .input("Offset", "first row of each part [sequences, 1]")
                   .input("Length", "rows of each part [sequences, 1]")
                   .output("Out", "sequences")
                   .infer(infer_some_rows)
                   .grad({"sequence_slice_grad",
                          {"Length", "Offset", "Out@GRAD", "X"},
                          {"X@GRAD"},
                          {},
                          true}));
  registry.add(OpDef("sequence_erase")
                   .doc("drops the given tokens")
                   .input("X", "integer sequences [rows, 1] or [rows]")
                   .output("Out", "sequences")
                   .required_attr<std::vector<int32_t>>("tokens", "values to drop")
                   .infer(infer_some_rows));
}

}  // namespace
}  // namespace shape

void add_sequence_shape(OpRegistry& registry) {
  using namespace shape;
  add_moves(registry);
  registry.add(OpDef("sequence_enumerate")
                   .doc("row i = the win_size elements of its sequence from i on")
                   .input("X", "integer sequences [rows, 1]")
                   .output("Out", "[rows, win_size]")
                   .required_attr<int32_t>("win_size", "length of the window")
                   .range(1)
                   .attr("pad_value", 0, "value after the end of a sequence")
                   .infer(infer_enumerate));
  registry.add(OpDef("sequence_reshape")
                   .doc("other row width; every sequence keeps its elements")
                   .input("X", "sequences [rows, width]")
                   .output("Out", "[rows, new_dim]")
                   .required_attr<int32_t>("new_dim", "row width of Out")
                   .range(1)
                   .infer(infer_reshape)
                   .grad({"sequence_reshape_grad", {"Out@GRAD", "X"}, {"X@GRAD"}, {}}));
  registry.add(OpDef("sequence_scatter")
                   .doc("Out = X; row i gets sequence i of Updates added at columns Ids")
                   .input("X", "[sequences, width]")
                   .input("Ids", "columns, by sequence [rows, 1]")
                   .input("Updates", "summands, by sequence [rows, 1]")
                   .output("Out", "shape of X")
                   .infer(infer_scatter)
                   .grad({"sequence_scatter_grad",
                          {"Ids", "Out@GRAD", "Updates"},
                          {"Updates@GRAD", "X@GRAD"},
                          {{"X@GRAD", "Out@GRAD"}},
                          true}));
  registry.add(OpDef("lod_reset")
                   .doc("Out = X with other LoD")
                   .input("X", "any shape")
                   .input("Y", "its LoD, or else its elements, are the offsets", Arity::kOptional)
                   .output("Out", "shape of X")
                   .attr("target_lod", std::vector<int32_t>{}, "offsets, if there is no Y")
                   .range(0)
                   .attr("append", false, "add a level below those of X")
                   .infer(infer_lod_reset)
                   .grad({"lod_reset_grad", {"Out@GRAD", "X"}, {"X@GRAD"}, {}})
                   .inplace("X", "Out"));
}

}  // namespace millrace::ops

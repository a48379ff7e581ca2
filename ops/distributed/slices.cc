#include "ops/grad.h"
#include "ops/infer_helpers.h"
#include "ops/random/create.h"
#include "ops/registry.h"

// Helper ops of transpiled programs: they split gradients into slices of rows, choose the copy of a
// trainer, and declare or free vars.
namespace millrace::ops {
namespace {

// Output i gets sections[i] rows of X. The sections must cover X, and exceed it only if `beyond`.
Status infer_sections(InferContext& ctx, const char* attr, bool beyond) {
  const auto sections = ctx.attr<std::vector<int64_t>>(attr);
  const size_t outputs = ctx.op().output("Out").size();
  if (!sections.empty() && sections.size() != outputs) {
    return ctx.error("attribute '{}' has {} sections, expected {}, one for each var of 'Out'", attr,
                     sections.size(), outputs);
  }
  const VarMeta& x = ctx.input("X");
  if (!dims_known(x)) return Ok();
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "X", 1, 100));
  int64_t sum = 0;
  for (const int64_t rows : sections) sum += rows;
  // The section of the last server may exceed the table.
  const bool covered = beyond ? sum >= x.dims[0] : dims_agree(sum, x.dims[0]);
  if (!sections.empty() && !covered) {
    return ctx.error("attribute '{}' has {} rows in all, expected {}{}, dim 0 of 'X' {}", attr, sum,
                     beyond ? "at least " : "", x.dims[0], dims_text(x.dims));
  }
  for (size_t i = 0; i < outputs; ++i) {
    VarMeta out = x;
    out.lod_level = 0;
    out.lod = {};
    out.dims[0] = sections.empty() ? -1 : sections[i];
    ctx.set_output("Out", std::move(out), i);
  }
  return Ok();
}

Status infer_split_byref(InferContext& ctx) {
  const auto parts = ctx.attr<int32_t>("num");
  if (parts <= 0 && ctx.attr<std::vector<int64_t>>("sections").empty()) {
    return ctx.error("attribute 'num' must be at least 1 where 'sections' is empty, found {}",
                     parts);
  }
  if (ctx.attr<std::vector<int64_t>>("sections").empty() && parts > 0 && ctx.has_input("X") &&
      dims_known(ctx.input("X")) && ctx.input("X").rank() > 0) {
    const VarMeta& x = ctx.input("X");
    if (x.dims[0] >= 0 && x.dims[0] % parts != 0) {
      return ctx.error("attribute 'num' is {}, which does not divide dim 0 of 'X' {}", parts,
                       dims_text(x.dims));
    }
    for (size_t i = 0; i < ctx.op().output("Out").size(); ++i) {
      VarMeta out = x;
      out.lod_level = 0;
      out.lod = {};
      out.dims[0] = x.dims[0] < 0 ? -1 : x.dims[0] / parts;
      ctx.set_output("Out", std::move(out), i);
    }
    return Ok();
  }
  return infer_sections(ctx, "sections", /*beyond=*/false);
}

Status infer_split_selected_rows(InferContext& ctx) {
  return infer_sections(ctx, "height_sections", /*beyond=*/true);
}

// The gradient of a split of rows is the sum of the gradients of the slices.
StatusOr<std::vector<GradOp>> grad_split_selected_rows(const GradContext& ctx) {
  std::vector<std::string> wanted = ctx.input_grad("X");
  if (wanted.empty()) return std::vector<GradOp>{};
  GradOp op("sum");
  op.input("X", ctx.output_grad("Out")).output("Out", std::move(wanted));
  return std::vector<GradOp>{std::move(op)};
}

Status infer_ref(InferContext& ctx) {
  ctx.copy("X", "Out");
  return Ok();
}

// The output gets no dims: an executor would allocate it, and it must stay without a value.
Status infer_fake_init(InferContext& ctx) {
  return checked_dtype(ctx, "dtype").status();
}

}  // namespace

void add_distributed_slices(OpRegistry& registry) {
  registry.add(OpDef("split_byref")
                   .doc("splits X on dim 0 into slices that may share its memory")
                   .input("X", "at least one dim")
                   .output("Out", "the slices in order", Arity::kMany)
                   .attr("sections", std::vector<int32_t>{}, "rows of each slice")
                   .range(0)
                   .attr("num", 0, "number of equal slices, if there are no sections")
                   .range(0)
                   .infer(infer_split_byref));
  registry.add(OpDef("split_selected_rows")
                   .doc("distributes rows by running sums of sections; row numbers become local")
                   .input("X", "rows of one table")
                   .output("Out", "one var for each section", Arity::kMany)
                   .attr("height_sections", std::vector<int64_t>{}, "table rows of each section")
                   .range(0)
                   .infer(infer_split_selected_rows)
                   .grad(grad_split_selected_rows));
  registry.add(OpDef("ref_by_trainer_id")
                   .doc("Out = X[trainer id]")
                   .input("X", "one copy for each trainer", Arity::kMany)
                   .input("TrainerId", "one element", Arity::kOne)
                   .output("Out", "the chosen copy")
                   .infer(infer_ref));
  registry.add(OpDef("fake_init")
                   .doc("declares a var of a given shape without setting its elements")
                   .output("Out", "the var", Arity::kOne, kAnyKind)
                   .attr("shape", std::vector<int64_t>{}, "dims of Out")
                   .range(0)
                   .attr("dtype", 5, "element type, VarType number")
                   .infer(infer_fake_init));
  registry.add(OpDef("delete_var")
                   .doc("frees vars of the scope")
                   .input("X", "vars to free", Arity::kAny, kAnyKind)
                   .side_effects());
}

}  // namespace millrace::ops

#include "ops/grad_rules.h"
#include "ops/infer_helpers.h"
#include "ops/registry.h"

namespace millrace::ops {
namespace data_norm {
namespace {

Status infer(InferContext& ctx) {
  const VarMeta x = ctx.input("X");
  const VarMeta size = ctx.input("BatchSize");
  int64_t channels = size.has_shape ? dims_product(size.dims) : -1;
  if (x.has_shape && x.rank() >= 2) {
    if (!dims_agree(channels, x.dims.back()) && x.rank() == 2) {
      return ctx.error("BatchSize {} must have one element for each column of X {}",
                       dims_text(size.dims), dims_text(x.dims));
    }
    if (channels < 0 && x.rank() == 2) channels = x.dims[1];
  }
  ctx.set_output("Y", x);
  ctx.set_output("Means", x.dtype, {channels});
  ctx.set_output("Scales", x.dtype, {channels});
  return Ok();
}

// The gradient op updates the statistics in place and also writes their increments.
StatusOr<std::vector<GradOp>> grad(const GradContext& ctx) {
  GradOp op("data_norm_grad");
  op.input("X", ctx.input("X")).input("Y@GRAD", ctx.output_grad("Y"));
  for (const char* const slot : {"scale_w", "bias"}) {
    if (auto names = ctx.input(slot); !names.empty()) op.input(slot, std::move(names));
  }
  op.input("Scales", ctx.output("Scales")).input("Means", ctx.output("Means"));
  for (const char* const slot : {"BatchSize", "BatchSum", "BatchSquareSum"})
    op.output(slot, ctx.input(slot));
  if (!add_wanted_grads(ctx, {"X", "BatchSize", "BatchSum", "BatchSquareSum", "scale_w", "bias"},
                        op))
    return std::vector<GradOp>{};
  copy_attrs(ctx, op);
  return one_grad_op(std::move(op));
}

Status infer_grad(InferContext& ctx) {
  ctx.copy("X", "X@GRAD");
  ctx.copy("scale_w", "scale_w@GRAD");
  ctx.copy("bias", "bias@GRAD");
  const VarMeta means = ctx.input("Means");
  if (!means.has_shape) return Ok();
  for (const llvm::StringRef slot : {"BatchSize@GRAD", "BatchSum@GRAD", "BatchSquareSum@GRAD"})
    ctx.set_output(slot, means);
  return Ok();
}

void add_attrs(OpDef& def) {
  def.attr("epsilon", 1e-4F, "smallest square sum")
      .range(0)
      .attr("slot_dim", -1, "width of a slot whose first column counts shows; -1: none")
      .attr("summary_decay_rate", 0.9999999F, "weight of the old statistics")
      .range(0, 1)
      .attr("enable_scale_and_shift", false, "apply scale_w and bias")
      .attr("data_layout", "NCHW", "no effect on matrices")
      .one_of({"NCHW", "NHWC", "AnyLayout"})
      .attr("sync_stats", false, "add up the statistics of all devices");
}

}  // namespace
}  // namespace data_norm

/// data_norm, data_norm_grad
void add_nn_data_norm(OpRegistry& registry) {
  using namespace data_norm;
  OpDef forward("data_norm");
  forward.doc("every column shifted and scaled by statistics gathered over all batches so far")
      .input("scale_w", "[columns], factor", Arity::kOptional)
      .input("bias", "[columns], summand", Arity::kOptional)
      .input("X", "a matrix")
      .input("BatchSize", "[columns], number of rows seen")
      .input("BatchSum", "[columns], sum of the rows seen")
      .input("BatchSquareSum", "[columns], sum of the squares of the rows seen")
      .output("Y", "shape and dtype of X")
      .intermediate("Means", "[columns]")
      .intermediate("Scales", "[columns], 1 / standard deviation")
      .infer(infer)
      .grad(grad);
  add_attrs(forward);
  registry.add(std::move(forward));
  OpDef backward("data_norm_grad");
  backward.doc("gradient of data_norm; updates the statistics")
      .input("X", "input of the forward op")
      .input("Y@GRAD", "gradient of Y")
      .input("scale_w", "[columns]", Arity::kOptional)
      .input("bias", "[columns]", Arity::kOptional)
      .input("Scales", "[columns]", Arity::kOptional)
      .input("Means", "[columns]", Arity::kOptional)
      .input("BatchSize", "statistics, in old programs", Arity::kOptional)
      .input("BatchSum", "statistics, in old programs", Arity::kOptional)
      .input("BatchSquareSum", "statistics, in old programs", Arity::kOptional)
      .output("BatchSize", "statistics, updated", Arity::kOptional)
      .output("BatchSum", "statistics, updated", Arity::kOptional)
      .output("BatchSquareSum", "statistics, updated", Arity::kOptional)
      .output("X@GRAD", "gradient of X", Arity::kOptional)
      .output("BatchSize@GRAD", "increment of the statistics", Arity::kOptional)
      .output("BatchSum@GRAD", "increment of the statistics", Arity::kOptional)
      .output("BatchSquareSum@GRAD", "increment of the statistics", Arity::kOptional)
      .output("scale_w@GRAD", "[columns]", Arity::kOptional)
      .output("bias@GRAD", "[columns]", Arity::kOptional)
      .infer(infer_grad);
  add_attrs(backward);
  registry.add(std::move(backward));
}

}  // namespace millrace::ops

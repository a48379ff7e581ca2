#include "ops/collective/defs.h"
#include "ops/infer_helpers.h"

// Ops in which all ranks of a group take part. A rank that drops one leaves the others waiting, so
// all of them count as having side effects.
namespace millrace::ops {
namespace {

OpDef collective(llvm::StringRef type, llvm::StringRef doc) {
  OpDef def(type);
  def.doc(doc)
      .input("X", "what this rank brings in")
      .output("Out", "the result; X itself in most programs")
      .infer(infer_unary)
      .inplace("X", "Out")
      .side_effects()
      .capability(Capability::kNetwork);
  return def;
}

OpDef ring(llvm::StringRef type, llvm::StringRef doc) {
  OpDef def = collective(type, doc);
  def.attr("ring_id", 0, "number of the group")
      .range(0)
      .attr("use_calc_stream", false, "order of the original's streams; no effect on results");
  return def;
}

OpDef reduction(llvm::StringRef type, llvm::StringRef doc) {
  OpDef def = ring(type, doc);
  def.input("Cond", "skip if false", Arity::kOptional)
      .attr("use_model_parallel", false, "no effect on results");
  return def;
}

// The joined result has nranks times the rows.
Status infer_gather(InferContext& ctx) {
  const VarMeta& x = ctx.input("X");
  if (!dims_known(x)) return Ok();
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "X", 1, 100));
  VarMeta out = x;
  if (x.dims[0] >= 0) out.dims[0] = x.dims[0] * ctx.attr<int32_t>("nranks");
  ctx.set_output("Out", std::move(out));
  return Ok();
}

Status infer_scatter(InferContext& ctx) {
  const VarMeta& x = ctx.input("X");
  if (!dims_known(x)) return Ok();
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "X", 1, 100));
  const auto ranks = ctx.attr<int32_t>("nranks");
  VarMeta out = x;
  if (x.dims[0] >= 0) {
    if (x.dims[0] % ranks != 0) {
      return ctx.error("dim 0 of 'X' {} is not a multiple of attribute 'nranks' {}",
                       dims_text(x.dims), ranks);
    }
    out.dims[0] = x.dims[0] / ranks;
  }
  ctx.set_output("Out", std::move(out));
  return Ok();
}

}  // namespace

void add_collective_ops(OpRegistry& registry) {
  registry.add(reduction("c_allreduce_sum", "sum over all ranks"));
  registry.add(reduction("c_allreduce_max", "largest over all ranks"));
  registry.add(reduction("c_allreduce_min", "smallest over all ranks"));
  registry.add(reduction("c_allreduce_prod", "product over all ranks"));
  registry.add(reduction("c_reduce_sum", "sum over all ranks, at one of them")
                   .attr("root_id", 0, "rank that gets the result")
                   .range(0));
  registry.add(ring("c_broadcast", "the value of one rank")
                   .attr("root", 0, "rank whose value counts")
                   .range(0));
  registry.add(ring("c_allgather", "values of all ranks, joined on dim 0")
                   .attr("nranks", 1, "size of the group")
                   .range(1)
                   .infer(infer_gather));
  registry.add(ring("c_reducescatter", "sum over all ranks, each gets its share of rows")
                   .attr("nranks", 1, "size of the group")
                   .range(1)
                   .infer(infer_scatter));
  registry.add(ring("barrier", "waits for all ranks"));
  registry.add(collective("allreduce", "old form: reduction over all ranks")
                   .attr("reduce_type", 0, "0 sum, 1 product, 2 max, 3 min")
                   .range(0, 3)
                   .attr("sync_mode", false, "no effect on results"));
  registry.add(collective("broadcast", "old form: the value of one rank")
                   .attr("root", 0, "rank whose value counts")
                   .range(0)
                   .attr("sync_mode", false, "no effect on results"));
}

}  // namespace millrace::ops

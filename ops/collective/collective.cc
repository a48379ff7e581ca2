#include "ops/infer_helpers.h"
#include "ops/registry.h"

// Ops in which all ranks of a group take part. A rank that drops one leaves the others waiting, so
// all of them count as having side effects.
namespace millrace::ops {
namespace collective_ops {
namespace {

OpDef collective(llvm::StringRef type, llvm::StringRef doc) {
  OpDef def(type);
  def.doc(doc)
      .input("X", "value of this rank")
      .output("Out", "the result; X itself in most programs")
      .infer(infer_unary)
      .inplace("X", "Out")
      .side_effects()
      .capability(Capability::kNetwork);
  return def;
}

OpDef ring(llvm::StringRef type, llvm::StringRef doc) {
  OpDef def = collective(type, doc);
  def.attr("ring_id", 0, "id of the process group")
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

// Inputs keep their shapes. The length of the buffer is unknown: alignment is chosen at run time.
Status infer_coalesce(InferContext& ctx) {
  copy_each(ctx, "Input", "Output");
  VarMeta buffer;
  MILLRACE_ASSIGN_OR_RETURN(buffer.dtype, checked_dtype(ctx, "dtype"));
  buffer.has_shape = true;
  buffer.dims = {-1};
  ctx.set_output("FusedOutput", std::move(buffer));
  return Ok();
}

OpDef coalesce_tensor() {
  return OpDef("coalesce_tensor")
      .doc("Moves tensors into one buffer, so that they can be reduced at once.")
      .input("Input", "tensors of one element type", Arity::kMany)
      .output("Output", "the same tensors, stored in the buffer", Arity::kMany)
      .output("FusedOutput", "the buffer, rank 1")
      .attr("dtype", static_cast<int32_t>(DType::kFloat32), "element type of the buffer")
      .attr("copy_data", false, "copy the values of Input")
      .attr("set_constant", false, "set all elements to 'constant', unless copy_data is set")
      .attr("constant", 0.0F, "value with set_constant")
      .attr("persist_output", false, "keep the buffer between steps")
      .attr("use_align", true, "tensors start at multiples of align_size")
      .attr("align_size", -1, "in bytes; -1: that of the allocator")
      .attr("user_defined_size_of_dtype", -1, "bytes of an element; -1: those of dtype")
      .infer(infer_coalesce);
}

// One reduction over many tensors; each keeps its shape.
OpDef allreduce_list() {
  return OpDef("c_allreduce_xsum")
      .doc("sum over all ranks, of each tensor in a list")
      .input("X", "value of this rank", Arity::kMany)
      .output("Out", "the results; X itself in most programs", Arity::kMany)
      .attr("ring_id", 0, "id of the process group")
      .range(0)
      .infer([](InferContext& ctx) {
        copy_each(ctx, "X", "Out");
        return Ok();
      })
      .side_effects()
      .capability(Capability::kNetwork);
}

}  // namespace
}  // namespace collective_ops

void add_collective_collective(OpRegistry& registry) {
  using namespace collective_ops;
  registry.add(reduction("c_allreduce_sum", "sum over all ranks"));
  registry.add(allreduce_list());
  registry.add(coalesce_tensor());
  registry.add(reduction("c_allreduce_max", "largest over all ranks"));
  registry.add(reduction("c_allreduce_min", "smallest over all ranks"));
  registry.add(reduction("c_allreduce_prod", "product over all ranks"));
  const auto rooted = [](llvm::StringRef type, llvm::StringRef doc) {
    return reduction(type, doc).attr("root_id", 0, "rank that gets the result").range(0);
  };
  registry.add(rooted("c_reduce_sum", "sum over all ranks, at one of them"));
  registry.add(rooted("c_reduce_max", "largest over all ranks, at one of them"));
  registry.add(rooted("c_reduce_min", "smallest over all ranks, at one of them"));
  registry.add(rooted("c_reduce_prod", "product over all ranks, at one of them"));
  registry.add(ring("c_broadcast", "the value of one rank")
                   .attr("root", 0, "rank whose value is sent")
                   .range(0));
  registry.add(ring("c_allgather", "values of all ranks, joined on dim 0")
                   .attr("nranks", 1, "size of the group")
                   .range(1)
                   .infer(infer_gather));
  registry.add(ring("c_reducescatter", "sum over all ranks; each gets an equal share of its rows")
                   .attr("nranks", 1, "size of the group")
                   .range(1)
                   .infer(infer_scatter));
  registry.add(ring("barrier", "waits for all ranks"));
  registry.add(collective("allreduce", "old form: reduction over all ranks")
                   .attr("reduce_type", 0, "0 sum, 1 product, 2 max, 3 min")
                   .range(0, 3)
                   .attr("sync_mode", false, "no effect on results"));
  registry.add(collective("broadcast", "old form: the value of one rank")
                   .attr("root", 0, "rank whose value is sent")
                   .range(0)
                   .attr("sync_mode", false, "no effect on results"));
}

}  // namespace millrace::ops

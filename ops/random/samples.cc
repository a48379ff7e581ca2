#include "ops/infer_helpers.h"
#include "ops/lod_offsets.h"
#include "ops/random/create.h"
#include "ops/registry.h"

// bernoulli, seed and shuffle_batch.
namespace millrace::ops {
namespace {

Status infer_seed(InferContext& ctx) {
  ctx.set_output("Out", DType::kInt32, {1});
  return Ok();
}

Status infer_bernoulli(InferContext& ctx) {
  ctx.set_output("Out", without_offsets(ctx.input("X")));
  return Ok();
}

Status infer_shuffle_batch(InferContext& ctx) {
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "X", 1, 64));
  const VarMeta& x = ctx.input("X");
  const int64_t rows =
      dims_known(x) ? dims_product(llvm::ArrayRef<int64_t>(x.dims).drop_back()) : -1;
  ctx.copy("X", "Out");
  ctx.set_output("ShuffleIdx", DType::kInt64, {rows});
  ctx.set_output("SeedOut", DType::kInt64, {1});
  return Ok();
}

}  // namespace

/// empty, bernoulli, seed, shuffle_batch
void add_random_samples(OpRegistry& registry) {
  OpDef empty("empty");
  empty.doc("tensor whose elements the program must not read before it writes them; zeros here");
  registry.add(with_shape_and_dtype(empty, 5));

  registry.add(OpDef("bernoulli")
                   .doc("1 with the probability that X says, else 0")
                   .input("X", "probabilities")
                   .output("Out", "shape and dtype of X")
                   .infer(infer_bernoulli));
  registry.add(OpDef("seed")
                   .doc("the given seed, or a new one in each run")
                   .output("Out", "int32 [1]")
                   .attr("seed", 0, "0: a new one in each run")
                   .attr("force_cpu", false, "keep the result in host memory")
                   .infer(infer_seed));
  registry.add(OpDef("shuffle_batch")
                   .doc("rows in another order, in which no row keeps its position")
                   .input("X", "rows: all dims but the last one count them")
                   .input("Seed", "int64 [1]", Arity::kOptional)
                   .output("Out", "row i of X at ShuffleIdx[i]; shape, dtype and LoD of X")
                   .output("ShuffleIdx", "int64 [rows]")
                   .output("SeedOut", "int64 [1], the seed of the next run")
                   .attr("startup_seed", 0, "the seed where Seed holds none")
                   .infer(infer_shuffle_batch)
                   .grad({.type = "shuffle_batch_grad",
                          .inputs = {"ShuffleIdx", "Out@GRAD"},
                          .outputs = {"X@GRAD"},
                          .shape_like = {{"X@GRAD", "Out@GRAD"}}}));
}

}  // namespace millrace::ops

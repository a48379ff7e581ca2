#include "ops/random/create.h"
#include "ops/registry.h"

namespace millrace::ops {
namespace {

OpDef& with_normal(OpDef& def) {
  return def.attr("mean", 0.0F, "mean of the distribution")
      .attr("std", 1.0F, "standard deviation")
      .range(0)
      .attr("seed", 0, "0: the program's seed");
}

// The diagonal can be overwritten, which old initializers use.
OpDef& with_uniform(OpDef& def) {
  return def.attr("min", -1.0F, "lower bound, may occur")
      .attr("max", 1.0F, "upper bound, does not occur")
      .attr("seed", 0, "0: the program's seed")
      .attr("diag_num", 0, "number of diagonal elements to overwrite")
      .range(0)
      .attr("diag_step", 0, "distance of two of them in row-major order, less 1")
      .range(0)
      .attr("diag_val", 1.0F, "their value");
}

Status infer_randint(InferContext& ctx) {
  const int32_t low = ctx.attr<int32_t>("low");
  const int32_t high = ctx.attr<int32_t>("high");
  if (low >= high)
    return ctx.error("attribute 'low' is {}, which is not below 'high' {}", low, high);
  return infer_created(ctx);
}

Status infer_randperm(InferContext& ctx) {
  MILLRACE_ASSIGN_OR_RETURN(const DType dtype, checked_dtype(ctx, "dtype"));
  ctx.set_output("Out", dtype, {ctx.attr<int32_t>("n")});
  return Ok();
}

void add_normal(OpRegistry& registry) {
  OpDef gaussian("gaussian_random");
  gaussian.doc("numbers from a normal distribution");
  registry.add(with_normal(with_shape_and_dtype(gaussian, 5)));

  OpDef like("gaussian_random_batch_size_like");
  like.doc("gaussian_random with one dim of another tensor");
  registry.add(with_normal(with_batch_size_like(like)));

  OpDef truncated("truncated_gaussian_random");
  truncated.doc("numbers from a normal distribution within two standard deviations");
  registry.add(with_normal(with_shape_and_dtype(truncated, 5)));
}

void add_uniform(OpRegistry& registry) {
  OpDef uniform("uniform_random");
  uniform.doc("numbers from a uniform distribution");
  registry.add(with_uniform(with_shape_and_dtype(uniform, 5)));

  OpDef like("uniform_random_batch_size_like");
  like.doc("uniform_random with one dim of another tensor");
  registry.add(with_uniform(with_batch_size_like(like)));
}

}  // namespace

/// Ops that draw numbers.
void add_random_draw(OpRegistry& registry) {
  add_normal(registry);
  add_uniform(registry);

  OpDef randint("randint");
  randint.doc("integers from [low, high), uniformly distributed");
  registry.add(with_shape_and_dtype(randint, 3)
                   .required_attr<int32_t>("low", "smallest value")
                   .required_attr<int32_t>("high", "first value that does not occur")
                   .attr("seed", 0, "0: the program's seed")
                   .infer(infer_randint));
  registry.add(OpDef("randperm")
                   .doc("the numbers 0 to n - 1 in random order")
                   .output("Out", "[n]")
                   .required_attr<int32_t>("n", "how many")
                   .range(1)
                   .attr("dtype", 3, "element type of Out")
                   .attr("seed", 0, "0: the program's seed")
                   .infer(infer_randperm));
}

}  // namespace millrace::ops

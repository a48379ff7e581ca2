#include "ops/infer_helpers.h"
#include "ops/registry.h"

// Comparisons of whole tensors, with one bool as result.
namespace millrace::ops {
namespace {

Status infer_equal_all(InferContext& ctx) {
  ctx.set_output("Out", DType::kBool, {});
  return Ok();
}

Status infer_allclose(InferContext& ctx) {
  MILLRACE_RETURN_IF_ERROR(check_same_dims(ctx, "Input", "Other"));
  ctx.set_output("Out", DType::kBool, {});
  return Ok();
}

}  // namespace

/// equal_all, allclose.
void add_elementwise_all_equal(OpRegistry& registry) {
  registry.add(OpDef("equal_all")
                   .doc("whether X and Y have the same shape and equal elements")
                   .input("X", "any shape")
                   .input("Y", "any shape, type of X")
                   .output("Out", "one bool")
                   .infer(infer_equal_all)
                   .flops(elementwise_flops));
  registry.add(OpDef("allclose")
                   .doc("whether |Input - Other| <= atol + rtol * |Other| everywhere")
                   .input("Input", "f32 or f64")
                   .input("Other", "shape and type of Input")
                   .input("Rtol", "one element; replaces rtol", Arity::kOptional)
                   .input("Atol", "one element; replaces atol", Arity::kOptional)
                   .output("Out", "one bool")
                   .attr("rtol", "1e-05", "a number as text")
                   .attr("atol", "1e-08", "a number as text")
                   .attr("equal_nan", false, "NaN is close to NaN")
                   .infer(infer_allclose)
                   .flops(elementwise_flops));
}

}  // namespace millrace::ops

#include "ops/infer_helpers.h"
#include "ops/registry.h"

namespace millrace::ops {
namespace number_sequences {
namespace {

Status infer_range(InferContext& ctx) {
  for (const char* const slot : {"Start", "End", "Step"})
    MILLRACE_RETURN_IF_ERROR(check_elements(ctx, slot, 1));
  ctx.set_output("Out", ctx.input("Start").dtype, {-1});
  return Ok();
}

Status infer_linspace(InferContext& ctx) {
  for (const char* const slot : {"Start", "Stop", "Num"})
    MILLRACE_RETURN_IF_ERROR(check_elements(ctx, slot, 1));
  MILLRACE_ASSIGN_OR_RETURN(const DType dtype, checked_dtype(ctx, "dtype"));
  ctx.set_output("Out", dtype, {-1});
  return Ok();
}

}  // namespace
}  // namespace number_sequences

/// range and linspace.
void add_random_number_sequences(OpRegistry& registry) {
  using namespace number_sequences;
  registry.add(OpDef("range")
                   .doc("numbers from Start in increments of Step, up to but excluding End")
                   .input("Start", "one element")
                   .input("End", "one element")
                   .input("Step", "one element, not 0")
                   .output("Out", "rank 1, dtype of Start; how many depends on the values")
                   .infer(infer_range));
  registry.add(OpDef("linspace")
                   .doc("Num numbers at equal distances from Start to Stop, both included")
                   .input("Start", "one element")
                   .input("Stop", "one element")
                   .input("Num", "one integer")
                   .output("Out", "rank 1")
                   .attr("dtype", 5, "element type of Out")
                   .infer(infer_linspace));
}

}  // namespace millrace::ops

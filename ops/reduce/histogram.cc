#include "ops/infer_helpers.h"
#include "ops/registry.h"

namespace millrace::ops {
namespace histogram {
namespace {

Status infer(InferContext& ctx) {
  const auto bins = ctx.attr<int64_t>("bins");
  if (ctx.attr<int64_t>("min") > ctx.attr<int64_t>("max")) {
    return ctx.error("attribute 'min' is {}, which is above 'max' {}", ctx.attr<int64_t>("min"),
                     ctx.attr<int64_t>("max"));
  }
  ctx.set_output("Out", DType::kInt64, {bins});
  return Ok();
}

}  // namespace
}  // namespace histogram

void add_reduce_histogram(OpRegistry& registry) {
  registry.add(
      OpDef("histogram")
          .doc("how many elements fall into each of several equal parts of a range")
          .input("X", "any shape")
          .output("Out", "int64 [bins]")
          .attr("bins", int64_t{100}, "number of parts")
          .range(1)
          .attr("min", 0, "where the range begins")
          .attr("max", 0,
                "where it ends, included in the last part; equal to min: use the range of X")
          .infer(histogram::infer)
          .flops(elementwise_flops));
}

}  // namespace millrace::ops

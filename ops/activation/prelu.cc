#include "ops/infer_helpers.h"
#include "ops/lod_offsets.h"
#include "ops/registry.h"

namespace millrace::ops {
namespace prelu {
namespace {

// The required number of elements of Alpha; -1 if unknown.
int64_t alpha_elements(const InferContext& ctx, const VarMeta& x) {
  const auto mode = ctx.attr<std::string>("mode");
  if (mode == "all") return 1;
  if (!dims_known(x) || x.rank() < 2) return -1;
  if (mode == "channel")
    return ctx.attr<std::string>("data_format") == "NHWC" ? x.dims.back() : x.dims[1];
  return dims_product(llvm::ArrayRef<int64_t>(x.dims).drop_front());
}

Status infer(InferContext& ctx) {
  const int64_t expected = alpha_elements(ctx, ctx.input("X"));
  const VarMeta& alpha = ctx.input("Alpha");
  if (expected >= 0 && dims_known(alpha)) {
    const int64_t found = dims_product(alpha.dims);
    if (found >= 0 && found != expected) {
      return ctx.error("Alpha must have {} elements for mode '{}' and X {}, found {}", expected,
                       ctx.attr<std::string>("mode"), dims_text(ctx.input("X").dims),
                       dims_text(alpha.dims));
    }
  }
  return infer_unary(ctx);
}

}  // namespace
}  // namespace prelu

void add_activation_prelu(OpRegistry& registry) {
  registry.add(OpDef("prelu")
                   .doc("x if x > 0 else Alpha * x")
                   .input("X", "batch first, rank >= 2 unless mode is all")
                   .input("Alpha", "slopes below zero; mode determines their number")
                   .output("Out", "shape, dtype and LoD of X")
                   .attr("mode", "all",
                         "one slope for all elements, one per channel, or one per element of a row")
                   .one_of({"all", "channel", "element"})
                   .attr("data_format", "NCHW", "where the channels are")
                   .infer(prelu::infer)
                   .grad({.type = "prelu_grad",
                          .inputs = {"Alpha", "Out@GRAD", "X"},
                          .outputs = {"Alpha@GRAD", "X@GRAD"},
                          .shape_like = {{"X@GRAD", "Out@GRAD"}},
                          .infer = infer_grad_without_offsets})
                   .flops(elementwise_flops)
                   .inplace("X", "Out"));
}

}  // namespace millrace::ops

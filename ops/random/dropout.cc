#include "ops/infer_helpers.h"
#include "ops/registry.h"

namespace millrace::ops {
namespace dropout_ops {
namespace {

Status infer(InferContext& ctx) {
  VarMeta mask = ctx.input("X");
  mask.dtype = DType::kUint8;
  mask.lod_level = 0;
  mask.lod = {};
  ctx.set_output("Mask", std::move(mask));
  return infer_unary(ctx);
}

}  // namespace
}  // namespace dropout_ops

void add_random_dropout(OpRegistry& registry) {
  registry.add(OpDef("dropout")
                   .doc("sets elements to 0 at random while training")
                   .input("X", "any shape")
                   .input("Seed", "one integer; replaces seed", Arity::kOptional)
                   .output("Out", "shape, dtype and LoD of X")
                   .intermediate("Mask", "uint8, 1 where an element was kept")
                   .attr("dropout_prob", 0.5F, "share of elements that become 0")
                   .range(0, 1)
                   .attr("dropout_implementation", "downgrade_in_infer",
                         "scale by the kept share when inferring, or by its inverse when training")
                   .one_of({"downgrade_in_infer", "upscale_in_train"})
                   .attr("is_test", false, "inference form")
                   .attr("fix_seed", false, "use seed even if it is 0")
                   .attr("seed", 0, "0: the program's seed")
                   .infer(dropout_ops::infer)
                   .grad({.type = "dropout_grad",
                          .inputs = {"Mask", "Out@GRAD"},
                          .outputs = {"X@GRAD"},
                          .shape_like = {{"X@GRAD", "Out@GRAD"}}})
                   .flops(elementwise_flops)
                   .inplace("X", "Out"));
}

}  // namespace millrace::ops

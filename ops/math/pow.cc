#include "ops/infer_helpers.h"
#include "ops/registry.h"

namespace millrace::ops {

void add_math_pow(OpRegistry& registry) {
  registry.add(OpDef("pow")
                   .doc("each element to the power of factor")
                   .input("X", "any shape")
                   .input("FactorTensor", "one element; replaces factor", Arity::kOptional)
                   .output("Out", "shape, dtype and LoD of X")
                   .attr("factor", 1.0F, "exponent")
                   .infer(infer_unary)
                   .grad({.type = "pow_grad",
                          .inputs = {"FactorTensor", "Out@GRAD", "X"},
                          .outputs = {"X@GRAD"},
                          .shape_like = {{"X@GRAD", "Out@GRAD"}}})
                   .flops(elementwise_flops)
                   .inplace("X", "Out"));
}

}  // namespace millrace::ops

#include <llvm/ADT/StringSwitch.h>

#include "ops/elementwise/chain_steps.h"
#include "ops/infer_helpers.h"
#include "ops/registry.h"

namespace millrace::ops {
namespace {

double flops_chain(const InferContext& ctx) {
  return elementwise_flops(ctx) *
         static_cast<double>(ctx.attr<std::vector<std::string>>("steps").size());
}

}  // namespace

bool is_chain_function(llvm::StringRef type) {
  return llvm::StringSwitch<bool>(type)
      .Cases("relu", "relu6", "leaky_relu", "brelu", "hard_sigmoid", "hard_swish", true)
      .Cases("sigmoid", "logsigmoid", "tanh", "softplus", "softsign", "elu", "selu", true)
      .Cases("silu", "swish", "mish", "exp", "expm1", "log", "log1p", "sqrt", true)
      .Cases("rsqrt", "square", "reciprocal", "erf", "abs", "floor", "ceil", "round", true)
      .Default(false);
}

bool is_chain_operator(llvm::StringRef type) {
  return llvm::StringSwitch<bool>(type)
      .Cases("elementwise_add", "elementwise_sub", "elementwise_mul", "elementwise_div", true)
      .Default(false);
}

void add_elementwise_chain(OpRegistry& registry) {
  registry.add(
      OpDef("elementwise_chain")
          .doc("nested elementwise ops, run in one loop; made by the rewrite "
               "fuse-elementwise")
          .input("X",
                 "x0, x1, ... as named in attribute steps: f32, the shape of x0 or one element",
                 Arity::kMany)
          .output("Out", "result of the last op; shape and LoD of x0")
          .required_attr<std::vector<std::string>>(
              "steps",
              "ops in the text form of programs; t is the result "
              "of the previous op, x0 in the first op")
          .infer(infer_unary)
          .flops(flops_chain)
          .inplace("X", "Out"));
}

}  // namespace millrace::ops

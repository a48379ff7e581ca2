#include <llvm/ADT/StringSwitch.h>

#include "ops/elementwise/chain_steps.h"
#include "ops/infer_helpers.h"
#include "ops/lod_offsets.h"
#include "ops/registry.h"

namespace millrace::ops {
namespace chain {
namespace {

double flops(const InferContext& ctx) {
  return elementwise_flops(ctx) *
         static_cast<double>(ctx.attr<std::vector<std::string>>("steps").size());
}

// The shape of x0 and the LoD of the operand that attribute lod_of names.
Status infer(InferContext& ctx) {
  const auto lod_of = ctx.attr<int32_t>("lod_of");
  if (lod_of < 0) {
    ctx.set_output("Out", without_offsets(ctx.input("X")));
    return Ok();
  }
  const auto index = static_cast<size_t>(lod_of);
  if (index >= ctx.input_count("X")) {
    return ctx.error("attribute 'lod_of' is {}, but 'X' has {} vars", index, ctx.input_count("X"));
  }
  VarMeta meta = ctx.input("X");
  const VarMeta& like = ctx.input("X", index);
  meta.lod_level = like.lod_level;
  meta.lod = like.lod;
  ctx.set_output("Out", std::move(meta));
  return Ok();
}

}  // namespace
}  // namespace chain

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
  using namespace chain;
  registry.add(
      OpDef("elementwise_chain")
          .doc("nested elementwise ops, run in one loop; made by the rewrite "
               "fuse-elementwise")
          .input("X",
                 "x0, x1, ... as named in attribute steps: f32, the shape of x0 or one element",
                 Arity::kMany)
          .output("Out", "result of the last op; shape of x0, LoD of the operand lod_of")
          .required_attr<std::vector<std::string>>(
              "steps",
              "ops in the text form of programs; t is the result "
              "of the previous op, x0 in the first op")
          .attr("lod_of", 0, "which of X has the LoD of Out; -1: Out has none")
          .range(-1)
          .infer(infer)
          .flops(flops)
          .inplace("X", "Out"));
}

}  // namespace millrace::ops

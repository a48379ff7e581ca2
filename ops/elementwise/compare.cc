#include "ops/infer_helpers.h"
#include "ops/registry.h"

namespace millrace::ops {
namespace compare_ops {
namespace {

Status infer_flags(InferContext& ctx) {
  return infer_broadcast(ctx, "X", "Y", "Out", ctx.attr<int32_t>("axis"), DType::kBool);
}
Status infer_logical(InferContext& ctx) {
  return infer_broadcast(ctx, "X", "Y", "Out", -1, DType::kBool);
}
Status infer_bitwise(InferContext& ctx) {
  return infer_broadcast(ctx, "X", "Y", "Out", -1);
}

OpDef binary(llvm::StringRef type, llvm::StringRef doc, InferFn infer) {
  OpDef def(type);
  def.doc(doc)
      .input("X", "any shape")
      .input("Y", "shape of X, or one that broadcasts with it")
      .output("Out", "broadcast shape, LoD of X")
      .infer(infer)
      .flops(elementwise_flops);
  return def;
}

}  // namespace
}  // namespace compare_ops

/// Comparisons, logical and bitwise ops.
void add_elementwise_compare(OpRegistry& registry) {
  using namespace compare_ops;
  const auto compare = [&](llvm::StringRef type, llvm::StringRef doc) {
    registry.add(
        binary(type, doc, infer_flags)
            .attr("axis", -1, "dim of the larger operand where the smaller one starts; -1: the end")
            .range(-1)
            .attr("force_cpu", false, "keep the result in host memory"));
  };
  compare("equal", "Out = X == Y, bool");
  compare("not_equal", "Out = X != Y, bool");
  compare("less_than", "Out = X < Y, bool");
  compare("less_equal", "Out = X <= Y, bool");
  compare("greater_than", "Out = X > Y, bool");
  compare("greater_equal", "Out = X >= Y, bool");

  const auto logical = [&](llvm::StringRef type, llvm::StringRef doc) {
    registry.add(binary(type, doc, infer_logical).inplace("X", "Out"));
  };
  logical("logical_and", "Out = X and Y; a number counts as true if it is not zero");
  logical("logical_or", "Out = X or Y; a number counts as true if it is not zero");
  logical("logical_xor", "Out = exactly one of X and Y; a number counts as true if not zero");
  registry.add(OpDef("logical_not")
                   .doc("Out = not X; a number counts as true if it is not zero")
                   .input("X", "any shape")
                   .output("Out", "bool, shape and LoD of X")
                   .infer(infer_unary_bool)
                   .flops(elementwise_flops)
                   .inplace("X", "Out"));

  const auto bitwise = [&](llvm::StringRef type, llvm::StringRef doc) {
    registry.add(binary(type, doc, infer_bitwise).inplace("X", "Out"));
  };
  bitwise("bitwise_and", "Out = X & Y; bool or integers");
  bitwise("bitwise_or", "Out = X | Y; bool or integers");
  bitwise("bitwise_xor", "Out = X ^ Y; bool or integers");
}

}  // namespace millrace::ops

#include "ops/infer_helpers.h"
#include "ops/registry.h"

namespace millrace::ops {
namespace arithmetic_ops {
namespace {

Status infer(InferContext& ctx) {
  return infer_broadcast(ctx, "X", "Y", "Out", ctx.attr<int32_t>("axis"));
}

// Attribute whole_operands lists operands that a pass assumed not to be broadcast, because they are
// declared with the dims of the result. Checked at run time.
Status infer_sum(InferContext& ctx) {
  MILLRACE_RETURN_IF_ERROR(infer(ctx));
  for (const std::string& slot : ctx.attr<std::vector<std::string>>("whole_operands")) {
    const VarMeta& own = ctx.input(slot);
    const VarMeta& other = ctx.input(slot == "X" ? "Y" : "X");
    if (!own.has_shape || !other.has_shape) continue;
    bool broadcast = own.rank() < other.rank();
    if (!broadcast) {
      const auto axis = ctx.attr<int32_t>("axis");
      const size_t behind = own.rank() - other.rank();
      const size_t shift = axis < 0 || behind == 0 ? behind : static_cast<size_t>(axis);
      for (size_t i = 0; i < other.rank(); ++i)
        broadcast = broadcast || (own.dims[shift + i] == 1 && other.dims[i] > 1);
    }
    if (!broadcast) continue;
    return ctx.error(
        "{} {} is broadcast to the other operand {}, but a pass assumed that it is not, because "
        "both are declared with the same dims; run without passes (--optimize false)",
        slot, dims_text(own.dims), dims_text(other.dims));
  }
  return Ok();
}

OpDef arithmetic(llvm::StringRef type, llvm::StringRef doc) {
  OpDef def(type);
  def.doc(doc)
      .input("X", "any shape")
      .input("Y", "shape of X, or one that is broadcast to it; 2.x also broadcasts X")
      .output("Out", "broadcast shape, dtype and LoD of X")
      .attr("axis", -1, "dim of the larger operand where the smaller one starts; -1: at the end")
      .range(-1)
      .infer(infer)
      .flops(elementwise_flops)
      .inplace("X", "Out");
  return def;
}

// The gradient rule of all ops but one: it reads both operands and the gradient of Out. Old
// programs omit X, which then has the shape of Out.
GradSpec from_operands(llvm::StringRef type) {
  return {type, {"Out@GRAD", "X", "Y"}, {"X@GRAD", "Y@GRAD"}, {{"X@GRAD", "Out@GRAD"}}};
}

}  // namespace
}  // namespace arithmetic_ops

/// X op Y with broadcasting and attribute axis, result in the element type of X.
void add_elementwise_arithmetic(OpRegistry& registry) {
  using namespace arithmetic_ops;
  const auto add = [&](llvm::StringRef type, llvm::StringRef grad_type, llvm::StringRef doc) {
    registry.add(arithmetic(type, doc).grad(from_operands(grad_type)));
  };
  registry.add(arithmetic("elementwise_add", "Out = X + Y")
                   .attr("whole_operands", std::vector<std::string>{},
                         "operands, X or Y, that are not broadcast; for passes")
                   .infer(infer_sum)
                   .grad(from_operands("elementwise_add_grad")));
  add("elementwise_sub", "elementwise_sub_grad", "Out = X - Y");
  add("elementwise_mul", "elementwise_mul_grad", "Out = X * Y");
  add("elementwise_max", "elementwise_max_grad", "the larger of X and Y; NaN if one is NaN");
  add("elementwise_min", "elementwise_min_grad", "the smaller of X and Y; NaN if one is NaN");
  add("elementwise_fmax", "elementwise_fmax_grad", "the larger of X and Y; the other one if NaN");
  add("elementwise_fmin", "elementwise_fmin_grad", "the smaller of X and Y; the other one if NaN");
  add("elementwise_pow", "elementwise_pow_grad", "X to the power of Y");
  registry.add(arithmetic("elementwise_div", "Out = X / Y; integers are truncated")
                   .grad({.type = "elementwise_div_grad",
                          .inputs = {"Out", "Out@GRAD", "X", "Y"},
                          .outputs = {"X@GRAD", "Y@GRAD"},
                          .shape_like = {{"X@GRAD", "Out@GRAD"}}}));
  registry.add(arithmetic("elementwise_mod", "remainder with the sign of Y"));
  registry.add(arithmetic("elementwise_floordiv", "quotient rounded down"));
}

}  // namespace millrace::ops

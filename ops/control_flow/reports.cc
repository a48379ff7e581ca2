#include "ops/grad_rules.h"
#include "ops/infer_helpers.h"
#include "ops/registry.h"

// Ops that print for the user or stop the run.
namespace millrace::ops {
namespace {

Status infer_print(InferContext& ctx) {
  ctx.copy("In", "Out");
  return Ok();
}

StatusOr<std::vector<GradOp>> grad_print(const GradContext& ctx) {
  std::vector<std::string> wanted = ctx.input_grad("In");
  if (wanted.empty()) return std::vector<GradOp>{};
  GradOp op("print");
  op.input("In", ctx.output_grad("Out")).output("Out", std::move(wanted));
  copy_attrs(ctx, op);
  std::erase_if(op.attrs, [](const auto& attr) { return attr.first == "is_forward"; });
  op.attr("is_forward", make_attr(false));
  return one_grad_op(std::move(op));
}

Status infer_assert(InferContext& ctx) {
  return check_elements(ctx, "Cond", 1);
}

}  // namespace

void add_control_flow_reports(OpRegistry& registry) {
  registry.add(OpDef("print")
                   .doc("Out = In, and writes it to the log")
                   .input("In", "any shape", Arity::kOne, kTensorLike | kTensorArray)
                   .output("Out", "copy of In", Arity::kOptional, kTensorLike | kTensorArray)
                   .attr("first_n", -1, "print that many times; -1: always")
                   .attr("message", "", "text before the output")
                   .attr("summarize", 20, "elements to print; -1: all")
                   .attr("print_tensor_name", true, "print the name")
                   .attr("print_tensor_type", true, "print the element type")
                   .attr("print_tensor_shape", true, "print the dims")
                   .attr("print_tensor_layout", true, "print the layout")
                   .attr("print_tensor_lod", true, "print the LoD")
                   .attr("print_phase", "BOTH", "which direction prints")
                   .one_of({"FORWARD", "BACKWARD", "BOTH", "forward", "backward", "both"})
                   .attr("is_forward", true, "false in the gradient of a print")
                   .infer(infer_print)
                   .grad(grad_print)
                   .inplace("In", "Out")
                   .side_effects());
  registry.add(OpDef("assert")
                   .doc("stops the run if Cond is false, and prints Data")
                   .input("Cond", "one bool")
                   .input("Data", "what to print", Arity::kAny, kAnyKind)
                   .attr("summarize", int64_t{-1}, "elements to print of each var; -1: all")
                   .infer(infer_assert)
                   .side_effects());
}

}  // namespace millrace::ops

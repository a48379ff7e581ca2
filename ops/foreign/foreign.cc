#include <algorithm>

#include "ops/grad_rules.h"
#include "ops/registry.h"

// Ops of other tools and of users. Programs with them can be loaded, printed and saved, but not
// run.
namespace millrace::ops {
namespace {

// The gradient is another function of the same process. It gets inputs, outputs and the gradients
// of the outputs, except for the vars to be skipped.
StatusOr<std::vector<GradOp>> grad_py_func(const GradContext& ctx) {
  const Op& forward = ctx.forward();
  const auto callable = get_attr_or<int32_t>(forward, "backward_callable_id", -1);
  std::vector<std::string> wanted = ctx.input_grad("X", /*keep_places=*/true);
  if (callable < 0 || wanted.empty()) return std::vector<GradOp>{};
  const auto skipped = get_attr_or<std::vector<std::string>>(forward, "backward_skip_vars", {});
  std::vector<std::string> arguments;
  for (const auto& names : {ctx.input("X"), ctx.output("Out")}) {
    for (const std::string& name : names) {
      if (std::find(skipped.begin(), skipped.end(), name) == skipped.end())
        arguments.push_back(name);
    }
  }
  for (std::string& name : ctx.output_grad("Out")) arguments.push_back(std::move(name));
  GradOp op("py_func");
  op.input("X", std::move(arguments))
      .output("Out", std::move(wanted))
      .attr("forward_callable_id", make_attr(callable))
      .attr("backward_callable_id", make_attr(-1))
      .attr("backward_skip_vars", make_attr(std::vector<std::string>{}));
  return one_grad_op(std::move(op));
}

}  // namespace

void add_foreign_foreign(OpRegistry& registry) {
  const auto add = [&](llvm::StringRef type, llvm::StringRef doc, llvm::StringRef why) {
    registry.add(OpDef(type).doc(doc).open_slots().side_effects().unsupported(why));
  };
  add("gap", "plug-in op of a user", "a plug-in op whose code is not part of the program");
  add("io_copy", "copy between devices, written by an edge optimizer",
      "belongs to the program format of another tool");
  add("layout", "change of memory layout, written by an edge optimizer",
      "belongs to the program format of another tool");
  registry.add(OpDef("run_program")
                   .doc("runs a program stored in the Python process")
                   .open_slots()
                   .side_effects()
                   .capability(Capability::kHostCode)
                   .unsupported("runs code that is not part of the program"));
  registry.add(OpDef("py_func")
                   .doc("calls a function of the Python process that built the program")
                   .input("X", "arguments", Arity::kAny)
                   .output("Out", "results", Arity::kAny)
                   .attr("forward_callable_id", 0, "number of the function in that process")
                   .range(0)
                   .attr("backward_callable_id", -1, "function of the gradient; -1: none")
                   .attr("backward_skip_vars", std::vector<std::string>{},
                         "vars that are not passed to the gradient")
                   .grad(grad_py_func)
                   .side_effects()
                   .capability(Capability::kHostCode)
                   .unsupported("calls Python code that is not part of the program"));
}

}  // namespace millrace::ops

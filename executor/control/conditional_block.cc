#include <algorithm>

#include "executor/control/step_runs.h"
#include "executor/control/values.h"
#include "framework/names.h"
#include "framework/program.h"

// conditional_block: runs its sub-block once, or not at all; and its gradient. Source:
// spec/executor.md section 5.
namespace millrace::executor {
namespace conditional_block_parts {
namespace {

using kernels::ArgIndex;
using kernels::ArgRange;

struct Branch {
  BlockRunner* body = nullptr;
  ArgRange conditions;
  ArgIndex condition;
  ArgIndex scopes;
  bool scalar = false;
};

bool not_empty(const Value& value) {
  const auto* const tensor = value.get_if<Tensor>();
  return tensor != nullptr && tensor->initialized() && tensor->numel() != 0;
}

StatusOr<bool> is_taken(const ControlContext& ctx, const Branch& branch) {
  if (branch.scalar) return read_condition(ctx.args, branch.condition);
  for (int32_t k = 0; k < branch.conditions.count; ++k) {
    if (!not_empty(ctx.args.in_value(branch.conditions, k))) return false;
  }
  return true;
}

StatusOr<Control> conditional_block(const kernels::KernelSetup& setup, BlockRunner& runner) {
  auto branch = std::make_shared<Branch>();
  MILLRACE_ASSIGN_OR_RETURN(branch->body, sub_block_of(setup, runner));
  branch->conditions = setup.inputs("Cond");
  branch->condition = setup.input("Cond");
  branch->scopes = setup.output("Scope");
  branch->scalar = setup.attr<bool>("is_scalar_condition");
  if (branch->scalar && !branch->condition) return setup.error("Cond is missing");
  return Control([branch](ControlContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const bool taken, is_taken(ctx, *branch));
    StepScopes none;
    StepScopes& scopes =
        branch->scopes ? ctx.args.out_value(branch->scopes).as<StepScopes>() : none;
    scopes.clear();
    if (!taken) return Ok();
    StepRuns& runs = StepRuns::of(ctx.scope, branch);
    StepRuns::Step& step = runs.begin(0, *branch->body, ctx.scope);
    scopes.push_back(step.scope);
    return branch->body->run(step.binding);
  });
}

struct BranchGrad {
  BlockRunner* body = nullptr;
  ArgIndex scopes;
  ArgRange inputs;
  ArgRange grads;
  std::vector<std::string> inside;  // name of the gradient of each input in the block
  std::vector<bool> direct;         // the block writes the outer var itself
  std::vector<bool> passed_on;  // also an output, so its gradient stays if the branch is not taken
};

// Moves the gradient of input k out of the block after it has run.
Status move_out_gradient(const ControlContext& ctx, const BranchGrad& grad, int32_t k,
                         Scope& scope) {
  const auto at = static_cast<size_t>(k);
  Value& to = ctx.args.out_value(grad.grads, k);
  Value* const inside = scope.find_local(grad.inside[at]);
  if (inside != nullptr && inside != &to && inside->initialized()) {
    std::swap(*inside, to);
    return Ok();
  }
  if (grad.direct[at] && to.initialized()) return Ok();
  return set_zeros_like(ctx.args.in_value(grad.inputs, k), to);
}

Status run_grad(ControlContext& ctx, const BranchGrad& grad, StepRuns& runs) {
  const StepScopes* const scopes = scopes_in(ctx.args, grad.scopes);
  if (scopes == nullptr) return ctx.args.error("Scope holds no scopes: the branch has not run");
  StepRuns::Step* step = nullptr;
  if (!scopes->empty()) {
    step = &runs.begin(0, *grad.body, ctx.scope, scopes->front());
    MILLRACE_RETURN_IF_ERROR(grad.body->run(step->binding));
  }
  for (int32_t k = 0; k < grad.grads.count; ++k) {
    if (!ctx.args.has_out(grad.grads, k) || !ctx.args.has_in(grad.inputs, k)) continue;
    if (step != nullptr) {
      MILLRACE_RETURN_IF_ERROR(move_out_gradient(ctx, grad, k, *step->scope));
    } else if (!grad.passed_on[static_cast<size_t>(k)] ||
               !ctx.args.out_value(grad.grads, k).initialized()) {
      MILLRACE_RETURN_IF_ERROR(
          set_zeros_like(ctx.args.in_value(grad.inputs, k), ctx.args.out_value(grad.grads, k)));
    }
  }
  return Ok();
}

StatusOr<Control> conditional_block_grad(const kernels::KernelSetup& setup, BlockRunner& runner) {
  auto grad = std::make_shared<BranchGrad>();
  MILLRACE_ASSIGN_OR_RETURN(grad->body, sub_block_of(setup, runner));
  grad->scopes = setup.input("Scope");
  if (!grad->scopes) return setup.error("Scope is missing");
  grad->inputs = setup.inputs("Input");
  grad->grads = setup.outputs("Input@GRAD");
  if (grad->grads.count > grad->inputs.count)
    return setup.error("expected as many vars in Input@GRAD as in Input, found {} and {}",
                       grad->grads.count, grad->inputs.count);
  const Block& block = grad->body->block();
  const auto outer = setup.op().output("Input@GRAD");
  for (const llvm::StringRef var : setup.op().input("Input")) {
    const size_t k = grad->inside.size();
    grad->inside.push_back(names::grad(var));
    grad->direct.push_back(
        k < outer.size() && block.find_var(outer[k]) == nullptr &&
        llvm::any_of(block.ops(), [&](const Op& op) { return op.writes(outer[k]); }));
    grad->passed_on.push_back(k < outer.size() &&
                              llvm::is_contained(setup.op().input("Out"), var) &&
                              llvm::is_contained(setup.op().input("Out@GRAD"), outer[k]));
  }
  return Control(
      [grad](ControlContext& ctx) { return run_grad(ctx, *grad, StepRuns::of(ctx.scope, grad)); });
}

}  // namespace
}  // namespace conditional_block_parts

void add_conditional_block(ControlRegistry& registry) {
  using namespace conditional_block_parts;
  registry.add("conditional_block", conditional_block);
  registry.add("conditional_block_grad", conditional_block_grad);
}

}  // namespace millrace::executor

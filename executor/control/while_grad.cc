#include <algorithm>

#include <llvm/ADT/BitVector.h>

#include "executor/control/step_runs.h"
#include "executor/control/values.h"
#include "executor/control/while.h"
#include "framework/names.h"
#include "framework/program.h"

// Gradient of while: runs the time steps from last to first. Source: spec/executor.md section 5 and
// spec/backward.md section 6.
namespace millrace::executor {
namespace while_grad {
namespace {

using kernels::ArgIndex;
using kernels::ArgRange;

// The gradient of a var that the loop writes, with its name in the block.
struct OutputGrad {
  std::string inside;
  int32_t out = -1;      // index in Out; -1 if not known
  bool carried = false;  // the loop also reads the var: the gradient is passed between time steps
  bool written_inside = false;
};

// The gradient of a var that the loop reads.
struct InputGrad {
  std::string inside;
  int32_t carried_by = -1;  // index of the output gradient that it is; -1: none
};

struct LoopGrad {
  BlockRunner* body = nullptr;
  ArgIndex scopes;
  ArgRange x;
  ArgRange out;
  ArgRange out_grads;
  ArgRange x_grads;
  std::vector<OutputGrad> outputs;
  std::vector<InputGrad> inputs;
  std::vector<std::pair<std::string, std::string>> entry_names;  // of each x, and of its copy

  [[nodiscard]] const InputGrad& input(int32_t k) const { return inputs[static_cast<size_t>(k)]; }
};

bool writes(const Block& block, llvm::StringRef name) {
  return llvm::any_of(block.ops(), [&](const Op& op) { return op.writes(name); });
}

StatusOr<std::shared_ptr<LoopGrad>> describe_loop(const kernels::KernelSetup& setup,
                                                  BlockRunner& runner) {
  auto grad = std::make_shared<LoopGrad>();
  MILLRACE_ASSIGN_OR_RETURN(grad->body, sub_block_of(setup, runner));
  grad->scopes = setup.input("StepScopes");
  if (!grad->scopes) return setup.error("StepScopes is missing");
  grad->x = setup.inputs("X");
  grad->out = setup.inputs("Out");
  grad->out_grads = setup.inputs("Out@GRAD");
  grad->x_grads = setup.outputs("X@GRAD");
  const auto x = setup.op().input("X");
  const auto out = setup.op().input("Out");
  const auto inside = setup.attr<std::vector<std::string>>("original_output_grad");
  if (static_cast<int32_t>(inside.size()) != grad->out_grads.count ||
      grad->x_grads.count > grad->x.count)
    return setup.error(
        "expected as many names in attribute 'original_output_grad' as in Out@GRAD, and as many in "
        "X@GRAD as in X, found {} and {}, {} and {}",
        inside.size(), grad->out_grads.count, grad->x_grads.count, grad->x.count);
  for (const std::string& name : inside) {
    OutputGrad output{name, -1, false, writes(grad->body->block(), name)};
    for (size_t k = 0; k < out.size(); ++k) {
      if (names::grad(out[k]) == name) output.out = static_cast<int32_t>(k);
    }
    output.carried = llvm::any_of(x, [&](llvm::StringRef var) { return names::grad(var) == name; });
    grad->outputs.push_back(std::move(output));
  }
  for (const llvm::StringRef var : x) {
    InputGrad input{names::grad(var), -1};
    for (size_t j = 0; j < grad->outputs.size(); ++j) {
      if (grad->outputs[j].inside == input.inside) input.carried_by = static_cast<int32_t>(j);
    }
    grad->inputs.push_back(std::move(input));
    grad->entry_names.emplace_back(var.str(), names::loop_entry(var));
  }
  return grad;
}

// Links the gradient that comes from after the loop into its last time step.
Status link_last(const ControlContext& ctx, const LoopGrad& grad, size_t j, Value& inside) {
  const OutputGrad& output = grad.outputs[j];
  if (ctx.args.has_in(grad.out_grads, static_cast<int32_t>(j))) {
    const Value& given = ctx.args.in_value(grad.out_grads, static_cast<int32_t>(j));
    if (given.initialized()) {
      // a value that the block overwrites must not share memory with others
      return output.written_inside && given.holds<Tensor>() ? copy_into(given, inside)
                                                            : link(given, inside);
    }
  }
  inside.clear();
  if (output.out < 0 || !ctx.args.has_in(grad.out, output.out)) return Ok();
  const Value& like = ctx.args.in_value(grad.out, output.out);
  // an array without elements, to which the time steps add
  if (like.holds<TensorArray>()) inside.as<TensorArray>().clear();
  return like.holds<Tensor>() ? set_zeros_like(like, inside) : Ok();
}

// Links the gradients of outputs in one time step, from those of the following time step.
Status link_outputs(const ControlContext& ctx, const LoopGrad& grad, Scope& scope, Scope* later) {
  for (size_t j = 0; j < grad.outputs.size(); ++j) {
    const OutputGrad& output = grad.outputs[j];
    Value& inside = scope.local(output.inside);
    if (later == nullptr) {
      MILLRACE_RETURN_IF_ERROR(link_last(ctx, grad, j, inside));
      continue;
    }
    Value& before = later->local(output.inside);
    const bool dense = before.holds<Tensor>();
    if (!dense || (output.carried && output.written_inside)) {
      // the later time step does not need it any more
      std::swap(inside, before);
    } else {
      // each time step overwrites the var, so later ones contribute nothing
      MILLRACE_RETURN_IF_ERROR(set_zeros_like(before, inside));
    }
  }
  return Ok();
}

// Names that are local to the scope of a gradient time step: gradients of outputs, and vars that
// the loop has overwritten, with their values at the beginning of the time step.
std::vector<std::string> linked_names(const LoopGrad& grad, const Scope& forward) {
  std::vector<std::string> linked;
  for (const OutputGrad& output : grad.outputs) linked.push_back(output.inside);
  for (const auto& [name, kept] : grad.entry_names) {
    if (forward.find_local(kept) != nullptr) linked.push_back(name);
  }
  return linked;
}

Status restore_entry_values(const LoopGrad& grad, Scope& scope, const Scope& forward) {
  for (const auto& [name, kept] : grad.entry_names) {
    const Value* value = forward.find_local(kept);
    if (value == nullptr) continue;
    if (!value->initialized()) value = forward.find(name);
    if (value != nullptr) MILLRACE_RETURN_IF_ERROR(link(*value, scope.local(name)));
  }
  return Ok();
}

// Returns the memory to the forward time step, which fills it again in the next run.
void release_entry_values(const LoopGrad& grad, Scope& scope, const Scope& forward) {
  for (const auto& [name, kept] : grad.entry_names) {
    if (forward.find_local(kept) != nullptr) scope.local(name).clear();
  }
}

// Adds up the gradients of vars that do not change between time steps; `started` marks those that
// already have a gradient.
Status collect(const ControlContext& ctx, const LoopGrad& grad, const Scope& scope,
               llvm::BitVector& started) {
  for (int32_t k = 0; k < grad.x_grads.count; ++k) {
    const InputGrad& input = grad.input(k);
    if (!ctx.args.has_out(grad.x_grads, k) || input.carried_by >= 0) continue;
    const Value* const inside = scope.find_local(input.inside);
    if (inside == nullptr || !inside->initialized()) continue;
    Value& sum = ctx.args.out_value(grad.x_grads, k);
    const auto at = static_cast<unsigned>(k);
    MILLRACE_RETURN_IF_ERROR(started.test(at) ? add_into(*inside, sum) : copy_into(*inside, sum));
    started.set(at);
  }
  return Ok();
}

// The result of the first time step is the gradient at the entry of the loop.
Status finish(const ControlContext& ctx, const LoopGrad& grad, Scope* first,
              const llvm::BitVector& started) {
  for (int32_t k = 0; k < grad.x_grads.count; ++k) {
    const InputGrad& input = grad.input(k);
    if (!ctx.args.has_out(grad.x_grads, k)) continue;
    Value& to = ctx.args.out_value(grad.x_grads, k);
    if (input.carried_by >= 0 && first == nullptr) {
      // no time step: the gradient bypasses the loop
      if (!ctx.args.has_in(grad.out_grads, input.carried_by)) continue;
      const Value& from = ctx.args.in_value(grad.out_grads, input.carried_by);
      if (&from != &to) MILLRACE_RETURN_IF_ERROR(copy_into(from, to));
    } else if (input.carried_by >= 0) {
      const OutputGrad& output = grad.outputs[static_cast<size_t>(input.carried_by)];
      Value& inside = first->local(input.inside);
      if (output.written_inside || !inside.holds<Tensor>()) {
        std::swap(inside, to);
      } else {
        MILLRACE_RETURN_IF_ERROR(set_zeros_like(inside, to));
      }
    }
    const bool empty =
        input.carried_by >= 0 ? !to.initialized() : !started.test(static_cast<unsigned>(k));
    if (empty && ctx.args.has_in(grad.x, k))
      MILLRACE_RETURN_IF_ERROR(set_zeros_like(ctx.args.in_value(grad.x, k), to));
  }
  return Ok();
}

Status run_grad(ControlContext& ctx, const LoopGrad& grad, StepRuns& runs) {
  const StepScopes* const scopes = scopes_in(ctx.args, grad.scopes);
  if (scopes == nullptr) return ctx.args.error("StepScopes holds no scopes: the loop has not run");
  llvm::BitVector started(static_cast<unsigned>(grad.x_grads.count));
  std::shared_ptr<Scope> later;
  for (size_t i = scopes->size(); i-- > 0;) {
    const std::shared_ptr<Scope>& forward = (*scopes)[i];
    StepRuns::Step& step =
        runs.begin(i, *grad.body, ctx.scope, forward, linked_names(grad, *forward));
    MILLRACE_RETURN_IF_ERROR(link_outputs(ctx, grad, *step.scope, later.get()));
    MILLRACE_RETURN_IF_ERROR(restore_entry_values(grad, *step.scope, *forward));
    MILLRACE_RETURN_IF_ERROR(grad.body->run(step.binding));
    MILLRACE_RETURN_IF_ERROR(collect(ctx, grad, *step.scope, started));
    release_entry_values(grad, *step.scope, *forward);
    later = step.scope;
  }
  return finish(ctx, grad, later.get(), started);
}

}  // namespace
}  // namespace while_grad

StatusOr<Control> make_while_grad(const kernels::KernelSetup& setup, BlockRunner& runner) {
  using namespace while_grad;
  MILLRACE_ASSIGN_OR_RETURN(const std::shared_ptr<LoopGrad> grad, describe_loop(setup, runner));
  return Control(
      [grad](ControlContext& ctx) { return run_grad(ctx, *grad, StepRuns::of(ctx.scope, grad)); });
}

}  // namespace millrace::executor

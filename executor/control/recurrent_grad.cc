#include <algorithm>
#include <cstring>
#include <set>

#include <llvm/ADT/BitVector.h>

#include "executor/control/recurrent.h"
#include "executor/control/step_runs.h"
#include "executor/control/values.h"
#include "framework/names.h"
#include "kernels/gpu/resident_values.h"
#include "ops/absent_gradients.h"

// Gradient of recurrent: runs the time steps from last to first. As in the original, the gradient
// of a state comes only from the next time step, so front ends route a state that is also an output
// through a separate op. Source: spec/executor.md section 5, goldens/training/README.md quirk 3.
namespace millrace::executor {
namespace recurrent_grad {
namespace {

using kernels::ArgIndex;
using kernels::ArgRange;

struct StateGrad {
  std::string before;      // inner gradient of the state before a time step
  std::string after;       // inner gradient of the state after it
  std::string state;       // the state after a time step, for its shape
  bool is_output = false;  // true if its gradient also comes from outside
};

struct RecurrenceGrad {
  BlockRunner* body = nullptr;
  ArgIndex scopes;
  ArgRange inputs;
  ArgRange initial_states;
  ArgRange parameters;
  ArgRange output_grads;
  ArgRange input_grads;
  ArgRange state_grads;
  ArgRange parameter_grads;
  std::vector<std::string> outputs;  // inner names of the gradients, as in the next fields
  std::vector<std::string> inputs_inside;
  std::vector<std::string> parameters_inside;
  std::vector<StateGrad> states;
  std::vector<std::string> linked;
  bool reverse = false;
};

std::vector<std::string> grads_of(llvm::ArrayRef<llvm::StringRef> names) {
  std::vector<std::string> result;
  for (const llvm::StringRef name : names) result.push_back(names::grad(name));
  return result;
}

StatusOr<std::shared_ptr<RecurrenceGrad>> describe_recurrence(const kernels::KernelSetup& setup,
                                                              BlockRunner& runner) {
  auto g = std::make_shared<RecurrenceGrad>();
  MILLRACE_ASSIGN_OR_RETURN(g->body, sub_block_of(setup, runner));
  g->scopes = setup.input("step_scopes");
  if (!g->scopes) return setup.error("step_scopes is missing");
  g->inputs = setup.inputs("inputs");
  g->initial_states = setup.inputs("initial_states");
  g->parameters = setup.inputs("parameters");
  g->output_grads = setup.inputs("outputs@GRAD");
  g->input_grads = setup.outputs("inputs@GRAD");
  g->state_grads = setup.outputs("initial_states@GRAD");
  g->parameter_grads = setup.outputs("parameters@GRAD");
  g->outputs = grads_of(setup.op().input("outputs"));
  g->inputs_inside = grads_of(setup.op().input("inputs"));
  g->parameters_inside = grads_of(setup.op().input("parameters"));
  g->reverse = setup.attr<bool>("reverse");
  const auto before = setup.attr<std::vector<std::string>>("ex_states");
  const auto after = setup.attr<std::vector<std::string>>("states");
  const bool fits = before.size() == after.size() &&
                    static_cast<int32_t>(before.size()) == g->initial_states.count &&
                    g->output_grads.count <= static_cast<int32_t>(g->outputs.size()) &&
                    g->input_grads.count <= g->inputs.count &&
                    g->state_grads.count <= g->initial_states.count &&
                    g->parameter_grads.count <= g->parameters.count;
  if (!fits)
    return setup.error("gradients and names of states do not match the vars of the forward op");
  for (size_t k = 0; k < before.size(); ++k) {
    StateGrad state{names::grad(before[k]), names::grad(after[k]), after[k], false};
    const auto given = setup.op().input("outputs@GRAD");
    for (int32_t j = 0; j < g->output_grads.count; ++j) {
      const auto at = static_cast<size_t>(j);
      const bool absent = given[at] == names::kEmpty ||
                          ops::is_absent_gradient(setup.op(), "outputs@GRAD", given[at]);
      state.is_output = state.is_output || (g->outputs[at] == state.after && !absent);
    }
    g->linked.push_back(state.after);
    g->states.push_back(std::move(state));
  }
  g->linked.insert(g->linked.end(), g->outputs.begin(), g->outputs.end());
  return g;
}

// The gradient of a state is that of the following time step; of one var that becomes several
// states, it is their sum.
Status link_state_gradients(const RecurrenceGrad& g, Scope& scope, const Scope& later) {
  std::set<llvm::StringRef> linked;
  for (const StateGrad& state : g.states) {
    const Value* const coming = later.find_local(state.before);
    if (coming == nullptr || !coming->initialized()) continue;
    Value& after = scope.local(state.after);
    const bool is_first = linked.insert(state.after).second;
    MILLRACE_RETURN_IF_ERROR(is_first ? copy_into(*coming, after) : add_into(*coming, after));
  }
  return Ok();
}

// Links the gradients of the results of a time step, from outside and from the following time step.
Status link_step(const ControlContext& ctx, const RecurrenceGrad& g, Scope& scope, int64_t t,
                 Scope* later) {
  for (int32_t k = 0; k < g.output_grads.count; ++k) {
    if (!ctx.args.has_in(g.output_grads, k)) continue;
    const auto* const given = ctx.args.in_value(g.output_grads, k).get_if<Tensor>();
    if (given == nullptr) return ctx.args.error("outputs@GRAD[{}] holds no tensor", k);
    const Tensor& all = *given;
    if (all.rank() == 0 || t >= all.dim(0))
      return ctx.args.error("outputs@GRAD must have time step {}, found {}", t, describe(all));
    // a copy, as the gradient of a state may replace it
    MILLRACE_ASSIGN_OR_RETURN(const Tensor row, gpu::row_of(all, t));
    MILLRACE_RETURN_IF_ERROR(
        gpu::copy_value_of(row, scope.local(g.outputs[static_cast<size_t>(k)]).as<Tensor>()));
  }
  for (const StateGrad& state : g.states) {
    if (state.is_output) continue;
    if (const Value* const value = scope.find(state.state))
      MILLRACE_RETURN_IF_ERROR(set_zeros_like(*value, scope.local(state.after)));
  }
  return later == nullptr ? Ok() : link_state_gradients(g, scope, *later);
}

// Copies the gradient of the inputs of one time step into the gradient of the sequence.
Status store_inputs(const ControlContext& ctx, const RecurrenceGrad& g, const Scope& scope,
                    int64_t t) {
  for (int32_t k = 0; k < g.input_grads.count; ++k) {
    if (!ctx.args.has_out(g.input_grads, k)) continue;
    Tensor& all = ctx.args.out(g.input_grads, k);
    const Value* const value = scope.find_local(g.inputs_inside[static_cast<size_t>(k)]);
    const auto* const inside = value == nullptr ? nullptr : value->get_if<Tensor>();
    if (inside == nullptr || !inside->initialized()) continue;
    const int64_t bytes = inside->bytes();
    if (bytes * all.dim(0) != all.bytes() || inside->dtype() != all.dtype())
      return ctx.args.error("the gradient of time step {} is {}, which does not fit into {}", t,
                            describe(*inside), describe(all));
    MILLRACE_RETURN_IF_ERROR(gpu::put_row(*inside, t, all));
  }
  return Ok();
}

Status store_parameters(const ControlContext& ctx, const RecurrenceGrad& g, const Scope& scope,
                        llvm::BitVector& started) {
  for (int32_t k = 0; k < g.parameter_grads.count; ++k) {
    if (!ctx.args.has_out(g.parameter_grads, k)) continue;
    const Value* const inside = scope.find_local(g.parameters_inside[static_cast<size_t>(k)]);
    if (inside == nullptr || !inside->initialized()) continue;
    Value& sum = ctx.args.out_value(g.parameter_grads, k);
    const auto at = static_cast<unsigned>(k);
    MILLRACE_RETURN_IF_ERROR(started.test(at) ? add_into(*inside, sum) : copy_into(*inside, sum));
    started.set(at);
  }
  return Ok();
}

// Sets zeros where no time step has produced a gradient.
Status fill_rest(const ControlContext& ctx, const RecurrenceGrad& g, Scope* first,
                 const llvm::BitVector& started) {
  for (int32_t k = 0; k < g.state_grads.count; ++k) {
    if (!ctx.args.has_out(g.state_grads, k)) continue;
    Value& to = ctx.args.out_value(g.state_grads, k);
    Value* const inside =
        first == nullptr ? nullptr : first->find_local(g.states[static_cast<size_t>(k)].before);
    MILLRACE_RETURN_IF_ERROR(inside != nullptr && inside->initialized()
                                 ? copy_into(*inside, to)
                                 : set_zeros_like(ctx.args.in_value(g.initial_states, k), to));
  }
  for (int32_t k = 0; k < g.parameter_grads.count; ++k) {
    if (!ctx.args.has_out(g.parameter_grads, k) || started.test(static_cast<unsigned>(k))) continue;
    MILLRACE_RETURN_IF_ERROR(set_zeros_like(ctx.args.in_value(g.parameters, k),
                                            ctx.args.out_value(g.parameter_grads, k)));
  }
  return Ok();
}

Status run_grad(ControlContext& ctx, const RecurrenceGrad& g, StepRuns& runs) {
  const StepScopes* const scopes = scopes_in(ctx.args, g.scopes);
  if (scopes == nullptr) return ctx.args.error("step_scopes holds no scopes: no time step has run");
  for (int32_t k = 0; k < g.input_grads.count; ++k) {
    if (ctx.args.has_out(g.input_grads, k) && ctx.args.has_in(g.inputs, k))
      MILLRACE_RETURN_IF_ERROR(
          set_zeros_like(ctx.args.in_value(g.inputs, k), ctx.args.out_value(g.input_grads, k)));
  }
  llvm::BitVector started(static_cast<unsigned>(g.parameter_grads.count));
  const auto steps = static_cast<int64_t>(scopes->size());
  std::shared_ptr<Scope> later;
  for (int64_t i = steps - 1; i >= 0; --i) {
    const int64_t t = g.reverse ? steps - 1 - i : i;
    StepRuns::Step& step = runs.begin(static_cast<size_t>(i), *g.body, ctx.scope,
                                      (*scopes)[static_cast<size_t>(i)], g.linked);
    MILLRACE_RETURN_IF_ERROR(link_step(ctx, g, *step.scope, t, later.get()));
    MILLRACE_RETURN_IF_ERROR(g.body->run(step.binding));
    MILLRACE_RETURN_IF_ERROR(store_inputs(ctx, g, *step.scope, t));
    MILLRACE_RETURN_IF_ERROR(store_parameters(ctx, g, *step.scope, started));
    later = step.scope;
  }
  return fill_rest(ctx, g, later.get(), started);
}

}  // namespace
}  // namespace recurrent_grad

StatusOr<Control> make_recurrent_grad(const kernels::KernelSetup& setup, BlockRunner& runner) {
  using namespace recurrent_grad;
  MILLRACE_ASSIGN_OR_RETURN(const std::shared_ptr<RecurrenceGrad> grad,
                            describe_recurrence(setup, runner));
  return Control(
      [grad](ControlContext& ctx) { return run_grad(ctx, *grad, StepRuns::of(ctx.scope, grad)); });
}

}  // namespace millrace::executor

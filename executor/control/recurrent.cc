#include "executor/control/recurrent.h"

#include <algorithm>

#include "executor/control/step_runs.h"
#include "executor/control/values.h"
#include "kernels/gpu/resident_values.h"

// recurrent: runs its sub-block once for each time step of its input sequences, passing states from
// time step to time step. Source: spec/executor.md section 5.
namespace millrace::executor {
namespace {

using kernels::ArgIndex;
using kernels::ArgRange;

struct State {
  std::string before;  // its name inside, before a time step
  std::string after;
};

struct Recurrence {
  BlockRunner* body = nullptr;
  ArgRange inputs;
  ArgRange initial_states;
  ArgRange outputs;
  ArgIndex scopes;
  std::vector<std::string> input_names;
  std::vector<std::string> output_names;
  std::vector<State> states;
  bool reverse = false;
  bool keeps_steps = false;
};

std::vector<std::string> strings(llvm::ArrayRef<llvm::StringRef> names) {
  std::vector<std::string> result;
  for (const llvm::StringRef name : names) result.push_back(name.str());
  return result;
}

StatusOr<int64_t> steps_of(const ControlContext& ctx, ArgRange inputs) {
  if (inputs.count == 0) return ctx.args.error("inputs must have a sequence, found none");
  int64_t steps = -1;
  for (int32_t k = 0; k < inputs.count; ++k) {
    if (!ctx.args.has_in(inputs, k) || !ctx.args.in_value(inputs, k).holds<Tensor>())
      return ctx.args.error("inputs[{}] holds no tensor", k);
    const Tensor& sequence = ctx.args.in(inputs, k);
    if (sequence.rank() == 0) return ctx.args.error("inputs must have a time dim, found rank 0");
    if (steps >= 0 && sequence.dim(0) != steps)
      return ctx.args.error("inputs must have equal lengths, found {} and {} time steps", steps,
                            sequence.dim(0));
    steps = sequence.dim(0);
  }
  return steps;
}

// Saves the states that the next time step needs when one scope serves all time steps: beginning a
// time step drops the other content of the scope.
void take_states(const Recurrence& r, Scope& scope, std::vector<Value>& states) {
  states.resize(r.states.size());
  for (size_t k = 0; k < states.size(); ++k) std::swap(states[k], scope.local(r.states[k].after));
}

// Links the states before a time step: the initial ones, or those after the previous time step.
Status link_states(const ControlContext& ctx, const Recurrence& r, Scope& scope, Scope* previous,
                   std::vector<Value>& taken) {
  for (size_t k = 0; k < r.states.size(); ++k) {
    Value& before = scope.local(r.states[k].before);
    if (previous == nullptr) {
      MILLRACE_RETURN_IF_ERROR(
          link(ctx.args.in_value(r.initial_states, static_cast<int32_t>(k)), before));
    } else if (previous == &scope) {
      std::swap(before, taken[k]);
    } else {
      MILLRACE_RETURN_IF_ERROR(link(previous->local(r.states[k].after), before));
    }
  }
  return Ok();
}

// Copies the results of a time step into the outputs; the first time step sets their dims.
Status store_outputs(const ControlContext& ctx, const Recurrence& r, const Scope& scope, int64_t t,
                     int64_t steps, bool is_first) {
  for (int32_t k = 0; k < r.outputs.count; ++k) {
    if (!ctx.args.has_out(r.outputs, k)) continue;
    const std::string& name = r.output_names[static_cast<size_t>(k)];
    const Value* const value = scope.find(name);
    const auto* const inside = value == nullptr ? nullptr : value->get_if<Tensor>();
    if (inside == nullptr || !inside->initialized())
      return ctx.args.error("the sub-block yields no tensor '{}'", name);
    Tensor& out = ctx.args.out(r.outputs, k);
    if (is_first) {
      Dims dims{steps};
      dims.append(inside->dims().begin(), inside->dims().end());
      MILLRACE_RETURN_IF_ERROR(gpu::resize_like(*inside, dims, out));
      out.set_lod({});
    }
    const int64_t bytes = inside->bytes();
    if (out.bytes() != bytes * steps || out.dtype() != inside->dtype())
      return ctx.args.error("time step {} yields {} for '{}', which does not fit into {}", t,
                            describe(*inside), name, describe(out));
    MILLRACE_RETURN_IF_ERROR(gpu::put_row(*inside, t, out));
  }
  return Ok();
}

Status run_steps(ControlContext& ctx, const Recurrence& r, StepRuns& runs) {
  MILLRACE_ASSIGN_OR_RETURN(const int64_t steps, steps_of(ctx, r.inputs));
  StepScopes none;
  StepScopes& scopes = r.scopes ? ctx.args.out_value(r.scopes).as<StepScopes>() : none;
  scopes.clear();
  std::shared_ptr<Scope> previous;
  std::vector<Value> states;
  for (int64_t i = 0; i < steps; ++i) {
    const int64_t t = r.reverse ? steps - 1 - i : i;
    if (previous != nullptr && !r.keeps_steps) take_states(r, *previous, states);
    StepRuns::Step& step =
        runs.begin(r.keeps_steps ? static_cast<size_t>(i) : 0, *r.body, ctx.scope);
    for (int32_t k = 0; k < r.inputs.count; ++k) {
      MILLRACE_ASSIGN_OR_RETURN(
          step.scope->local(r.input_names[static_cast<size_t>(k)]).as<Tensor>(),
          gpu::row_of(ctx.args.in(r.inputs, k), t));
    }
    MILLRACE_RETURN_IF_ERROR(link_states(ctx, r, *step.scope, previous.get(), states));
    MILLRACE_RETURN_IF_ERROR(r.body->run(step.binding));
    MILLRACE_RETURN_IF_ERROR(store_outputs(ctx, r, *step.scope, t, steps, i == 0));
    previous = step.scope;
    if (r.keeps_steps) scopes.push_back(step.scope);
  }
  return Ok();
}

StatusOr<Control> recurrent(const kernels::KernelSetup& setup, BlockRunner& runner) {
  auto r = std::make_shared<Recurrence>();
  MILLRACE_ASSIGN_OR_RETURN(r->body, sub_block_of(setup, runner));
  r->inputs = setup.inputs("inputs");
  r->initial_states = setup.inputs("initial_states");
  r->outputs = setup.outputs("outputs");
  r->scopes = setup.output("step_scopes");
  r->input_names = strings(setup.op().input("inputs"));
  r->output_names = strings(setup.op().output("outputs"));
  const auto before = setup.attr<std::vector<std::string>>("ex_states");
  const auto after = setup.attr<std::vector<std::string>>("states");
  if (before.size() != after.size() ||
      static_cast<int32_t>(before.size()) != r->initial_states.count)
    return setup.error(
        "expected as many names in attributes 'ex_states' and 'states' as vars in initial_states, "
        "found {}, {} and {}",
        before.size(), after.size(), r->initial_states.count);
  for (size_t k = 0; k < before.size(); ++k) r->states.push_back({before[k], after[k]});
  r->reverse = setup.attr<bool>("reverse");
  r->keeps_steps = setup.attr<bool>("is_train") && r->scopes;
  return Control(
      [r](ControlContext& ctx) { return run_steps(ctx, *r, StepRuns::of(ctx.scope, r)); });
}

}  // namespace

void add_recurrent(ControlRegistry& registry) {
  registry.add("recurrent", recurrent);
  registry.add("recurrent_grad", make_recurrent_grad);
}

}  // namespace millrace::executor

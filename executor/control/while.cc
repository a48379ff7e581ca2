#include "executor/control/while.h"

#include <algorithm>

#include "executor/control/step_runs.h"
#include "executor/control/values.h"
#include "framework/names.h"
#include "framework/program.h"

// while: runs its sub-block as long as a condition holds, which the sub-block recomputes. Source:
// spec/executor.md section 5.
namespace millrace::executor {
namespace while_parts {
namespace {

using kernels::ArgIndex;
using kernels::ArgRange;

// An outer var that the loop overwrites. Gradients of a time step need its previous value, which is
// kept in the scope of the time step under a separate name.
struct Carried {
  int32_t input;  // which of X
  std::string kept_name;
};

struct Loop {
  BlockRunner* body = nullptr;
  ArgIndex condition;
  ArgIndex scopes;
  ArgRange x;
  bool keeps_steps = false;
  std::vector<Carried> carried;
};

// True if an op of the block has the name as input and output: counters, which the gradient part
// decrements.
bool changed_in_place(const Block& block, llvm::StringRef name) {
  return llvm::any_of(block.ops(), [&](const Op& op) { return op.reads(name) && op.writes(name); });
}

// True if the name may have another value when the gradient runs: the loop, or an op after it,
// writes it. A nested loop runs many times, so there any op counts.
bool overwritten(const Op& loop, llvm::StringRef name) {
  if (llvm::is_contained(loop.output("Out"), name)) return true;
  for (const Op* op = loop.block().next(loop); op != nullptr; op = loop.block().next(*op)) {
    if (op->writes(name)) return true;
  }
  if (loop.block().index() == 0 || loop.block().find_var(name) != nullptr) return false;
  return llvm::any_of(loop.program().blocks(), [&](const Block& block) {
    return llvm::any_of(block.ops(), [&](const Op& op) { return op.writes(name); });
  });
}

// A program without a gradient needs the scope of one time step only.
bool has_gradient(const Op& loop) {
  const llvm::StringRef scopes = loop.first_output("StepScopes");
  for (const Op* op = loop.block().next(loop); op != nullptr; op = loop.block().next(*op)) {
    if (op->reads(scopes)) return true;
  }
  // nested loops have their gradient in another block
  for (const Block& block : loop.program().blocks()) {
    if (&block == &loop.block()) continue;
    for (const Op& op : block.ops()) {
      if (op.reads(scopes)) return true;
    }
  }
  return false;
}

std::vector<Carried> find_carried(const Op& loop, const Block& body) {
  std::vector<Carried> carried;
  const auto names = loop.input("X");
  for (size_t i = 0; i < names.size(); ++i) {
    const Var* const var = loop.block().find_var_recursive(names[i]);
    const bool is_param = var != nullptr && var->persistable();
    if (is_param || !overwritten(loop, names[i]) || changed_in_place(body, names[i])) continue;
    carried.push_back({static_cast<int32_t>(i), names::loop_entry(names[i])});
  }
  return carried;
}

Status keep_entry_values(const ControlContext& ctx, const Loop& loop, Scope& scope) {
  for (const Carried& carried : loop.carried) {
    Value& kept = scope.local(carried.kept_name);
    if (!ctx.args.has_in(loop.x, carried.input)) continue;
    const Value& value = ctx.args.in_value(loop.x, carried.input);
    if (value.holds<Tensor>() && value.initialized()) {
      MILLRACE_RETURN_IF_ERROR(copy_into(value, kept));
    } else {
      kept.clear();
    }
  }
  return Ok();
}

Status run_loop(ControlContext& ctx, const Loop& loop, StepRuns& runs) {
  auto& scopes = ctx.args.out_value(loop.scopes).as<StepScopes>();
  scopes.clear();
  for (size_t i = 0;; ++i) {
    MILLRACE_ASSIGN_OR_RETURN(const bool go_on, read_condition(ctx.args, loop.condition));
    if (!go_on) return Ok();
    StepRuns::Step& step = runs.begin(loop.keeps_steps ? i : 0, *loop.body, ctx.scope);
    if (loop.keeps_steps) {
      MILLRACE_RETURN_IF_ERROR(keep_entry_values(ctx, loop, *step.scope));
      scopes.push_back(step.scope);
    }
    MILLRACE_RETURN_IF_ERROR(loop.body->run(step.binding));
  }
}

StatusOr<Control> make(const kernels::KernelSetup& setup, BlockRunner& runner) {
  auto loop = std::make_shared<Loop>();
  MILLRACE_ASSIGN_OR_RETURN(loop->body, sub_block_of(setup, runner));
  loop->condition = setup.input("Condition");
  loop->scopes = setup.output("StepScopes");
  loop->x = setup.inputs("X");
  if (!loop->condition || !loop->scopes)
    return setup.error("Condition and StepScopes must have a var each");
  loop->keeps_steps = !setup.attr<bool>("is_test") && has_gradient(setup.op());
  if (loop->keeps_steps) loop->carried = find_carried(setup.op(), loop->body->block());
  return Control(
      [loop](ControlContext& ctx) { return run_loop(ctx, *loop, StepRuns::of(ctx.scope, loop)); });
}

}  // namespace
}  // namespace while_parts

void add_while(ControlRegistry& registry) {
  registry.add("while", while_parts::make);
  registry.add("while_grad", make_while_grad);
}

}  // namespace millrace::executor

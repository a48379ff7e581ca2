#include <llvm/ADT/StringSwitch.h>

#include "framework/base/errors.h"
#include "transpiler/needed_ops.h"
#include "transpiler/pass_registry.h"
#include "transpiler/program_edit.h"
#include "transpiler/roles.h"

namespace millrace::transpiler {
namespace {

bool writes_persistable(const Op& op) {
  return llvm::any_of(op.output_names(), [&](llvm::StringRef name) {
    const Var* const var = op.block().find_var_recursive(name);
    return var != nullptr && var->persistable();
  });
}

// Control flow; the ops in the block are checked one by one.
bool does_what_its_block_does(const Op& op) {
  return llvm::StringSwitch<bool>(op.type())
      .Cases("while", "conditional_block", "conditional_block_infer", "recurrent", true)
      .Cases("while_grad", "conditional_block_grad", "recurrent_grad", true)
      .Default(false);
}

// Ops that stay although no op of the program reads what they write. The effects of unknown ops are
// not known, so they stay.
bool is_root(const Op& op, const ops::OpRegistry& registry) {
  if (op.type() == "feed" || op.type() == "fetch" || op.is_target().value_or(false)) return true;
  if (does_what_its_block_does(op)) return writes_persistable(op);
  const ops::OpDef* const def = registry.find(op.type());
  if (def == nullptr || def->has_side_effects() || def->capability() != ops::Capability::kPure)
    return true;
  return (role::of(op) & role::kLoss) != 0 || writes_persistable(op);
}

class RemoveDeadOps final : public Pass {
 public:
  explicit RemoveDeadOps(const PassOptions& options) : keep_(options.strings("keep")) {}

  llvm::StringRef name() const override { return "remove-dead-ops"; }

  StatusOr<bool> run(Program& program, PassContext& context) override {
    for (const std::string& name : keep_) {
      if (!is_known_var(program, name)) return no_such_var(program, name, "keep");
    }
    NeedRules rules;
    rules.is_root = [&](const Op& op) { return is_root(op, context.registry); };
    rules.targets = keep_;
    const NeededOps needed(program, rules);
    if (needed.empty() && program.root().op_count() > 0) {
      return InvalidArgument("every op of the program is dead: nothing is fetched, saved or sent")
          .with_hint("name vars that must stay, for example remove-dead-ops{keep=[loss]}");
    }
    return needed.erase_others(program) > 0;
  }

 private:
  std::vector<std::string> keep_;
};

}  // namespace

void add_passes_remove_dead_ops(PassRegistry& registry) {
  registry.add(
      PassInfo("remove-dead-ops", "drop ops whose outputs are never read, fetched or saved")
          .strings("keep", "vars that must be computed although no op reads them")
          .makes<RemoveDeadOps>());
}

}  // namespace millrace::transpiler

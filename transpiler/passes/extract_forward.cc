#include <llvm/ADT/DenseSet.h>

#include "transpiler/pass_registry.h"
#include "transpiler/program_edit.h"
#include "transpiler/roles.h"

namespace millrace::transpiler {
namespace {

constexpr int32_t kNotForward =
    role::kBackward | role::kOptimize | role::kRpc | role::kDist | role::kLrSched;

// Collects vars whose last value a dropped op computed. Ops that read one are dropped too: for
// example, clipping of error gradients has no role. Persistable vars keep their value between runs.
void add_outputs(const Op& op, llvm::DenseSet<NameId>& lost) {
  for (const Slot& slot : op.outputs()) {
    for (const Arg& arg : slot.args) {
      const Var* const var = op.block().find_var_recursive(op.name_of(arg.name));
      if (var != nullptr && !var->persistable()) lost.insert(arg.name);
    }
  }
}
void remove_outputs(const Op& op, llvm::DenseSet<NameId>& lost) {
  for (const Slot& slot : op.outputs()) {
    for (const Arg& arg : slot.args) lost.erase(arg.name);
  }
}
bool reads_lost(const Op& op, const llvm::DenseSet<NameId>& lost) {
  return llvm::any_of(op.inputs(), [&](const Slot& slot) {
    return llvm::any_of(slot.args, [&](const Arg& arg) { return lost.contains(arg.name); });
  });
}

class ExtractForward final : public Pass {
 public:
  explicit ExtractForward(const PassOptions& options) : drop_roles_(options.flag("drop-roles")) {}

  llvm::StringRef name() const override { return "extract-forward"; }

  StatusOr<bool> run(Program& program, PassContext& /*context*/) override {
    bool changed = false;
    llvm::DenseSet<NameId> lost;
    for (Block& block : program.blocks()) {
      for (Op* const op : block.op_vector()) {
        if ((role::of(*op) & kNotForward) != 0 || reads_lost(*op, lost)) {
          add_outputs(*op, lost);
          block.erase(*op);
          changed = true;
          continue;
        }
        remove_outputs(*op, lost);
        if (drop_roles_ && (op->has_attr("op_role") || op->has_attr("op_role_var"))) {
          op->remove_attr("op_role");
          op->remove_attr("op_role_var");
          changed = true;
        }
      }
    }
    if (!changed) return false;
    erase_unowned_blocks(program);
    erase_unmentioned_vars(program, {}, /*persistable=*/true);
    return true;
  }

 private:
  bool drop_roles_;
};

}  // namespace

void add_passes_extract_forward(PassRegistry& registry) {
  registry.add(PassInfo("extract-forward",
                        "drop backward, optimizer, learning-rate and communication ops by their "
                        "op_role, ops that read their results, and the vars and blocks that "
                        "only they use")
                   .flag("drop-roles", false, "drop the attributes op_role and op_role_var too")
                   .makes<ExtractForward>());
}

}  // namespace millrace::transpiler

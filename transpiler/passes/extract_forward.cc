#include "transpiler/distribute/roles.h"
#include "transpiler/passes/passes.h"
#include "transpiler/program_edit.h"

namespace millrace::transpiler {
namespace {

constexpr int32_t kNotForward =
    role::kBackward | role::kOptimize | role::kRpc | role::kDist | role::kLrSched;

class ExtractForward final : public Pass {
 public:
  explicit ExtractForward(const PassOptions& options) : drop_roles_(options.flag("drop-roles")) {}

  llvm::StringRef name() const override { return "extract-forward"; }

  StatusOr<bool> run(Program& program, PassContext& /*context*/) override {
    bool changed = false;
    for (Block& block : program.blocks()) {
      for (Op* const op : block.op_vector()) {
        if ((role::of(*op) & kNotForward) != 0) {
          block.erase(*op);
          changed = true;
        } else if (drop_roles_ && (op->has_attr("op_role") || op->has_attr("op_role_var"))) {
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

void register_extract_forward(PassRegistry& passes) {
  passes.add(PassInfo("extract-forward",
                      "drop backward, optimizer, learning-rate and communication ops by their "
                      "op_role, and the vars and blocks that only they use")
                 .flag("drop-roles", false, "drop the attributes op_role and op_role_var too")
                 .makes<ExtractForward>());
}

}  // namespace millrace::transpiler

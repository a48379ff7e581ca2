#include "framework/base/errors.h"
#include "transpiler/distribute/collective_passes.h"
#include "transpiler/distribute/emit.h"
#include "transpiler/roles.h"

namespace millrace::transpiler {
namespace {

class ScaleLossGradient final : public Pass {
 public:
  explicit ScaleLossGradient(const PassOptions& options) : factor_(options.real("factor")) {}

  llvm::StringRef name() const override { return "collective-scale-loss-gradient"; }

  StatusOr<bool> run(Program& main, PassContext& /*context*/) override {
    Block& block = main.root();
    bool changed = false;
    for (Op* op : block.op_vector()) {
      if (!is_loss_grad_op(*op)) continue;
      const auto outputs = op->output_names();
      if (outputs.empty()) {
        return InvalidProgram("the gradient op of a loss has no output to scale")
            .at(op->location());
      }
      emit_scale(block, block.next(*op), outputs.front(), outputs.front(),
                 static_cast<float>(factor_), role::kBackward);
      changed = true;
    }
    return changed;
  }

 private:
  double factor_;
};

}  // namespace

void register_scale_loss_gradient(PassRegistry& registry) {
  registry.add(PassInfo("collective-scale-loss-gradient",
                        "multiply every gradient of a loss, so that sums over ranks become means")
                   .real("factor", 1, "what it is multiplied by")
                   .required()
                   .makes<ScaleLossGradient>());
}

}  // namespace millrace::transpiler

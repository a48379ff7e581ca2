#include "framework/base/errors.h"
#include "transpiler/distribute/collective_passes.h"
#include "transpiler/distribute/emit.h"
#include "transpiler/roles.h"

namespace millrace::transpiler {
namespace {

class ScaleLossGradient final : public Pass {
 public:
  explicit ScaleLossGradient(double factor) : factor_(factor) {}

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

std::unique_ptr<Pass> scale_loss_gradient(double factor) {
  return std::make_unique<ScaleLossGradient>(factor);
}

}  // namespace millrace::transpiler

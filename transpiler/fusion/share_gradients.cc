#include <string>
#include <utility>

#include <llvm/ADT/SmallVector.h>

#include "transpiler/fusion/fusions.h"
#include "transpiler/fusion/inner_vars.h"

namespace millrace::transpiler {
namespace {

// Gradients of a sum are copies of that of the result where an operand has its shape: who reads
// them may read that one.
class ShareGradients final : public Pass {
 public:
  explicit ShareGradients(const PassOptions& options) : keep_(options.strings("keep")) {}

  llvm::StringRef name() const override { return "share-gradients"; }

  StatusOr<bool> run(Program& program, PassContext& /*context*/) override {
    const InnerVars inner(program, keep_);
    llvm::SmallVector<Op*, 0> ops;
    for (Op& op : program.root().ops()) {
      if (op.type() == "elementwise_add_grad") ops.push_back(&op);
    }
    bool changed = false;
    for (Op* const op : ops) {
      for (const auto& [slot, operand] : {std::pair{"X@GRAD", "X"}, {"Y@GRAD", "Y"}})
        changed |= share(*op, slot, operand, inner);
      if (op->output_names().empty()) inner.block().erase(*op);
    }
    return changed;
  }

 private:
  static bool share(Op& op, llvm::StringRef slot, llvm::StringRef operand, const InnerVars& inner) {
    Block& block = inner.block();
    const llvm::StringRef copy = single_output(op, slot);
    const llvm::StringRef source = single_input(op, "Out@GRAD");
    // The other operand is the larger one if this one is broadcast.
    if (!inner.contains(copy) || !inner.contains(source) || !has_shape_of(op, operand, source))
      return false;
    const std::string from = copy.str();
    const std::string to = source.str();
    for (Op* const reader : block.readers_of(from)) reader->replace_input(from, to);
    op.remove_output(slot);
    block.erase(*block.find_var(from));
    return true;
  }

  // Both are declared; an operand without declaration may have been left out, as its shape is that
  // of the result.
  static bool has_shape_of(const Op& op, llvm::StringRef operand, llvm::StringRef grad) {
    const Var* const result = op.block().find_var(grad);
    const llvm::StringRef name = single_input(op, operand);
    if (result->dims().empty() || result->kind() != VarKind::kLodTensor) return false;
    if (name.empty()) return operand == "X";
    const Var* const var = op.block().find_var(name);
    return var != nullptr && var->kind() == VarKind::kLodTensor && var->spec().has_tensor() &&
           var->dtype() == result->dtype() && var->dims() == result->dims();
  }

  std::vector<std::string> keep_;
};

}  // namespace

void register_share_gradients(PassRegistry& passes) {
  passes.add(PassInfo("share-gradients",
                      "read the gradient of a sum where those of its operands would be copies")
                 .strings("keep", "vars whose value is wanted after a run")
                 .makes<ShareGradients>());
}

}  // namespace millrace::transpiler

#include <llvm/ADT/SmallVector.h>
#include <llvm/ADT/StringSwitch.h>

#include "transpiler/fusion/inner_vars.h"
#include "transpiler/pass_registry.h"

namespace millrace::transpiler {
namespace {

// Outputs of a gradient op, each of which depends only on the inputs.
struct Outputs {
  const char* data = nullptr;
  const char* weights = nullptr;
};

Outputs outputs_of(llvm::StringRef type) {
  return llvm::StringSwitch<Outputs>(type)
      .Cases("conv2d_grad", "depthwise_conv2d_grad", "conv3d_grad", {"Input@GRAD", "Filter@GRAD"})
      .Default({});
}

// True if the op has these two outputs, one var each, and no other.
bool has_only(const Op& op, const Outputs& outputs) {
  if (outputs.data == nullptr || single_output(op, outputs.data).empty() ||
      single_output(op, outputs.weights).empty())
    return false;
  return llvm::all_of(op.outputs(), [&](const Slot& slot) {
    const llvm::StringRef name = op.name_of(slot.name);
    return slot.args.empty() || name == outputs.data || name == outputs.weights;
  });
}

bool writes_what_it_reads(const Op& op) {
  return llvm::any_of(op.output_names(), [&](llvm::StringRef name) { return op.reads(name); });
}

class SplitGradients final : public Pass {
 public:
  llvm::StringRef name() const override { return "split-gradients"; }

  StatusOr<bool> run(Program& program, PassContext& /*context*/) override {
    llvm::SmallVector<Op*, 0> ops;
    for (Op& op : program.root().ops()) {
      if (has_only(op, outputs_of(op.type())) && !writes_what_it_reads(op)) ops.push_back(&op);
    }
    for (Op* const op : ops) {
      const Outputs outputs = outputs_of(op->type());
      Op& data = program.root().clone_before(op, *op);
      data.remove_output(outputs.weights);
      op->remove_output(outputs.data);
    }
    return !ops.empty();
  }
};

}  // namespace

void add_fusion_split_gradients(PassRegistry& registry) {
  registry.add(PassInfo("split-gradients",
                        "split the two gradients of a convolution into two ops, so that they can "
                        "run in parallel")
                   .strings("keep", "vars whose value is needed after a run; no var is removed")
                   .makes<SplitGradients>());
}

}  // namespace millrace::transpiler

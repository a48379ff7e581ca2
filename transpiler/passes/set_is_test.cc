#include "transpiler/pass_registry.h"

namespace millrace::transpiler {
namespace {

// Sets a flag attribute of the op if the op has it or its schema lists it. Programs without a
// version stamp store such flags as INT; the kind is not changed.
bool set_flag(Op& op, const ops::OpDef* def, llvm::StringRef name, bool flag) {
  const AttrValue* const old = op.find_attr(name);
  if (old == nullptr && (def == nullptr || def->find_attr(name) == nullptr)) return false;
  const bool as_int = old != nullptr && old->kind() == AttrKind::kInt;
  AttrValue value = as_int ? AttrValue::of_int(flag ? 1 : 0) : AttrValue::of_bool(flag);
  if (old != nullptr && *old == value) return false;
  op.set_attr(name, std::move(value));
  return true;
}

class SetIsTest final : public Pass {
 public:
  llvm::StringRef name() const override { return "set-is-test"; }

  StatusOr<bool> run(Program& program, PassContext& context) override {
    bool changed = false;
    for (Block& block : program.blocks()) {
      for (Op& op : block.ops()) {
        const ops::OpDef* const def = context.registry.find(op.type());
        changed |= set_flag(op, def, "is_test", true);
        if (op.type() != "batch_norm" && op.type() != "sync_batch_norm") continue;
        // In a test run the stored mean and variance are used unless this attribute is set.
        if (op.has_attr("trainable_statistics"))
          changed |= set_flag(op, def, "trainable_statistics", false);
        if (op.find_output("ReserveSpace") == nullptr) continue;
        op.remove_output("ReserveSpace");  // only the gradient reads it
        changed = true;
      }
    }
    return changed;
  }
};

}  // namespace

void add_passes_set_is_test(PassRegistry& registry) {
  registry.add(PassInfo("set-is-test",
                        "switch ops to their inference behaviour: is_test is set, dropout passes "
                        "its input on, batch_norm uses the stored statistics")
                   .makes<SetIsTest>());
}

}  // namespace millrace::transpiler

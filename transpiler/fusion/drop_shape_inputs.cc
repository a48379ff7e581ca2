#include "ops/read_attr.h"
#include "transpiler/fusion/inner_vars.h"
#include "transpiler/pass_registry.h"

namespace millrace::transpiler {
namespace {

// True if the result of an elementwise op always has the dims of x: y broadcasts to x without
// extending a dim of x.
bool gives_dims_of_x(const Var& x, const Var& y, int64_t axis) {
  if (!x.spec().has_tensor() || !y.spec().has_tensor()) return false;
  const auto rank_x = static_cast<int64_t>(x.dims().size());
  const auto rank_y = static_cast<int64_t>(y.dims().size());
  const int64_t start = axis == -1 ? rank_x - rank_y : axis;
  if (start < 0 || start + rank_y > rank_x) return false;
  for (int64_t i = 0; i < rank_y; ++i) {
    const int64_t of_y = y.dims()[static_cast<size_t>(i)];
    if (of_y != 1 && (of_y < 0 || of_y != x.dims()[static_cast<size_t>(start + i)])) return false;
  }
  return true;
}

class DropShapeInputs final : public Pass {
 public:
  llvm::StringRef name() const override { return "drop-shape-inputs"; }

  StatusOr<bool> run(Program& program, PassContext& context) override {
    const Block& block = program.root();
    bool changed = false;
    for (Op& op : program.root().ops()) {
      if (op.type() != "elementwise_add_grad" && op.type() != "elementwise_sub_grad") continue;
      const ops::OpDef* const def = context.registry.find(op.type());
      const Var* const x = block.find_var(single_input(op, "X"));
      const Var* const y = block.find_var(single_input(op, "Y"));
      if (def == nullptr || x == nullptr || y == nullptr || !y->persistable() ||
          op.find_input("Out@GRAD") == nullptr)
        continue;
      if (!gives_dims_of_x(*x, *y, ops::read_attr<int32_t>(*def, op, "axis"))) continue;
      op.remove_input("X");
      changed = true;
    }
    return changed;
  }
};

}  // namespace

void add_fusion_drop_shape_inputs(PassRegistry& registry) {
  registry.add(PassInfo("drop-shape-inputs",
                        "remove the operand whose shape only is needed from gradient ops of "
                        "sums; the shape is that of the gradient of the result")
                   .strings("keep", "vars whose value is needed after a run; no var is removed")
                   .makes<DropShapeInputs>());
}

}  // namespace millrace::transpiler

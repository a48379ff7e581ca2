#include <llvm/ADT/StringSwitch.h>

#include "transpiler/pass_registry.h"

namespace millrace::transpiler {
namespace {

bool is_product(llvm::StringRef type) {
  type.consume_back("_grad");
  type.consume_front("summed_");
  return llvm::StringSwitch<bool>(type)
      .Cases("mul", "matmul", "matmul_v2", "bmm", "fc", true)
      .Case("conv2d", true)
      .Default(false);
}

class LowerProducts final : public Pass {
 public:
  llvm::StringRef name() const override { return "lower-products"; }

  StatusOr<bool> run(Program& program, PassContext& /*context*/) override {
    const AttrValue wanted = AttrValue::of_string("bfloat16");
    bool changed = false;
    for (Block& block : program.blocks()) {
      for (Op& op : block.ops()) {
        if (!is_product(op.type())) continue;
        const AttrValue* const now = op.find_attr("mkldnn_data_type");
        if (now != nullptr && *now == wanted) continue;
        op.set_attr("mkldnn_data_type", wanted);
        changed = true;
      }
    }
    return changed;
  }
};

}  // namespace

void add_fusion_lower_products(PassRegistry& registry) {
  registry.add(
      PassInfo("lower-products",
               "mark matrix products and convolutions so that they round inputs to bfloat16 "
               "(mkldnn_data_type)")
          .strings("keep", "vars whose value is needed after a run; no var is removed")
          .makes<LowerProducts>());
}

}  // namespace millrace::transpiler

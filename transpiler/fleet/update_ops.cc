#include "transpiler/fleet/update_ops.h"

#include <tuple>

#include "framework/op_attrs.h"
#include "transpiler/fleet/row_terms.h"
#include "transpiler/roles.h"

namespace millrace::transpiler {

bool is_power_update(const Op& op, const Op& update) {
  if (op.type() != "scale" || get_attr_or(op, "bias", 0.0F) != 0) return false;
  const llvm::StringRef power = op.first_input("X");
  // no other op of the update moves it
  if (power.empty() || power != op.first_output("Out") || update.writes(power)) return false;
  for (const auto& [slot, beta, usual] :
       {std::tuple("Beta1Pow", "beta1", 0.9F), {"Beta2Pow", "beta2", 0.999F}}) {
    if (update.first_input(slot) == power)
      return get_attr_or(op, "scale", 1.0F) == get_attr_or(update, beta, usual);
  }
  return false;
}

void leave_terms_to_servers(Block& block, const std::string& param) {
  for (Op* const op : block.readers_of(param)) {
    if (!role::is_optimize_op(*op) || !role::is_optimizer(*op)) continue;
    const RowTerms terms = find_row_terms(block, *op);
    op->set_input("Grad", terms.gradient);
    for (Op* const term : terms.ops) block.erase(*term);
    return;
  }
}

}  // namespace millrace::transpiler

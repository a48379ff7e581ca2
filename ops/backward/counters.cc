#include "ops/backward/counters.h"

#include "framework/names.h"
#include "framework/op_attrs.h"
#include "ops/backward/versions.h"

namespace millrace::ops::backward {
namespace {

constexpr int32_t kBackwardRole = 1;

// Adds the vars of the forward block that a gradient op writes and that are not gradients.
void add_counted(const Op& op, const Block& forward, Names& counted) {
  for (const std::string& name : touched_by(op).writes) {
    const Var* const var = forward.find_var(name);
    if (var != nullptr && !var->persistable() && !is_grad_name(name) && name != names::kEmpty)
      counted.insert(name);
  }
}

}  // namespace

void restore_counters(Block& forward, Block& target) {
  Names counted;
  Op* first = nullptr;  // first gradient op, if gradient ops are in the block itself
  if (&forward == &target) {
    for (Op& op : forward.ops()) {
      if ((get_attr_or<int32_t>(op, "op_role", 0) & kBackwardRole) == 0) continue;
      if (first == nullptr) first = &op;
      add_counted(op, forward, counted);
    }
  } else {
    for (const Block& block : forward.program().blocks()) {
      if (&block == &target || block.forward_block() != forward.index()) continue;
      for (const Op& op : block.ops()) add_counted(op, forward, counted);
    }
  }
  for (const std::string& name : counted) {
    const std::string saved = declare_version(forward, name);
    insert_assign(forward, first, name, saved);
    target.append_op("assign")
        .set_input("X", saved)
        .set_output("Out", name)
        .set_int("op_role", kBackwardRole);
  }
}

}  // namespace millrace::ops::backward

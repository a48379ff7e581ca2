#include "executor/gpu/control_numbers.h"

#include <llvm/ADT/STLExtras.h>
#include <llvm/ADT/StringSwitch.h>

#include "framework/block.h"

namespace millrace::executor {
namespace control_numbers {
namespace {

// The slot whose numbers a control op, or an op of arrays, reads on the CPU; empty for other ops.
llvm::StringRef number_slot(const Op& op) {
  return llvm::StringSwitch<llvm::StringRef>(op.type())
      .Case("while", "Condition")
      .Cases("conditional_block", "conditional_block_infer", "Cond")
      .Cases("write_to_array", "read_from_array", "shrink_rnn_memory", "I")
      .Cases("select_input", "select_output", "Mask")
      .Default("");
}

// Ops that compute a counter or a condition from others.
bool can_compute(const Op& op) {
  return llvm::StringSwitch<bool>(op.type())
      .Cases("fill_constant", "assign", "increment", "cast", true)
      .Cases("less_than", "less_equal", "greater_than", "greater_equal", "equal", "not_equal", true)
      .Cases("logical_and", "logical_or", "logical_not", "logical_xor", true)
      .Cases("elementwise_add", "elementwise_sub", "max_sequence_len", "lod_array_length", true)
      .Default(false);
}

// True for one whole number or bool.
bool is_number(const Op& op, llvm::StringRef name) {
  const Var* const var = op.block().find_var_recursive(name);
  if (var == nullptr || var->kind() != VarKind::kLodTensor) return false;
  const DType dtype = var->dtype();
  if (dtype != DType::kBool && dtype != DType::kInt32 && dtype != DType::kInt64) return false;
  return llvm::all_of(var->dims(), [](int64_t dim) { return dim == 1; });
}

}  // namespace
}  // namespace control_numbers

bool ControlNumbers::add_inputs(const Op& op) {
  bool added = false;
  for (const Slot& slot : op.inputs()) {
    for (const Arg& arg : slot.args) {
      if (control_numbers::is_number(op, op.name_of(arg.name)))
        added |= names_.insert(arg.name).second;
    }
  }
  return added;
}

ControlNumbers::ControlNumbers(const Program& program) {
  for (const Block& block : program.blocks()) {
    for (const Op& op : block.ops()) {
      const llvm::StringRef slot = control_numbers::number_slot(op);
      for (const Slot& in : op.inputs()) {
        if (slot.empty() || op.name_of(in.name) != slot) continue;
        for (const Arg& arg : in.args) {
          if (control_numbers::is_number(op, op.name_of(arg.name))) names_.insert(arg.name);
        }
      }
    }
  }
  for (bool grows = !names_.empty(); grows;) {
    grows = false;
    for (const Block& block : program.blocks()) {
      for (const Op& op : block.ops()) {
        if (contains(op)) grows |= add_inputs(op);
      }
    }
  }
}

bool ControlNumbers::contains(const Op& op) const {
  return control_numbers::can_compute(op) && llvm::any_of(op.outputs(), [&](const Slot& slot) {
           return llvm::any_of(slot.args,
                               [&](const Arg& arg) { return names_.contains(arg.name); });
         });
}

}  // namespace millrace::executor

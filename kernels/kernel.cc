#include "kernels/kernel.h"

#include "framework/names.h"
#include "framework/program.h"

namespace millrace::kernels {
namespace {

ArgRange find_range(const Op& op, llvm::ArrayRef<Slot> slots, llvm::StringRef name) {
  int32_t begin = 0;
  for (const Slot& slot : slots) {
    const auto count = static_cast<int32_t>(slot.args.size());
    if (op.name_of(slot.name) == name) return {begin, count};
    begin += count;
  }
  return {};
}

ArgIndex find_arg(const Op& op, llvm::ArrayRef<Slot> slots, llvm::StringRef name, size_t k) {
  int32_t begin = 0;
  for (const Slot& slot : slots) {
    if (op.name_of(slot.name) == name) {
      if (k >= slot.args.size() || op.name_of(slot.args[k].name) == names::kEmpty) return {};
      return {begin + static_cast<int32_t>(k)};
    }
    begin += static_cast<int32_t>(slot.args.size());
  }
  return {};
}

// The var of an input, given its position among all inputs; null if no block declares it.
const Var* find_input_var(const Op& op, ArgIndex arg) {
  int32_t position = 0;
  for (const Slot& slot : op.inputs()) {
    for (const Arg& each : slot.args) {
      if (position++ == arg.index) return op.block().find_var_recursive(op.name_of(each.name));
    }
  }
  return nullptr;
}

}  // namespace

KernelSetup::KernelSetup(const ops::OpDef& def, const Op& op, CpuDevice& device,
                         const ops::OpRegistry& schemas)
    : OpView(def, op), device_(device), schemas_(schemas) {}

ArgIndex KernelSetup::input(llvm::StringRef slot, size_t k) const {
  return find_arg(op(), op().inputs(), slot, k);
}
ArgIndex KernelSetup::output(llvm::StringRef slot, size_t k) const {
  return find_arg(op(), op().outputs(), slot, k);
}
ArgRange KernelSetup::inputs(llvm::StringRef slot) const {
  return find_range(op(), op().inputs(), slot);
}
ArgRange KernelSetup::outputs(llvm::StringRef slot) const {
  return find_range(op(), op().outputs(), slot);
}

bool KernelSetup::is_persistable(ArgIndex arg) const {
  const Var* const var = find_input_var(op(), arg);
  return var != nullptr && var->persistable();
}
bool KernelSetup::is_constant(ArgIndex arg) const {
  const Var* const var = find_input_var(op(), arg);
  if (var == nullptr || !var->persistable()) return false;
  for (const Block& block : op().block().program().blocks()) {
    if (block.has_writers(var->name())) return false;
  }
  return true;
}

}  // namespace millrace::kernels

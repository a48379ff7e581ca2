#include "framework/op_attrs.h"
#include "transpiler/upgrade/upgrade.h"

namespace millrace::transpiler {
namespace {

bool convert_kinds(Op& op, const ops::OpDef& def) {
  std::vector<std::pair<std::string, AttrValue>> converted;
  for (const Attr& attr : op.attrs()) {
    const llvm::StringRef name = op.name_of(attr.name);
    const ops::AttrDef* const wanted = def.find_attr(name);
    if (wanted == nullptr || attr.missing_value || attr.value.kind() == wanted->kind) continue;
    if (std::optional<AttrValue> value = convert_attr(attr.value, wanted->kind))
      converted.emplace_back(name.str(), *std::move(value));
  }
  for (auto& [name, value] : converted) op.set_attr(name, std::move(value));
  return !converted.empty();
}

}  // namespace

StatusOr<bool> upgrade_attr_kinds(Program& program, PassContext& context) {
  bool changed = false;
  for (Block& block : program.blocks()) {
    for (Op& op : block.ops()) {
      if (const ops::OpDef* const def = context.registry.find(op.type()))
        changed |= convert_kinds(op, *def);
    }
  }
  return changed;
}

}  // namespace millrace::transpiler

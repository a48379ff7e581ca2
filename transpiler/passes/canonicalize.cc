#include "framework/export.h"
#include "transpiler/pass_registry.h"

namespace millrace::transpiler {
namespace {

void sort_vars(Block& block) {
  const auto by_name = [](const Var* a, const Var* b) { return a->name() < b->name(); };
  std::vector<const Var*> sorted;
  for (const Var& var : block.vars()) sorted.push_back(&var);
  llvm::stable_sort(sorted, by_name);
  std::vector<std::pair<std::string, VarSpec>> copies;
  copies.reserve(sorted.size());
  for (const Var* var : sorted) copies.emplace_back(var->name().str(), var->spec());
  for (Var& var : llvm::make_early_inc_range(block.vars())) block.erase(var);
  for (auto& [name, spec] : copies) block.add_declaration(name, std::move(spec));
}

void sort_slots(Op& op, bool outputs) {
  std::vector<std::pair<std::string, std::vector<std::string>>> slots;
  for (const Slot& slot : outputs ? op.outputs() : op.inputs()) {
    auto& copy = slots.emplace_back(op.name_of(slot.name).str(), std::vector<std::string>{});
    for (const Arg& arg : slot.args) copy.second.push_back(op.name_of(arg.name).str());
  }
  const auto by_name = [](const auto& a, const auto& b) { return a.first < b.first; };
  if (llvm::is_sorted(slots, by_name)) return;
  for (const auto& slot : slots) {
    outputs ? op.remove_output(slot.first) : op.remove_input(slot.first);
  }
  llvm::stable_sort(slots, by_name);
  for (const auto& [name, args] : slots)
    op.add_slot(outputs, name, llvm::SmallVector<llvm::StringRef, 8>(args.begin(), args.end()));
}

void sort_attrs(Op& op) {
  const auto by_name = [&](const Attr& a, const Attr& b) {
    return op.name_of(a.name) < op.name_of(b.name);
  };
  std::vector<Attr> attrs = op.attrs().vec();
  if (llvm::is_sorted(attrs, by_name)) return;
  for (const Attr& attr : attrs) op.remove_attr(op.name_of(attr.name));
  llvm::stable_sort(attrs, by_name);
  for (Attr& attr : attrs) op.add_attr(std::move(attr));
}

class Canonicalize final : public Pass {
 public:
  llvm::StringRef name() const override { return "canonicalize"; }

  StatusOr<bool> run(Program& program, PassContext& /*context*/) override {
    const std::string before = export_program(program);
    for (Block& block : program.blocks()) {
      sort_vars(block);
      for (Op& op : block.ops()) {
        sort_slots(op, /*outputs=*/false);
        sort_slots(op, /*outputs=*/true);
        sort_attrs(op);
        op.set_type(op.type());  // an edit, so that the op is encoded again
      }
    }
    return export_program(program) != before;
  }
};

}  // namespace

void add_passes_canonicalize(PassRegistry& registry) {
  registry.add(
      PassInfo("canonicalize",
               "sort declarations, slots and attributes by name and encode everything again, "
               "so that equal programs are equal files")
          .makes<Canonicalize>());
}

}  // namespace millrace::transpiler

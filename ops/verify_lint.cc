#include <llvm/ADT/DenseSet.h>

#include "framework/base/errors.h"
#include "ops/absent_gradients.h"
#include "ops/verify_context.h"

namespace millrace::ops::verify {
namespace {

// Warnings about constructs that run but are rarely intended.
class Linter {
 public:
  explicit Linter(Context& context) : context_(context) {}

  void run() {
    collect_uses();
    for (const Block& block : context_.program.blocks()) {
      if (!context_.reachable[block.index()]) unreachable(block);
      for (const Var& var : block.vars()) check_used(var);
      check_ops(block);
    }
    for (const Status& lost : lost_state_gradients(context_.program))
      context_.findings.warning("lost-gradient", lost);
  }

 private:
  void warn(std::string_view rule, Location where, Status status) {
    context_.findings.warning(rule, std::move(status).at(std::move(where)));
  }

  // Names that any op of the program uses. If a name has several declarations, all count as used.
  void collect_uses() {
    used_.assign(context_.program.names().size(), false);
    for (const Block& block : context_.program.blocks()) {
      for (const Op& op : block.ops()) {
        if (context_.role_name && op.has_attr("op_role")) some_have_roles_ = true;
        for (const auto slots : {op.inputs(), op.outputs()}) {
          for (const Slot& slot : slots) {
            for (const Arg& arg : slot.args) used_[static_cast<uint32_t>(arg.name)] = true;
          }
        }
        for (const Attr& attr : op.attrs()) note_names(attr.value);
      }
    }
  }

  // Attributes may name vars too (state names of recurrent, send and fetch lists).
  void note_names(const AttrValue& value) {
    auto note = [&](llvm::StringRef name) {
      if (const auto id = context_.program.names().find(name))
        used_[static_cast<uint32_t>(*id)] = true;
    };
    if (value.kind() == AttrKind::kString || value.kind() == AttrKind::kVar) note(value.string());
    if (value.kind() == AttrKind::kStrings || value.kind() == AttrKind::kVars) {
      for (const std::string& name : value.strings()) note(name);
    }
  }

  void unreachable(const Block& block) {
    Location where;
    where.block = block.index();
    warn("unreachable-block", where,
         InvalidProgram("no reachable op owns block {} with its {} ops", block.index(),
                        block.op_count()));
  }

  void check_used(const Var& var) {
    if (used_[static_cast<uint32_t>(var.id())] || var.persistable()) return;
    const VarKind kind = var.kind();
    if (kind == VarKind::kFeedMinibatch || kind == VarKind::kFetchList) return;
    Location where;
    where.block = var.block().index();
    where.var = var.name().str();
    warn("unused-var", where, InvalidProgram("var '{}' is never used", where.var));
  }

  void check_ops(const Block& block) {
    int64_t index = -1;
    for (const Op& op : block.ops()) {
      const OpView view{op, ++index, context_.type_of(op)};
      if (some_have_roles_ && !op.has_attr("op_role")) {
        context_.warning(view, "op-role-missing",
                         InvalidProgram("op has no op_role, others have one"),
                         Context::place(view));
      }
      check_attr_names(view);
    }
    check_dead_stores(block);
  }

  // Each unknown attribute of an op type is reported once, at its first op.
  void check_attr_names(const OpView& view) {
    if (view.type.def == nullptr) return;
    for (const Attr& attr : view.op.attrs()) {
      if (view.type.attrs.count(attr.name) != 0) continue;
      if (context_.find_common(attr.name) != nullptr) continue;
      if (!reported_.insert({view.op.type_id(), attr.name}).second) continue;
      Location where = Context::place(view);
      where.attr = view.op.name_of(attr.name).str();
      Status status =
          InvalidProgram("attribute '{}' is not in the schema of '{}'", where.attr, where.op_type);
      context_.warning(view, "attr-unknown", std::move(status), std::move(where));
    }
  }

  // Finds values that a later op of the same block overwrites before any op reads them. Ops that
  // own blocks may read any var.
  void check_dead_stores(const Block& block) {
    struct Store {
      const Op* op;
      int64_t index;
    };
    llvm::DenseMap<NameId, Store> unread;
    int64_t index = -1;
    for (const Op& op : block.ops()) {
      ++index;
      if (owns_block(op)) unread.clear();
      for (const Slot& slot : op.inputs()) {
        for (const Arg& arg : slot.args) unread.erase(arg.name);
      }
      const OpDef* const def = context_.type_of(op).def;
      for (const Slot& slot : op.outputs()) {
        for (const Arg& arg : slot.args) {
          if (context_.is_placeholder(arg.name)) continue;
          const Var* const var = block.find_var(arg.name);
          if (var == nullptr || var->kind() != VarKind::kLodTensor) continue;
          const auto [it, is_new] = unread.try_emplace(arg.name, Store{&op, index});
          if (is_new) continue;
          if (it->second.op != &op) dead_store(*it->second.op, it->second.index, index, arg.name);
          it->second = Store{&op, index};
        }
      }
      if (def == nullptr || def->has_side_effects()) unread.clear();
    }
  }

  void dead_store(const Op& op, int64_t index, int64_t next, NameId name) {
    const OpView view{op, index, context_.type_of(op)};
    Location where = Context::place(view);
    where.var = op.name_of(name).str();
    Status status = InvalidProgram("value of '{}' is replaced by op {} before anything reads it",
                                   where.var, next);
    context_.warning(view, "dead-store", std::move(status), std::move(where));
  }

  static bool owns_block(const Op& op) {
    return llvm::any_of(op.attrs(), [](const Attr& attr) {
      return attr.value.kind() == AttrKind::kBlock || attr.value.kind() == AttrKind::kBlocks;
    });
  }

  Context& context_;
  std::vector<bool> used_;
  bool some_have_roles_ = false;
  llvm::DenseSet<std::pair<NameId, NameId>> reported_;
};

}  // namespace

void check_lint(Context& context) {
  Linter(context).run();
}

}  // namespace millrace::ops::verify

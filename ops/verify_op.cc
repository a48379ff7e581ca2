#include <algorithm>

#include <llvm/ADT/STLExtras.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "ops/absent_gradients.h"
#include "ops/old_forms.h"
#include "ops/verify_context.h"

namespace millrace::ops::verify {
namespace {

std::string nearest_slot(llvm::ArrayRef<SlotDef> slots, llvm::StringRef name) {
  std::vector<std::string_view> candidates;
  for (const SlotDef& slot : slots) candidates.push_back(text(slot.name));
  return nearest_name(text(name), candidates);
}

void unknown_type(Context& context, const OpView& view) {
  if (context.counted(view)) return;
  const llvm::StringRef type = view.op.type();
  Location where = Context::place(view);
  if (type.empty()) {
    context.error(view, "op-type", InvalidProgram("op type is empty"), std::move(where));
    return;
  }
  Status status = InvalidProgram("unknown op type '{}'", text(type.take_front(256)));
  const std::string& near = view.type.suggestion;
  if (!near.empty()) status = std::move(status).with_hint("did you mean '" + near + "'?");
  context.error(view, "op-type", std::move(status), std::move(where));
}

std::string_view arity_text(Arity arity) {
  switch (arity) {
    case Arity::kOne:
      return "exactly one";
    case Arity::kOptional:
      return "at most one";
    case Arity::kMany:
      return "at least one";
    case Arity::kAny:
      break;
  }
  return "any number";
}

std::string kinds_text(uint32_t kinds) {
  static constexpr VarKind kOfBit[] = {
      VarKind::kLodTensor,     VarKind::kSelectedRows, VarKind::kLodTensorArray,
      VarKind::kStepScopes,    VarKind::kLodRankTable, VarKind::kReader,
      VarKind::kFeedMinibatch, VarKind::kFetchList,    VarKind::kRaw};
  std::string out;
  for (const VarKind kind : kOfBit) {
    if ((mask_of(kind) & kinds) == 0) continue;
    out += (out.empty() ? "" : " or ") + std::string(var_kind_name(kind));
  }
  return out.empty() ? "another kind" : out;
}

// Checks one side (inputs or outputs) of an op.
class SideChecker {
 public:
  SideChecker(Context& context, const OpView& view, bool is_output)
      : context_(context),
        view_(view),
        is_output_(is_output),
        slots_(is_output ? view.op.outputs() : view.op.inputs()) {}

  void run() {
    const OpDef* const def = view_.type.def;
    if (def != nullptr)
      match(is_output_ ? def->outputs() : def->inputs(),
            is_output_ ? view_.type.output_ids : view_.type.input_ids);
    for (const Slot& slot : slots_) check_arguments(slot);
  }

 private:
  [[nodiscard]] Location at_slot(llvm::StringRef slot) const {
    Location where = Context::place(view_);
    where.slot = std::string(is_output_ ? "output " : "input ") + slot.str();
    return where;
  }
  [[nodiscard]] llvm::StringRef name_of(NameId id) const { return view_.op.name_of(id); }

  void match(llvm::ArrayRef<SlotDef> defs, llvm::ArrayRef<std::optional<NameId>> ids) {
    context_.marks.next_round();
    def_of_.assign(slots_.size(), nullptr);
    for (size_t i = 0; i < slots_.size(); ++i) {
      if (context_.marks.mark(slots_[i].name, static_cast<int32_t>(i)) < 0) continue;
      context_.error(view_, "slot-twice",
                     InvalidProgram("slot '{}' occurs twice", text(name_of(slots_[i].name))),
                     at_slot(name_of(slots_[i].name)));
    }
    for (size_t d = 0; d < defs.size(); ++d) {
      const int32_t found = ids[d] ? context_.marks.value(*ids[d]) : -1;
      if (found >= 0) def_of_[found] = &defs[d];
      check_count(defs[d], found < 0 ? nullptr : &slots_[found]);
    }
    for (size_t i = 0; i < slots_.size(); ++i) {
      const bool is_first = context_.marks.value(slots_[i].name) == static_cast<int32_t>(i);
      if (def_of_[i] == nullptr && is_first && !slots_[i].args.empty()) unknown_slot(defs, i);
    }
  }

  void check_count(const SlotDef& def, const Slot* slot) {
    const size_t names = slot == nullptr ? 0 : slot->args.size();
    const size_t present =
        slot == nullptr ? 0 : static_cast<size_t>(llvm::count_if(slot->args, [&](const Arg& arg) {
          return !context_.is_placeholder(arg.name);
        }));
    const bool required =
        (def.arity == Arity::kOne || def.arity == Arity::kMany) && !def.intermediate;
    const bool single = def.arity == Arity::kOne || def.arity == Arity::kOptional;
    if (required && present == 0) {
      context_.error(
          view_, "slot-missing",
          InvalidProgram("required {} slot '{}' is missing (expected {} name, found 0)",
                         is_output_ ? "output" : "input", text(def.name), arity_text(def.arity)),
          at_slot(def.name));
    } else if (single && names > 1) {
      context_.error(view_, "slot-count",
                     InvalidProgram("slot '{}' has {} names (expected {})", text(def.name), names,
                                    arity_text(def.arity)),
                     at_slot(def.name));
    }
  }

  void unknown_slot(llvm::ArrayRef<SlotDef> defs, size_t index) {
    const llvm::StringRef name = name_of(slots_[index].name);
    Location where = at_slot(name);
    Status status = InvalidProgram("op type '{}' has no {} slot '{}'", text(view_.op.type()),
                                   is_output_ ? "output" : "input", text(name));
    if (view_.type.def->has_open_slots() || view_.type.is_gradient) {
      if (context_.options.lint && !view_.type.def->has_open_slots())
        context_.warning(view_, "slot-unknown", std::move(status), std::move(where));
      return;
    }
    if (context_.options.allow_old_forms && is_withdrawn(name)) {
      context_.warning(view_, "slot-unknown", std::move(status), std::move(where));
      return;
    }
    const std::string near = nearest_slot(defs, name);
    if (!near.empty()) status = std::move(status).with_hint("did you mean '" + near + "'?");
    context_.error(view_, "slot-unknown", std::move(status), std::move(where));
  }

  bool is_withdrawn(llvm::StringRef slot) const {
    return is_output_ && llvm::any_of(withdrawn_outputs(), [&](const WithdrawnOutput& entry) {
             return entry.op == view_.op.type() && entry.slot == slot;
           });
  }

  void check_arguments(const Slot& slot) {
    const auto index = static_cast<size_t>(&slot - slots_.begin());
    const SlotDef* const def = index < def_of_.size() ? def_of_[index] : nullptr;
    for (size_t i = 0; i < slot.args.size(); ++i) {
      const NameId name = slot.args[i].name;
      if (context_.is_placeholder(name)) continue;
      const Var* const var = find_var(name);
      if (var == nullptr) {
        undeclared(slot, def, i);
      } else if (def != nullptr && is_valid(var->kind()) &&
                 (mask_of(var->kind()) & def->kinds) == 0) {
        wrong_kind(slot, *def, i, *var);
      }
    }
  }

  [[nodiscard]] const Var* find_var(NameId name) const {
    if (!context_.has_forward_blocks) return context_.visible[static_cast<uint32_t>(name)];
    // A gradient block runs inside the scopes of its forward block, which is not its parent.
    const Program& program = context_.program;
    for (const Block* block = &view_.op.block();; block = &program.block(block->parent())) {
      if (const Var* const var = block->find_var(name)) return var;
      const int32_t forward = block->forward_block().value_or(-1);
      if (forward > 0) {
        if (const Var* const var = program.block(forward).find_var(name)) return var;
      }
      if (block->parent() < 0) return nullptr;
    }
  }

  void undeclared(const Slot& slot, const SlotDef* def, size_t index) {
    if (context_.counted(view_)) return;
    Location where = at_slot(name_of(slot.name));
    where.slot_index = static_cast<int>(index);
    const llvm::StringRef name = name_of(slot.args[index].name);
    where.var = name.str();
    Status status =
        name.empty() ? InvalidProgram("argument has an empty name")
                     : InvalidProgram("var '{}' is not declared in block {} or an enclosing block",
                                      text(name), view_.op.block().index());
    // Only a warning if the block is unreachable, or if a gradient op can leave the argument out:
    // an undeclared optional output, or the gradient of an unused output.
    const bool optional = def != nullptr && (def->intermediate || def->arity == Arity::kOptional ||
                                             def->arity == Arity::kAny);
    const bool harmless = !context_.reachable[view_.op.block().index()] ||
                          (optional && view_.type.is_gradient &&
                           (is_output_ || is_absent_gradient(view_.op, name_of(slot.name), name)));
    if (harmless) {
      context_.warning(view_, "undeclared-var", std::move(status), std::move(where));
    } else {
      context_.error(view_, "undeclared-var", std::move(status), std::move(where));
    }
  }

  void wrong_kind(const Slot& slot, const SlotDef& def, size_t index, const Var& var) {
    Location where = at_slot(def.name);
    where.slot_index = static_cast<int>(index);
    where.var = name_of(slot.args[index].name).str();
    context_.error(view_, "slot-kind",
                   InvalidProgram("var '{}' is a {} (expected {})", where.var,
                                  var_kind_name(var.kind()), kinds_text(def.kinds)),
                   where);
  }

  Context& context_;
  const OpView& view_;
  bool is_output_;
  llvm::ArrayRef<Slot> slots_;
  std::vector<const SlotDef*> def_of_;
};

}  // namespace

void check_slots(Context& context, const OpView& view) {
  if (view.type.def == nullptr) unknown_type(context, view);
  SideChecker(context, view, false).run();
  SideChecker(context, view, true).run();
}

}  // namespace millrace::ops::verify

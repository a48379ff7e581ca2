#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <llvm/ADT/DenseSet.h>
#include <llvm/ADT/STLExtras.h>
#include <llvm/ADT/SmallVector.h>

#include "framework/op_attrs.h"
#include "transpiler/fusion/inner_vars.h"
#include "transpiler/pass_registry.h"
#include "transpiler/program_edit.h"

namespace millrace::transpiler {
namespace {

// An input that the update overwrites.
struct State {
  const char* input;
  const char* output;
  bool is_optional = false;  // other ops may update it
};

struct UpdateKind {
  const char* type;
  const char* merged;
  std::vector<State> states;       // Param first
  std::vector<const char*> attrs;  // that the merged op also has
};

const std::vector<UpdateKind>& update_kinds() {
  static const std::vector<UpdateKind> kinds = {
      {"sgd", "merged_sgd", {{"Param", "ParamOut"}}, {}},
      {"momentum",
       "merged_momentum",
       {{"Param", "ParamOut"}, {"Velocity", "VelocityOut"}},
       {"mu", "use_nesterov", "rescale_grad"}},
      {"adam",
       "merged_adam",
       {{"Param", "ParamOut"},
        {"Moment1", "Moment1Out"},
        {"Moment2", "Moment2Out"},
        {"Beta1Pow", "Beta1PowOut", true},
        {"Beta2Pow", "Beta2PowOut", true}},
       {"beta1", "beta2", "epsilon", "use_global_beta_pow"}}};
  return kinds;
}

// Says which vars or which code of the user an op belongs to, not what it computes.
bool is_origin_attr(llvm::StringRef name) {
  return name == "op_role_var" || name == "op_callstack" || name == "op_namescope";
}

// An update that may join others.
struct Update {
  Op* op = nullptr;
  int64_t elements = 0;
  const Op* ready_after = nullptr;  // last op that it depends on; null: none
  const Op* done_before = nullptr;  // first op that depends on it; null: none
};

// Updates that become one op at the position of the last of them.
struct UpdateGroup {
  llvm::SmallVector<Op*, 16> ops;
  int64_t elements = 0;
  Op* last = nullptr;
  const Op* done_before = nullptr;
};

const Op* first_of(const Op* a, const Op* b) {
  if (a == nullptr || b == nullptr) return a == nullptr ? b : a;
  return a->comes_before(*b) ? a : b;
}
const Op* last_of(const Op* a, const Op* b) {
  if (a == nullptr || b == nullptr) return a == nullptr ? b : a;
  return a->comes_before(*b) ? b : a;
}

// Finds the updates of block 0 that may join others, and their dependencies.
class UpdateFinder {
 public:
  UpdateFinder(Program& program, const ops::OpRegistry& registry, int64_t max_elements)
      : block_(program.root()),
        registry_(registry),
        outside_(names_outside_root(program)),
        max_elements_(max_elements) {
    // such an op has an effect other than its outputs: a check, a message, a barrier
    for (const Op& op : block_.ops()) {
      if (op.outputs().empty()) barriers_.push_back(&op);
    }
  }

  std::vector<Update> find(const UpdateKind& kind) const {
    std::vector<Update> found;
    for (Op& op : block_.ops()) {
      if (op.type() != kind.type || !has_only_usual_slots(op, kind) || !has_only_usual_attrs(op))
        continue;
      const std::optional<int64_t> elements = elements_of(op);
      if (!elements || is_gradient_sparse(op)) continue;
      found.push_back({&op, *elements});
      find_bounds(found.back());
    }
    // in the order in which they are ready
    llvm::stable_sort(found, [](const Update& a, const Update& b) {
      if (a.ready_after == b.ready_after || b.ready_after == nullptr) return false;
      return a.ready_after == nullptr || a.ready_after->comes_before(*b.ready_after);
    });
    return found;
  }

 private:
  bool is_seen_outside(llvm::StringRef name) const {
    const Var* const var = block_.find_var(name);
    return var == nullptr || outside_.contains(var->id());
  }

  // True if each slot has one var, used in block 0 only, and states are updated in place.
  bool has_only_usual_slots(const Op& op, const UpdateKind& kind) const {
    size_t inputs = 2;
    size_t outputs = 0;
    if (is_seen_outside(single_input(op, "Grad")) ||
        is_seen_outside(single_input(op, "LearningRate")))
      return false;
    for (const State& state : kind.states) {
      const llvm::StringRef in = single_input(op, state.input);
      const llvm::StringRef out = single_output(op, state.output);
      if (is_seen_outside(in) || (out.empty() ? !state.is_optional : out != in)) return false;
      ++inputs;
      outputs += out.empty() ? 0 : 1;
    }
    return op.input_names().size() == inputs && op.output_names().size() == outputs;
  }

  // True if there are no unknown attributes and no copies in another precision. A lazy update
  // differs from others in how it handles sparse gradients.
  bool has_only_usual_attrs(const Op& op) const {
    const ops::OpDef* const def = registry_.find(op.type());
    if (def == nullptr || get_attr_or(op, "multi_precision", false) ||
        get_attr_or(op, "lazy_mode", false))
      return false;
    return llvm::all_of(op.attrs(), [&](const Attr& attr) {
      const llvm::StringRef name = op.name_of(attr.name);
      return def->find_attr(name) != nullptr || registry_.find_common_attr(name) != nullptr;
    });
  }

  // Elements of a parameter of f32 with a gradient declared alike; nullopt for others, and if there
  // are too many.
  std::optional<int64_t> elements_of(const Op& op) const {
    const Var* const param = block_.find_var(single_input(op, "Param"));
    const Var* const grad = block_.find_var(single_input(op, "Grad"));
    if (!is_f32(param) || !is_f32(grad) || param->kind() != VarKind::kLodTensor ||
        grad->kind() != VarKind::kLodTensor || param->dims() != grad->dims())
      return std::nullopt;
    int64_t elements = 1;
    for (const int64_t dim : param->dims()) {
      if (dim < 0 || dim > max_elements_) return std::nullopt;
      elements *= dim;
      if (elements > max_elements_) return std::nullopt;
    }
    return elements;
  }

  // A gradient that is declared dense may still hold selected rows at run time.
  bool is_gradient_sparse(const Op& op) const {
    return llvm::any_of(block_.writers_of(single_input(op, "Grad")), [](const Op* writer) {
      return get_attr_or(*writer, "is_sparse", false) ||
             get_attr_or(*writer, "is_distributed", false);
    });
  }

  void find_bounds(Update& update) const {
    const Op& op = *update.op;
    const auto visit = [&](llvm::ArrayRef<Op*> others) {
      for (const Op* const other : others) {
        if (other == &op) continue;
        if (other->comes_before(op))
          update.ready_after = last_of(update.ready_after, other);
        else
          update.done_before = first_of(update.done_before, other);
      }
    };
    for (const llvm::StringRef name : op.input_names()) visit(block_.writers_of(name));
    for (const llvm::StringRef name : op.output_names()) visit(block_.readers_of(name));
    const auto* const barrier =
        llvm::partition_point(barriers_, [&](const Op* each) { return each->comes_before(op); });
    if (barrier != barriers_.end()) update.done_before = first_of(update.done_before, *barrier);
    if (barrier != barriers_.begin())
      update.ready_after = last_of(update.ready_after, *std::prev(barrier));
  }

  Block& block_;
  const ops::OpRegistry& registry_;
  llvm::DenseSet<NameId> outside_;
  int64_t max_elements_;
  llvm::SmallVector<const Op*, 0> barriers_;
};

// True if the ops differ only in their vars and the user's call stack.
bool are_alike(const Op& a, const Op& b) {
  const auto count = [](const Op& op) {
    return llvm::count_if(op.attrs(),
                          [&](const Attr& attr) { return !is_origin_attr(op.name_of(attr.name)); });
  };
  if (a.output_names().size() != b.output_names().size() || count(a) != count(b) ||
      llvm::any_of(a.outputs(), [&](const Slot& slot) {
        return single_output(b, a.name_of(slot.name)).empty() != slot.args.empty();
      }))
    return false;
  return llvm::all_of(a.attrs(), [&](const Attr& attr) {
    const llvm::StringRef name = a.name_of(attr.name);
    const AttrValue* const other = b.find_attr(name);
    return is_origin_attr(name) || (other != nullptr && *other == attr.value);
  });
}

class MergeUpdates final : public Pass {
 public:
  explicit MergeUpdates(const PassOptions& options)
      : max_elements_(options.integer("max-elements")),
        max_params_(options.integer("max-params")) {}

  llvm::StringRef name() const override { return "merge-updates"; }

  StatusOr<bool> run(Program& program, PassContext& context) override {
    const UpdateFinder finder(program, context.registry, max_elements_);
    bool changed = false;
    for (const UpdateKind& kind : update_kinds()) {
      if (context.registry.find(kind.merged) == nullptr) continue;
      for (UpdateGroup& group : groups_of(finder.find(kind))) {
        if (group.ops.size() < 2) continue;
        merge(group, kind);
        changed = true;
      }
    }
    return changed;
  }

 private:
  // Divides the updates of one kind, in the order in which they are ready, into groups.
  std::vector<UpdateGroup> groups_of(const std::vector<Update>& updates) const {
    std::vector<UpdateGroup> groups;
    // open groups by rate; updates of one rate may differ in attributes
    std::map<llvm::StringRef, llvm::SmallVector<size_t, 1>> open;
    for (const Update& update : updates) {
      auto& candidates = open[single_input(*update.op, "LearningRate")];
      auto* const alike = llvm::find_if(candidates, [&](size_t index) {
        return are_alike(*groups[index].ops.front(), *update.op);
      });
      if (alike != candidates.end() && join(groups[*alike], update)) continue;
      if (alike == candidates.end())
        candidates.push_back(groups.size());
      else
        *alike = groups.size();
      groups.push_back({{update.op}, update.elements, update.op, update.done_before});
    }
    return groups;
  }

  // False if the group would be too large, or if an op before the last update of the group uses
  // something that one of the updates changes.
  bool join(UpdateGroup& group, const Update& update) const {
    if (static_cast<int64_t>(group.ops.size()) >= max_params_ ||
        group.elements + update.elements > max_elements_)
      return false;
    Op* const last = group.last->comes_before(*update.op) ? update.op : group.last;
    const Op* const done_before = first_of(group.done_before, update.done_before);
    if (done_before != nullptr && !last->comes_before(*done_before)) return false;
    group.ops.push_back(update.op);
    group.elements += update.elements;
    group.last = last;
    group.done_before = done_before;
    return true;
  }

  static void merge(const UpdateGroup& group, const UpdateKind& kind) {
    Op& merged = *group.last;
    std::vector<std::string> role_vars;
    std::map<llvm::StringRef, std::vector<std::string>> inputs;
    std::map<llvm::StringRef, std::vector<std::string>> outputs;
    for (const Op* const op : group.ops) {
      inputs["Grad"].push_back(single_input(*op, "Grad").str());
      for (const State& state : kind.states) {
        inputs[state.input].push_back(single_input(*op, state.input).str());
        if (const llvm::StringRef out = single_output(*op, state.output); !out.empty())
          outputs[state.output].push_back(out.str());
      }
      llvm::append_range(role_vars, get_attr_or(*op, "op_role_var", std::vector<std::string>()));
    }
    inputs["LearningRate"] = {single_input(merged, "LearningRate").str()};
    const auto attrs = attrs_of(merged, kind, group.ops.size());
    turn_into(merged, kind.merged);
    for (const auto& [slot, names] : inputs)
      merged.set_input(slot, llvm::ArrayRef<std::string>(names));
    for (const auto& [slot, names] : outputs)
      merged.set_output(slot, llvm::ArrayRef<std::string>(names));
    for (const auto& [name, value] : attrs) merged.set_attr(name, value);
    if (!role_vars.empty()) merged.set_strings("op_role_var", std::move(role_vars));
    for (Op* const op : group.ops) {
      if (op != &merged) merged.block().erase(*op);
    }
  }

  static std::vector<std::pair<std::string, AttrValue>> attrs_of(const Op& op,
                                                                 const UpdateKind& kind,
                                                                 size_t params) {
    std::vector<std::pair<std::string, AttrValue>> attrs;
    for (const char* const name : kind.attrs) {
      if (const AttrValue* const value = op.find_attr(name)) attrs.emplace_back(name, *value);
    }
    // one method per parameter
    const auto method = get_attr_or(op, "regularization_method", std::string());
    if (method.empty()) return attrs;
    attrs.emplace_back("regularization_method",
                       AttrValue::of_strings(std::vector<std::string>(params, method)));
    attrs.emplace_back("regularization_coeff",
                       AttrValue::of_floats(std::vector<float>(
                           params, get_attr_or(op, "regularization_coeff", 0.0F))));
    return attrs;
  }

  int64_t max_elements_;
  int64_t max_params_;
};

}  // namespace

void add_fusion_merge_updates(PassRegistry& registry) {
  registry.add(
      PassInfo("merge-updates",
               "merge small consecutive updates (sgd, momentum, adam) with the same rate and "
               "attributes into one op; must run after passes that look for "
               "optimizer ops")
          .integer("max-elements", 4096,
                   "maximum number of elements of all parameters of a merged op")
          .range(1)
          .integer("max-params", 32, "maximum number of parameters of a merged op")
          .range(2, 1024)
          .strings("keep", "vars whose value is needed after a run; no var is removed")
          .makes<MergeUpdates>());
}

}  // namespace millrace::transpiler

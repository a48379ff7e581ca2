#include "transpiler/fusion/pattern_gradient.h"

#include <vector>

#include <llvm/ADT/STLExtras.h>
#include <llvm/ADT/Twine.h>

#include "framework/names.h"

namespace millrace::transpiler {
namespace {

class PatternGradientFinder {
 public:
  PatternGradientFinder(llvm::ArrayRef<Op*> ops, const PatternInputs& inputs,
                        const InnerVars& inner)
      : forward_(ops), inputs_(inputs), inner_(inner), block_(inner.block()) {}

  std::optional<PatternGradient> find() {
    if (!find_members()) return std::nullopt;
    if (found_.ops.empty()) return found_;
    if (!collect_inner() || !collect_results() || !is_in_order()) return std::nullopt;
    return found_;
  }

 private:
  static llvm::StringRef out_of(const Op& op) { return single_output(op, "Out"); }

  // The op that computes the gradient of `op`; null if there is none.
  Op* gradient_of(const Op& op) const {
    const std::string incoming = names::grad(out_of(op));
    const bool is_scale = op.type() == "scale";  // the gradient of a scale is another scale
    const std::string type = is_scale ? "scale" : (op.type() + "_grad").str();
    Op* result = nullptr;
    for (Op* const reader : block_.readers_of(incoming)) {
      if (reader->type() != type || single_input(*reader, is_scale ? "X" : "Out@GRAD") != incoming)
        continue;
      if (result != nullptr) return nullptr;
      result = reader;
    }
    return result;
  }

  // False if only some of the ops have a gradient. The gradient of the maximum may be missing: it
  // is zero.
  bool find_members() {
    size_t missing = 0;
    for (Op* const op : forward_) {
      if (Op* const grad = gradient_of(*op)) {
        found_.ops.push_back(grad);
        forward_of_.push_back(op);
      } else if (op->type() == "reduce_max" &&
                 block_.writers_of(names::grad(out_of(*op))).empty()) {
        continue;
      } else {
        ++missing;
      }
    }
    if (found_.ops.empty()) return has_no_gradient();
    return missing == 0;
  }
  bool has_no_gradient() const {
    return llvm::none_of(forward_, [&](const Op* op) {
      return llvm::any_of(block_.readers_of(out_of(*op)),
                          [](const Op* reader) { return reader->type().endswith("_grad"); });
    });
  }

  bool is_member(const Op* op) const { return llvm::is_contained(found_.ops, op); }
  bool is_read_by_members(llvm::StringRef name) const {
    return llvm::all_of(block_.readers_of(name), [&](const Op* op) { return is_member(op); });
  }

  // Collects gradients of values between the forward ops, and the sums that compute them.
  bool collect_inner() {
    for (Op* const op : forward_.drop_back()) {
      const llvm::StringRef name = out_of(*op);
      for (const Op* const reader : block_.readers_of(name)) {
        if (!llvm::is_contained(forward_, reader) && !is_member(reader)) return false;
      }
      const std::string grad = names::grad(name);
      if (block_.writers_of(grad).empty()) continue;
      Op* const writer = inner_.writer(grad);
      if (writer == nullptr || !is_read_by_members(grad)) return false;
      inside_.push_back(grad);
      if (is_member(writer)) continue;
      if (writer->type() != "sum" || !is_sum_of_members(*writer)) return false;
      for (const llvm::StringRef summand : writer->input("X")) inside_.push_back(summand.str());
      sums_.push_back(writer);
    }
    found_.ops.append(sums_.begin(), sums_.end());
    return true;
  }
  bool is_sum_of_members(const Op& sum) const {
    return llvm::all_of(sum.input("X"), [&](llvm::StringRef name) {
      return inner_.only_reader(name) == &sum && is_member(inner_.writer(name));
    });
  }

  // Collects the gradients that ops outside the group use.
  bool collect_results() {
    for (size_t i = 0; i < forward_of_.size(); ++i) {
      const Op& grad = *found_.ops[i];
      const Op& op = *forward_of_[i];
      const bool is_scale = op.type() == "scale";
      for (const auto& [slot, operand] :
           {std::pair{is_scale ? "Out" : "X@GRAD", "X"}, {"Y@GRAD", "Y"}}) {
        const llvm::StringRef name = single_output(grad, slot);
        if (name.empty() || llvm::is_contained(inside_, name)) continue;
        if (!add_result(name, single_input(op, operand))) return false;
      }
    }
    return find_sum();
  }
  bool add_result(llvm::StringRef name, llvm::StringRef operand) {
    if (block_.writers_of(name).size() != 1 || block_.find_var(name) == nullptr) return false;
    if (operand == inputs_.x) {
      found_.of_x.push_back(name.str());
    } else if (!operand.empty() && operand == inputs_.scale && found_.of_scale.empty()) {
      found_.of_scale = name.str();
    } else if (!operand.empty() && operand == inputs_.bias && found_.of_bias.empty()) {
      found_.of_bias = name.str();
    } else {
      return false;
    }
    return true;
  }
  bool find_sum() {
    if (found_.of_x.size() < 2) return true;
    for (const std::string& name : found_.of_x) {
      Op* const reader = inner_.only_reader(name);
      if (reader == nullptr || reader->type() != "sum" ||
          (found_.sum != nullptr && found_.sum != reader))
        return false;
      found_.sum = reader;
    }
    const llvm::StringRef total = single_output(*found_.sum, "Out");
    return !total.empty() && block_.writers_of(total).size() == 1;
  }

  // True if one op at the position of the last one would read and write the same values.
  bool is_in_order() {
    llvm::sort(found_.ops, [](const Op* a, const Op* b) { return a->comes_before(*b); });
    const Op& last = *found_.ops.back();
    found_.incoming = names::grad(out_of(*forward_.back()));
    const auto writers = block_.writers_of(found_.incoming);
    if (writers.size() != 1 || !writers.front()->comes_before(*found_.ops.front()) ||
        block_.writers_of(out_of(*forward_.back())).size() != 1)
      return false;
    for (const std::string& name : {inputs_.x, inputs_.scale, inputs_.bias}) {
      if (is_written_elsewhere(block_, name)) return false;
      if (llvm::any_of(block_.writers_of(name), [&](const Op* writer) {
            return !writer->comes_before(*forward_.front()) && writer->comes_before(last);
          }))
        return false;
    }
    llvm::SmallVector<std::string, 4> results = found_.of_x;
    results.append({found_.of_scale, found_.of_bias});
    return llvm::all_of(results, [&](llvm::StringRef name) {
      return llvm::all_of(block_.readers_of(name),
                          [&](const Op* reader) { return last.comes_before(*reader); });
    });
  }

  llvm::ArrayRef<Op*> forward_;
  const PatternInputs& inputs_;
  const InnerVars& inner_;
  Block& block_;
  PatternGradient found_;
  llvm::SmallVector<Op*, 8> forward_of_;  // the forward op of each entry of found_.ops
  llvm::SmallVector<Op*, 4> sums_;
  llvm::SmallVector<std::string, 8> inside_;
};

// Pairs of a parameter and its gradient that op_role_var of the ops lists.
std::vector<std::string> roles_of(llvm::ArrayRef<Op*> ops) {
  std::vector<std::string> roles;
  for (const Op* const op : ops) {
    const AttrValue* const role = op->find_attr("op_role_var");
    if (role != nullptr && role->kind() == AttrKind::kStrings)
      roles.insert(roles.end(), role->strings().begin(), role->strings().end());
  }
  return roles;
}

}  // namespace

bool is_read_by(const InnerVars& inner, llvm::StringRef name, llvm::ArrayRef<const Op*> ops) {
  return inner.contains(name) && llvm::all_of(inner.block().readers_of(name), [&](Op* reader) {
           return llvm::is_contained(ops, reader) || reader->type().endswith("_grad");
         });
}

std::optional<PatternGradient> find_pattern_gradient(llvm::ArrayRef<Op*> ops,
                                                     const PatternInputs& inputs,
                                                     const InnerVars& inner) {
  return PatternGradientFinder(ops, inputs, inner).find();
}

Op& join_pattern_gradient(const PatternGradient& gradient, llvm::StringRef type,
                          const InnerVars& inner) {
  Block& block = inner.block();
  Op& op = *gradient.ops.back();
  const std::vector<std::string> roles = roles_of(gradient.ops);
  std::string of_x = gradient.of_x.empty() ? "" : gradient.of_x.front();
  llvm::SmallVector<std::string, 16> gone;
  for (const Op* const member : gradient.ops) {
    for (const llvm::StringRef name : member->output_names()) {
      if (name != names::kEmpty) gone.push_back(name.str());
    }
  }
  if (gradient.sum != nullptr) {
    std::vector<std::string> others;
    for (const llvm::StringRef name : gradient.sum->input("X")) {
      if (!llvm::is_contained(gradient.of_x, name)) others.push_back(name.str());
    }
    if (others.empty()) {
      of_x = single_output(*gradient.sum, "Out").str();
      block.erase(*gradient.sum);
    } else {
      others.insert(others.begin(), of_x);
      gradient.sum->set_input("X", llvm::ArrayRef(others));
    }
  }
  for (Op* const member : llvm::ArrayRef(gradient.ops).drop_back()) block.erase(*member);
  turn_into(op, type);
  op.remove_attr("op_role_var");
  for (const auto& [slot, name] : {std::pair{"X@GRAD", of_x},
                                   {"Scale@GRAD", gradient.of_scale},
                                   {"Bias@GRAD", gradient.of_bias}}) {
    if (!name.empty()) op.set_output(slot, name);
  }
  if (!roles.empty()) op.set_strings("op_role_var", roles);
  for (const std::string& name : gone) {
    if (name == of_x || name == gradient.of_scale || name == gradient.of_bias) continue;
    if (Var* const var = block.find_var(name)) block.erase(*var);
  }
  return op;
}

}  // namespace millrace::transpiler

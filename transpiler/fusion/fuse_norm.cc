#include <optional>
#include <utility>

#include <llvm/ADT/STLExtras.h>
#include <llvm/ADT/SmallVector.h>

#include "framework/names.h"
#include "ops/read_attr.h"
#include "transpiler/fusion/inner_vars.h"
#include "transpiler/pass_registry.h"

namespace millrace::transpiler {
namespace {

// A batch_norm with the statistics of the batch, at most one sum with another image, and relu;
// includes the ops of the gradient if the program has them.
struct Pattern {
  Op* norm = nullptr;
  Op* add = nullptr;  // null: none
  Op* relu = nullptr;
  llvm::StringRef summand;  // of add

  Op* gather = nullptr;  // sum of two gradients of the result; null: none
  Op* relu_grad = nullptr;
  Op* add_grad = nullptr;
  Op* norm_grad = nullptr;

  // True if the norm is the first operand of the sum.
  [[nodiscard]] bool norm_is_left() const {
    return single_input(*add, "X") == single_output(*norm, "Y");
  }
  // Gradient of the other image; empty if there is none.
  [[nodiscard]] llvm::StringRef summand_grad() const {
    if (add_grad == nullptr) return {};
    return single_output(*add_grad, norm_is_left() ? "Y@GRAD" : "X@GRAD");
  }
};

constexpr const char* kNormInputs[] = {"X", "Scale", "Bias", "Mean", "Variance", "MomentumTensor"};
constexpr const char* kNormOutputs[] = {"MeanOut", "VarianceOut", "SavedMean", "SavedVariance"};
constexpr const char* kGradInputs[] = {"X", "Scale", "Bias", "SavedMean", "SavedVariance"};
constexpr const char* kGradOutputs[] = {"X@GRAD", "Scale@GRAD", "Bias@GRAD"};
constexpr const char* kAttrs[] = {"momentum", "epsilon", "data_layout", "op_role_var"};

using Copied = llvm::SmallVector<std::pair<std::string, std::string>, 6>;  // slot, var

// Slots that hold one var each; slots that the op lacks are left out.
template <size_t kCount>
Copied copied(const char* const (&slots)[kCount], const Op& op, bool outputs) {
  Copied result;
  for (const char* const slot : slots) {
    const llvm::StringRef name = outputs ? single_output(op, slot) : single_input(op, slot);
    if (!name.empty()) result.emplace_back(slot, name.str());
  }
  return result;
}

std::vector<std::pair<std::string, AttrValue>> copied_attrs(const Op& op) {
  std::vector<std::pair<std::string, AttrValue>> result;
  for (const char* const attr : kAttrs) {
    if (const AttrValue* const value = op.find_attr(attr)) result.emplace_back(attr, *value);
  }
  return result;
}

// True if no op from `first` (inclusive) to `last` (exclusive) writes the var.
bool is_steady(llvm::StringRef name, const Op& first, const Op& last, const Op* but = nullptr) {
  if (is_written_elsewhere(first.block(), name)) return false;
  return llvm::none_of(first.block().writers_of(name), [&](const Op* writer) {
    return writer != but && !writer->comes_before(first) && writer->comes_before(last);
  });
}
bool is_used_between(llvm::StringRef name, const Op& first, const Op& last) {
  const auto between = [&](const Op* op) {
    return op != &first && !op->comes_before(first) && op->comes_before(last);
  };
  return llvm::any_of(first.block().readers_of(name), between) ||
         llvm::any_of(first.block().writers_of(name), between);
}

class FuseNormFinder {
 public:
  FuseNormFinder(Op& norm, const InnerVars& inner, const ops::OpRegistry& registry)
      : inner_(inner), block_(inner.block()), registry_(registry) {
    found_.norm = &norm;
  }

  std::optional<Pattern> find() {
    if (!is_training_norm() || !find_forward() || !find_gradient() || !is_closed())
      return std::nullopt;
    return found_;
  }

 private:
  [[nodiscard]] const Var* image(llvm::StringRef name) const {
    const Var* const var = name.empty() ? nullptr : block_.find_var(name);
    const bool fits =
        var != nullptr && var->kind() == VarKind::kLodTensor && var->dtype() == DType::kFloat32;
    return fits ? var : nullptr;
  }
  [[nodiscard]] bool is_training_norm() const {
    const Op& norm = *found_.norm;
    const ops::OpDef& def = *registry_.find("batch_norm");
    for (const char* const flag : {"is_test", "use_global_stats", "fuse_with_relu"}) {
      if (ops::read_attr<bool>(def, norm, flag)) return false;
    }
    return image(single_input(norm, "X")) != nullptr && inner_.contains(single_output(norm, "Y"));
  }

  // The op after one of the pattern: the only reader of its result except for gradient ops.
  [[nodiscard]] Op* next_op(llvm::StringRef name) const {
    if (!inner_.contains(name) || image(name) == nullptr) return nullptr;
    Op* result = nullptr;
    for (Op* const op : block_.readers_of(name)) {
      if (op->type().endswith("_grad")) continue;
      if (result != nullptr) return nullptr;
      result = op;
    }
    return result;
  }

  bool find_forward() {
    const llvm::StringRef y = single_output(*found_.norm, "Y");
    llvm::StringRef result = y;
    Op* next = next_op(y);
    if (next != nullptr && next->type() == "elementwise_add") {
      const llvm::StringRef left = single_input(*next, "X");
      const llvm::StringRef right = single_input(*next, "Y");
      found_.summand = left == y ? right : left;
      const Var* const other = image(found_.summand);
      if (left == right || other == nullptr || other->dims() != block_.find_var(y)->dims())
        return false;
      found_.add = next;
      result = single_output(*next, "Out");
      next = next_op(result);
    }
    if (next == nullptr || next->type() != "relu") return false;
    found_.relu = next;
    if (image(single_output(*next, "Out")) == nullptr) return false;
    // the fused op will be at the position of relu
    for (const auto& [slot, name] : copied(kNormInputs, *found_.norm, false)) {
      if (!is_steady(name, *found_.norm, *next, found_.norm)) return false;
    }
    for (const auto& [slot, name] : copied(kNormOutputs, *found_.norm, true)) {
      if (is_used_between(name, *found_.norm, *next)) return false;
    }
    return found_.add == nullptr || is_steady(found_.summand, *found_.add, *next);
  }

  bool find_gradient() {
    const llvm::StringRef result = single_output(*found_.relu, "Out");
    if (block_.writers_of(result).size() != 1) return false;
    for (Op* const op : block_.readers_of(result)) {
      if (op->type() != "relu_grad" || single_input(*op, "Out") != result) continue;
      if (found_.relu_grad != nullptr) return false;
      found_.relu_grad = op;
    }
    if (found_.relu_grad == nullptr) return true;
    llvm::StringRef grad = single_output(*found_.relu_grad, "X@GRAD");
    if (found_.add != nullptr) {
      found_.add_grad = inner_.only_reader(grad);
      if (found_.add_grad == nullptr || found_.add_grad->type() != "elementwise_add_grad" ||
          single_input(*found_.add_grad, "Out@GRAD") != grad)
        return false;
      grad = single_output(*found_.add_grad, found_.norm_is_left() ? "X@GRAD" : "Y@GRAD");
    }
    found_.norm_grad = inner_.only_reader(grad);
    if (found_.norm_grad == nullptr || found_.norm_grad->type() != "batch_norm_grad" ||
        single_input(*found_.norm_grad, "Y@GRAD") != grad ||
        single_input(*found_.norm_grad, "SavedMean") != single_output(*found_.norm, "SavedMean"))
      return false;
    find_gather();
    // the fused gradient op will be at the position of relu_grad
    for (const auto& [slot, name] : copied(kGradInputs, *found_.norm_grad, false)) {
      if (!is_steady(name, *found_.relu_grad, *found_.norm_grad)) return false;
    }
    Copied results = copied(kGradOutputs, *found_.norm_grad, true);
    if (!found_.summand_grad().empty()) results.emplace_back("", found_.summand_grad().str());
    return llvm::all_of(
        results, [&](const auto& entry) { return block_.writers_of(entry.second).size() == 1; });
  }

  // The gradient of the result may be a sum of two images.
  void find_gather() {
    const llvm::StringRef name = single_input(*found_.relu_grad, "Out@GRAD");
    Op* const op = inner_.writer(name);
    if (op == nullptr || op->type() != "sum" || inner_.only_reader(name) != found_.relu_grad)
      return;
    const Slot* const slot = op->find_input("X");
    if (slot == nullptr || slot->args.size() != 2) return;
    const Var* const sum = image(name);
    for (const Arg& arg : slot->args) {
      const Var* const summand = image(op->name_of(arg.name));
      if (sum == nullptr || summand == nullptr || summand->dims() != sum->dims()) return;
    }
    if (slot->args[0].name != slot->args[1].name && inputs_unchanged(*op, *found_.relu_grad))
      found_.gather = op;
  }

  // True if no other op reads the inner values.
  [[nodiscard]] bool is_closed() const {
    const auto read_by_ours = [&](llvm::StringRef name) {
      return llvm::all_of(block_.readers_of(name), [&](const Op* op) {
        return op == found_.add || op == found_.relu || op == found_.relu_grad ||
               op == found_.add_grad || op == found_.norm_grad;
      });
    };
    if (!read_by_ours(single_output(*found_.norm, "Y"))) return false;
    return found_.add == nullptr || read_by_ours(single_output(*found_.add, "Out"));
  }

  const InnerVars& inner_;
  Block& block_;
  const ops::OpRegistry& registry_;
  Pattern found_;
};

class FuseNorm final : public Pass {
 public:
  explicit FuseNorm(const PassOptions& options) : keep_(options.strings("keep")) {}

  llvm::StringRef name() const override { return "fuse-norm"; }

  StatusOr<bool> run(Program& program, PassContext& context) override {
    if (context.registry.find("batch_norm") == nullptr) return false;
    const InnerVars inner(program, keep_);
    llvm::SmallVector<Op*, 0> norms;
    for (Op& op : program.root().ops()) {
      if (op.type() == "batch_norm") norms.push_back(&op);
    }
    bool changed = false;
    for (Op* const norm : norms) {
      const auto found = FuseNormFinder(*norm, inner, context.registry).find();
      if (!found) continue;
      if (found->relu_grad != nullptr) fuse_gradient(*found, inner);
      fuse_forward(*found, inner);
      changed = true;
    }
    return changed;
  }

 private:
  // The fused op replaces relu, so that it is at the position where the result is written.
  static void fuse_forward(const Pattern& found, const InnerVars& inner) {
    const Copied inputs = copied(kNormInputs, *found.norm, false);
    const Copied outputs = copied(kNormOutputs, *found.norm, true);
    const auto attrs = copied_attrs(*found.norm);
    const std::string result = single_output(*found.relu, "Out").str();
    const std::string summand = found.summand.str();
    const bool is_first = found.add != nullptr && single_input(*found.add, "X") == summand;
    Op& op = *found.relu;
    turn_into(op, "fused_batch_norm");
    for (const auto& [slot, name] : inputs) op.set_input(slot, name);
    if (!summand.empty()) op.set_input("Z", summand);
    op.set_output("Y", result);
    if (found.add != nullptr) inner.erase(*found.add);
    erase_norm(*found.norm, outputs, inner);
    for (const auto& [slot, name] : outputs) op.set_output(slot, name);
    for (const auto& [name, value] : attrs) op.set_attr(name, value);
    if (is_first) op.set_bool("z_first", true);
  }
  // The statistics stay declared: the fused op writes them.
  static void erase_norm(Op& norm, const Copied& outputs, const InnerVars& inner) {
    for (const auto& [slot, name] : outputs) norm.remove_output(slot);
    inner.erase(norm);
  }

  static void fuse_gradient(const Pattern& found, const InnerVars& inner) {
    const Copied inputs = copied(kGradInputs, *found.norm_grad, false);
    const Copied outputs = copied(kGradOutputs, *found.norm_grad, true);
    const auto attrs = copied_attrs(*found.norm_grad);
    const std::string result = single_output(*found.relu, "Out").str();
    std::string incoming = single_input(*found.relu_grad, "Out@GRAD").str();
    std::string more;
    const std::string summand_grad = found.summand_grad().str();
    Op& op = *found.relu_grad;
    inner.erase_outputs(op);
    turn_into(op, "fused_batch_norm_grad");
    if (found.gather != nullptr) {
      const Slot& slot = *found.gather->find_input("X");
      incoming = found.gather->name_of(slot.args[0].name).str();
      more = found.gather->name_of(slot.args[1].name).str();
      inner.erase(*found.gather);
    }
    for (const auto& [slot, name] : inputs) op.set_input(slot, name);
    op.set_input("Y", result).set_input("Y@GRAD", incoming);
    if (!more.empty()) op.set_input("MoreY@GRAD", more);
    if (found.add_grad != nullptr) inner.erase(*found.add_grad, summand_grad);
    for (const auto& [slot, name] : outputs) found.norm_grad->remove_output(slot);
    inner.erase(*found.norm_grad);
    for (const auto& [slot, name] : outputs) op.set_output(slot, name);
    if (!summand_grad.empty()) op.set_output("Z@GRAD", summand_grad);
    for (const auto& [name, value] : attrs) op.set_attr(name, value);
  }

  std::vector<std::string> keep_;
};

}  // namespace

void add_fusion_fuse_norm(PassRegistry& registry) {
  registry.add(PassInfo("fuse-norm",
                        "fuse a batch_norm that trains, the sum with another image, and "
                        "relu into one op, and their gradients into another")
                   .strings("keep", "vars whose value is needed after a run")
                   .makes<FuseNorm>());
}

}  // namespace millrace::transpiler

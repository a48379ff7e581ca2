#include <string>
#include <utility>
#include <vector>

#include <llvm/ADT/DenseMap.h>
#include <llvm/ADT/STLExtras.h>
#include <llvm/ADT/SmallVector.h>

#include "transpiler/fusion/inner_vars.h"
#include "transpiler/pass_registry.h"

namespace millrace::transpiler {
namespace {

// Attribute of elementwise_add: operands that must have the dims of the result when it runs.
constexpr const char* kWhole = "whole_operands";

// The gradient of an operand of a sum is a copy of the gradient of the result if the operand has
// the shape of the result; then its readers can read the latter. Values may have other dims than
// declared, so the sum op checks them at run time.
class ShareGradients final : public Pass {
 public:
  explicit ShareGradients(const PassOptions& options) : keep_(options.strings("keep")) {}

  llvm::StringRef name() const override { return "share-gradients"; }

  StatusOr<bool> run(Program& program, PassContext& /*context*/) override {
    const InnerVars inner(program, keep_);
    llvm::SmallVector<Op*, 0> ops;
    for (Op& op : program.root().ops()) {
      if (op.type() == "elementwise_add_grad") ops.push_back(&op);
    }
    llvm::DenseMap<const Op*, Op*> sums;  // found before gradients are renamed
    for (Op* const op : ops) sums[op] = forward_of(*op);
    bool changed = false;
    for (Op* const op : ops) {
      for (const auto& [slot, operand] : {std::pair{"X@GRAD", "X"}, {"Y@GRAD", "Y"}})
        changed |= share(*op, slot, operand, sums.lookup(op), inner);
      if (op->output_names().empty()) inner.block().erase(*op);
    }
    return changed;
  }

 private:
  // The sum whose gradient the op computes; null if there is none in this block.
  static Op* forward_of(const Op& op) {
    llvm::StringRef out = single_input(op, "Out@GRAD");
    if (!out.consume_back("@GRAD")) return nullptr;
    const auto& writers = op.block().writers_of(out);
    if (writers.size() != 1) return nullptr;
    Op* const sum = writers.front();
    const llvm::StringRef x = single_input(op, "X");
    const bool is_it = sum->type() == "elementwise_add" && sum->comes_before(op) &&
                       single_input(*sum, "Y") == single_input(op, "Y") &&
                       (x.empty() || single_input(*sum, "X") == x);
    return is_it ? sum : nullptr;
  }

  // True if the operand has the dims of the result in every run, which the sum op is marked to
  // check. Without a sum op the declarations must determine it.
  static bool is_surely_whole(const Op& op, llvm::StringRef operand, Op* sum) {
    const Var* const result = op.block().find_var(single_input(op, "Out@GRAD"));
    const llvm::StringRef other = single_input(op, operand == "X" ? "Y" : "X");
    const Var* const beside = other.empty() ? nullptr : op.block().find_var(other);
    const auto is_known = [](int64_t dim) { return dim >= 0; };
    // an operand with smaller, known dims does not extend the result
    if (beside != nullptr && beside->spec().has_tensor() &&
        beside->dims().size() < result->dims().size() && llvm::all_of(beside->dims(), is_known))
      return true;
    if (sum == nullptr) return llvm::all_of(result->dims(), is_known);
    std::vector<std::string> whole;
    if (const AttrValue* const before = sum->find_attr(kWhole)) whole = before->strings();
    if (!llvm::is_contained(whole, operand)) whole.push_back(operand.str());
    sum->set_strings(kWhole, std::move(whole));
    return true;
  }

  static bool share(Op& op, llvm::StringRef slot, llvm::StringRef operand, Op* sum,
                    const InnerVars& inner) {
    Block& block = inner.block();
    const llvm::StringRef copy = single_output(op, slot);
    const llvm::StringRef source = single_input(op, "Out@GRAD");
    // If this operand is broadcast, the other operand is the larger one.
    if (!inner.contains(copy) || !inner.contains(source) || !has_shape_of(op, operand, source) ||
        !is_surely_whole(op, operand, sum))
      return false;
    const std::string from = copy.str();
    const std::string to = source.str();
    for (Op* const reader : block.readers_of(from)) reader->replace_input(from, to);
    op.remove_output(slot);
    block.erase(*block.find_var(from));
    return true;
  }

  // Both are declared. An operand without a declaration may have been left out because its shape is
  // that of the result.
  static bool has_shape_of(const Op& op, llvm::StringRef operand, llvm::StringRef grad) {
    const Var* const result = op.block().find_var(grad);
    const llvm::StringRef name = single_input(op, operand);
    if (result->dims().empty() || result->kind() != VarKind::kLodTensor) return false;
    if (name.empty()) return operand == "X";
    const Var* const var = op.block().find_var(name);
    return var != nullptr && var->kind() == VarKind::kLodTensor && var->spec().has_tensor() &&
           var->dtype() == result->dtype() && var->dims() == result->dims();
  }

  std::vector<std::string> keep_;
};

}  // namespace

void add_fusion_share_gradients(PassRegistry& registry) {
  registry.add(PassInfo("share-gradients",
                        "read the gradient of a sum instead of copies of it for its operands")
                   .strings("keep", "vars whose value is needed after a run")
                   .makes<ShareGradients>());
}

}  // namespace millrace::transpiler

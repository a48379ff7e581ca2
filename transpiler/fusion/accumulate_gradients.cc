#include <algorithm>
#include <optional>
#include <string>

#include <llvm/ADT/STLExtras.h>
#include <llvm/ADT/SmallVector.h>

#include "transpiler/fusion/inner_vars.h"
#include "transpiler/pass_registry.h"

namespace millrace::transpiler {
namespace {

bool is_product_gradient(const Op& op) {
  return op.type() == "mul_grad" || op.type() == "summed_mul_grad";
}

// The terms of a sum. Products: each result is used only by the sum; in block order. Others: all
// other terms.
struct Summands {
  llvm::SmallVector<Op*, 4> products;
  llvm::SmallVector<std::string, 4> others;
};

class AccumulateGradients final : public Pass {
 public:
  explicit AccumulateGradients(const PassOptions& options) : keep_(options.strings("keep")) {}

  llvm::StringRef name() const override { return "accumulate-gradients"; }

  StatusOr<bool> run(Program& program, PassContext& context) override {
    if (context.registry.find("summed_mul_grad") == nullptr) return false;
    const InnerVars inner(program, keep_);
    llvm::SmallVector<Op*, 0> sums;
    for (Op& op : program.root().ops()) {
      if (op.type() == "sum") sums.push_back(&op);
    }
    bool changed = false;
    for (Op* const sum : sums) {
      if (const auto summands = summands_of(*sum, inner)) {
        changed |= accumulate(*sum, *summands, inner);
      }
    }
    return changed;
  }

 private:
  static bool is_like(const Block& block, llvm::StringRef name, const Var& like) {
    const Var* const var = block.find_var(name);
    return var != nullptr && var->kind() == VarKind::kLodTensor &&
           var->dtype() == DType::kFloat32 && var->dims() == like.dims();
  }

  // Nullopt if some of the terms are not dense tensors of the shape of the sum.
  static std::optional<Summands> summands_of(const Op& sum, const InnerVars& inner) {
    const Block& block = inner.block();
    const llvm::StringRef out = single_output(sum, "Out");
    const Var* const result = block.find_var(out);
    const Slot* const slot = sum.find_input("X");
    if (result == nullptr || slot == nullptr || !is_like(block, out, *result) ||
        result->dims().empty() || sum.reads(out))
      return std::nullopt;
    Summands found;
    for (const Arg& arg : slot->args) {
      const llvm::StringRef name = sum.name_of(arg.name);
      if (!is_like(block, name, *result)) return std::nullopt;
      Op* const writer = inner.only_reader(name) == &sum ? inner.writer(name) : nullptr;
      if (writer != nullptr && is_product_gradient(*writer) &&
          single_output(*writer, "X@GRAD") == name && writer->find_input("MoreX@GRAD") == nullptr) {
        found.products.push_back(writer);
      } else {
        found.others.push_back(name.str());
      }
    }
    llvm::sort(found.products, [](const Op* a, const Op* b) { return a->comes_before(*b); });
    return found;
  }

  // Makes each product add to the result of the one before. The first one adds to another term that
  // is already computed by then.
  static bool accumulate(Op& sum, const Summands& summands, const InnerVars& inner) {
    const Block& block = inner.block();
    std::string partial;
    llvm::SmallVector<std::string, 4> rest = summands.others;
    if (!summands.products.empty()) {
      const Op& first = *summands.products.front();
      const auto ready = llvm::find_if(rest, [&](const std::string& name) {
        const Op* const writer = inner.writer(name);
        return writer != nullptr && writer->comes_before(first) && is_free(block, name, first);
      });
      if (ready != rest.end()) {
        partial = *ready;
        rest.erase(ready);
      }
    }
    if (summands.products.size() + (partial.empty() ? 0U : 1U) < 2) return false;
    llvm::SmallVector<Var*, 4> replaced;
    for (Op* const product : summands.products) {
      const std::string result = single_output(*product, "X@GRAD").str();
      if (partial.empty()) {
        partial = result;
        continue;
      }
      Var& var = *inner.block().find_var(result);
      product->set_type("summed_mul_grad");
      product->set_input("MoreX@GRAD", partial);
      partial = declare_partial(inner.block(), var);
      product->set_output("X@GRAD", partial);
      replaced.push_back(&var);
    }
    rest.push_back(partial);
    sum.set_input("X", llvm::ArrayRef<std::string>(rest));
    for (Var* const var : replaced) inner.block().erase(*var);
    if (rest.size() > 1) return true;
    Op& last = *summands.products.back();
    const std::string out = single_output(sum, "Out").str();
    // no op reads the old value of the sum in between
    if (!inner.contains(out)) return true;
    inner.erase(sum, out);
    last.set_output("X@GRAD", out);
    inner.block().erase(*inner.block().find_var(partial));
    return true;
  }

  // Declares a var for a product added to others. The name of the product alone must not hold
  // another value: a user may fetch it.
  static std::string declare_partial(Block& block, const Var& like) {
    std::string name = like.name().str() + "@PARTIAL";
    while (block.find_var(name) != nullptr) name += "_";
    block.declare(name, like.spec());
    return name;
  }

  // True if after the op only the sum reads the var.
  static bool is_free(const Block& block, const std::string& name, const Op& op) {
    const auto readers = block.readers_of(name);
    return std::count_if(readers.begin(), readers.end(),
                         [&](const Op* reader) { return !reader->comes_before(op); }) == 1;
  }

  std::vector<std::string> keep_;
};

}  // namespace

void add_fusion_accumulate_gradients(PassRegistry& registry) {
  registry.add(
      PassInfo("accumulate-gradients",
               "let gradients of products add to earlier ones instead of summing all at the end")
          .strings("keep", "vars whose value is needed after a run")
          .makes<AccumulateGradients>());
}

}  // namespace millrace::transpiler

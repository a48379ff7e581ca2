#include <string>

#include <llvm/ADT/STLExtras.h>
#include <llvm/ADT/SmallVector.h>
#include <llvm/ADT/StringMap.h>
#include <llvm/ADT/StringSwitch.h>

#include "ops/elementwise/chain_steps.h"
#include "transpiler/fusion/inner_vars.h"
#include "transpiler/pass_registry.h"
#include "transpiler/roles.h"

namespace millrace::transpiler {
namespace share_results {
namespace {

// Ops with equal results for equal inputs. Ops that draw random numbers, allocate memory for others
// to write to, or have a state are left out.
bool is_repeatable(const Op& op) {
  const llvm::StringRef type = op.type();
  if (type.endswith("_grad") || op.is_target().value_or(false)) return false;
  return type.startswith("elementwise_") || type.startswith("reduce_") ||
         type.startswith("logical_") || ops::is_chain_function(type) ||
         llvm::StringSwitch<bool>(type)
             .Cases("scale", "cast", "shape", "slice", "concat", "split", "stack", true)
             .Cases("reshape2", "transpose2", "squeeze2", "unsqueeze2", "flatten2", true)
             .Cases("expand", "expand_v2", "tile", "gather", "gather_nd", "one_hot", true)
             .Cases("one_hot_v2", "lookup_table", "lookup_table_v2", "softmax", "gelu", true)
             .Cases("mul", "matmul", "matmul_v2", "bmm", "conv2d", "layer_norm", "pool2d", true)
             .Cases("equal", "not_equal", "less_than", "less_equal", "greater_than", true)
             .Cases("greater_equal", "sequence_pool", "mean", "arg_max", "cumsum", true)
             .Default(false);
}

// Type and inputs, which distinguish most ops.
std::string key_of(const Op& op) {
  std::string key = op.type().str();
  for (const llvm::StringRef name : op.input_names()) key += '|' + name.str();
  return key;
}

AttrValue value_of(const Op& op, const ops::AttrDef& attr) {
  const AttrValue* const value = op.find_attr(attr.name);
  if (value != nullptr) return *value;
  return attr.fallback ? *attr.fallback : ops::zero_value(attr.kind);
}

// True for the same inputs in the same slots, the same attributes, the same number of results, and
// the same role: what backward ops recompute to save memory is a forward op of another role.
bool is_same(const Op& a, const Op& b, const ops::OpDef& def) {
  if (role::of(a) != role::of(b)) return false;
  const auto same_slot = [](const Op& x, const Slot* in_x, const Op& y, const Slot* in_y) {
    const size_t count = in_x == nullptr ? 0 : in_x->args.size();
    if (count != (in_y == nullptr ? 0 : in_y->args.size())) return false;
    for (size_t k = 0; k < count; ++k) {
      if (x.name_of(in_x->args[k].name) != y.name_of(in_y->args[k].name)) return false;
    }
    return true;
  };
  for (const ops::SlotDef& slot : def.inputs()) {
    if (!same_slot(a, a.find_input(slot.name), b, b.find_input(slot.name))) return false;
  }
  for (const ops::SlotDef& slot : def.outputs()) {
    const Slot* const of_a = a.find_output(slot.name);
    const Slot* const of_b = b.find_output(slot.name);
    if ((of_a == nullptr ? 0 : of_a->args.size()) != (of_b == nullptr ? 0 : of_b->args.size()))
      return false;
  }
  return llvm::all_of(def.attrs(), [&](const ops::AttrDef& attr) {
    return value_of(a, attr) == value_of(b, attr);
  });
}

class ShareResults final : public Pass {
 public:
  explicit ShareResults(const PassOptions& options) : keep_(options.strings("keep")) {}

  llvm::StringRef name() const override { return "share-results"; }

  StatusOr<bool> run(Program& program, PassContext& context) override {
    const InnerVars inner(program, keep_);
    llvm::StringMap<llvm::SmallVector<Op*, 1>> first;
    llvm::SmallVector<Op*, 0> ops;
    for (Op& op : program.root().ops()) ops.push_back(&op);
    bool changed = false;
    for (Op* const op : ops) {
      const ops::OpDef* const def = context.registry.find(op->type());
      if (def == nullptr || !is_repeatable(*op) || !are_inner(*op, inner)) continue;
      llvm::SmallVector<Op*, 1>& alike = first[key_of(*op)];
      const auto found = llvm::find_if(alike, [&](const Op* other) {
        return is_same(*other, *op, *def) && inputs_unchanged(*other, *op);
      });
      if (found == alike.end()) {
        alike.push_back(op);
        continue;
      }
      share(**found, *op, inner);
      changed = true;
    }
    return changed;
  }

 private:
  // True if all results are inner vars and none is also an input.
  static bool are_inner(const Op& op, const InnerVars& inner) {
    return !op.output_names().empty() && llvm::all_of(op.output_names(), [&](llvm::StringRef name) {
      return inner.contains(name) && !op.reads(name);
    });
  }

  // Makes readers of the second op's results read those of the first.
  static void share(Op& first, Op& second, const InnerVars& inner) {
    Block& block = inner.block();
    for (const Slot& slot : second.outputs()) {
      const Slot& same = *first.find_output(second.name_of(slot.name));
      for (size_t k = 0; k < slot.args.size(); ++k) {
        const std::string from = second.name_of(slot.args[k].name).str();
        const std::string to = first.name_of(same.args[k].name).str();
        for (Op* const reader : block.readers_of(from)) reader->replace_input(from, to);
      }
    }
    inner.erase(second);
  }

  std::vector<std::string> keep_;
};

}  // namespace
}  // namespace share_results

void add_fusion_share_results(PassRegistry& registry) {
  registry.add(PassInfo("share-results",
                        "keep one of several ops that compute the same from the same inputs")
                   .strings("keep", "vars whose value is needed after a run")
                   .makes<share_results::ShareResults>());
}

}  // namespace millrace::transpiler

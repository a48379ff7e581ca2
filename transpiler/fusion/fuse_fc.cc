#include <optional>
#include <string>
#include <vector>

#include <llvm/ADT/STLExtras.h>
#include <llvm/ADT/SmallVector.h>
#include <llvm/ADT/StringSwitch.h>

#include "ops/lod_source.h"
#include "ops/read_attr.h"
#include "transpiler/fusion/fake_quant.h"
#include "transpiler/fusion/inner_vars.h"
#include "transpiler/fusion/weight_product.h"
#include "transpiler/pass_registry.h"

namespace millrace::transpiler {
namespace {

bool flag_is(const Op& op, const ops::OpDef& def, llvm::StringRef name, bool value) {
  return def.find_attr(name) == nullptr || ops::read_attr<bool>(def, op, name) == value;
}

// A product and the ops that follow it: at most one op of each kind, in this order.
struct FuseFcChain {
  WeightProduct product;
  std::vector<Op*> ops;  // in order of the program
  llvm::StringRef out;
  llvm::StringRef bias;
  llvm::StringRef residual;
  bool residual_first = false;  // the residual is the first operand of the sum
  bool drops_lod = false;       // the result of the product does not have the LoD of x
  llvm::StringRef activation;
};

// The name of the bias if the op adds one value per column to the product.
llvm::StringRef bias_of(const Op& add, const WeightProduct& product, const ops::OpDef& def,
                        llvm::StringRef sum) {
  if (single_input(add, "X") != sum) return {};
  const llvm::StringRef name = single_input(add, "Y");
  const Var* const bias = add.block().find_var(name);
  if (!is_f32(bias) || bias->dims() != llvm::ArrayRef(product.columns)) return {};
  const int32_t axis = ops::read_attr<int32_t>(def, add, "axis");
  return axis == -1 || axis == product.row_dims ? name : llvm::StringRef();
}

// The name of the other operand if it is a tensor of the shape of the sum so far.
llvm::StringRef residual_of(const Op& add, llvm::StringRef sum) {
  const llvm::StringRef x = single_input(add, "X");
  const llvm::StringRef y = single_input(add, "Y");
  const llvm::StringRef other = x == sum ? y : x;
  const Var* const residual = add.block().find_var(other);
  const Var* const own = add.block().find_var(sum);
  const bool fits = x != y && is_f32(residual) && residual->kind() == VarKind::kLodTensor &&
                    is_f32(own) && residual->dims() == own->dims() &&
                    single_output(add, "Out") != other;
  return fits ? other : llvm::StringRef();
}

// The activation that fc can apply; empty if it does not support the op.
llvm::StringRef activation_of(const Op& op, const ops::OpDef& def) {
  return llvm::StringSwitch<llvm::StringRef>(op.type())
      .Cases("relu", "sigmoid", "tanh", op.type())
      .Case("gelu", flag_is(op, def, "approximate", true) ? "gelu_tanh" : "gelu")
      .Default({});
}

class FuseFc final : public Pass {
 public:
  explicit FuseFc(const PassOptions& options) : keep_(options.strings("keep")) {}

  llvm::StringRef name() const override { return "fuse-fc"; }

  StatusOr<bool> run(Program& program, PassContext& context) override {
    const InnerVars inner(program, keep_);
    bool changed = false;
    llvm::SmallVector<Op*, 0> products;  // sums and activations are erased meanwhile
    for (Op& op : program.root().ops()) {
      if (weight_product_of(op, context.registry)) products.push_back(&op);
    }
    for (Op* const op : products) {
      std::optional<WeightProduct> product = weight_product_of(*op, context.registry);
      if (!product) continue;
      FuseFcChain chain;
      chain.product = *product;
      chain.out = product->out;
      chain.ops.push_back(op);
      const std::optional<llvm::StringRef> lod =
          ops::lod_source(context.registry, *op, product->out);
      if (!lod || (!lod->empty() && *lod != product->x)) continue;
      chain.drops_lod = lod->empty();
      follow(chain, inner, context);
      if (chain.bias.empty() && chain.residual.empty()) continue;
      fuse(chain, inner);
      changed = true;
    }
    return changed;
  }

 private:
  // Extends the chain by ops that are the only readers of its result.
  static void follow(FuseFcChain& chain, const InnerVars& inner, const PassContext& context) {
    while (chain.activation.empty()) {
      Op* const next = inner.only_reader(chain.out);
      const ops::OpDef* const def = next == nullptr ? nullptr : context.registry.find(next->type());
      const bool steady = def != nullptr && llvm::all_of(chain.ops, [&](const Op* op) {
                            return inputs_unchanged(*op, *next);
                          });
      if (!steady || !take(chain, *next, *def)) return;
      chain.ops.push_back(next);
      chain.out = single_output(*next, "Out");
    }
  }

  static bool take(FuseFcChain& chain, const Op& op, const ops::OpDef& def) {
    if (op.type() != "elementwise_add") {
      const bool sums = !chain.bias.empty() || !chain.residual.empty();
      if (sums) chain.activation = activation_of(op, def);
      return !chain.activation.empty();
    }
    if (chain.bias.empty() && chain.residual.empty()) {
      chain.bias = bias_of(op, chain.product, def, chain.out);
      if (!chain.bias.empty()) return true;
    }
    if (!chain.residual.empty()) return false;
    chain.residual = residual_of(op, chain.out);
    chain.residual_first = single_input(op, "X") == chain.residual;
    return !chain.residual.empty();
  }

  // The last op of the chain becomes the fc, so that it is at the position where the result is
  // written.
  static void fuse(const FuseFcChain& chain, const InnerVars& inner) {
    Op& last = *chain.ops.back();
    const WeightProduct& product = chain.product;
    const Int8Parts int8 = int8_parts_of(*product.op);
    turn_into(last, product.op->type() == "int8_fc" ? "int8_fc" : "fc");
    add_int8_parts(last, int8);
    last.set_input("Input", product.x).set_input("W", product.weights);
    if (!chain.bias.empty()) last.set_input("Bias", chain.bias);
    if (!chain.residual.empty()) last.set_input("ResidualData", chain.residual);
    last.set_output("Out", chain.out);
    last.set_int("in_num_col_dims", static_cast<int32_t>(product.row_dims));
    if (chain.residual_first) last.set_bool("residual_first", true);
    if (chain.drops_lod) last.set_bool("drops_lod", true);
    if (!chain.activation.empty()) last.set_string("activation_type", chain.activation.str());
    for (Op* const op : llvm::ArrayRef(chain.ops).drop_back()) inner.erase(*op);
  }

  std::vector<std::string> keep_;
};

}  // namespace

void add_fusion_fuse_fc(PassRegistry& registry) {
  registry.add(PassInfo("fuse-fc",
                        "fuse a product with a weight matrix, the sums with a bias and "
                        "with another tensor, and an activation into one op")
                   .strings("keep", "vars whose value is needed after a run")
                   .makes<FuseFc>());
}

}  // namespace millrace::transpiler

#include <optional>

#include <llvm/ADT/SmallVector.h>
#include <llvm/ADT/StringSwitch.h>

#include "ops/read_attr.h"
#include "transpiler/fusion/fusions.h"
#include "transpiler/fusion/inner_vars.h"

namespace millrace::transpiler {
namespace {

bool is_f32(const Var* var) {
  return var != nullptr && var->spec().has_tensor() && var->dtype() == DType::kFloat32;
}

// A product of rows with a matrix of weights.
struct Product {
  Op* op = nullptr;
  llvm::StringRef x;
  llvm::StringRef weights;
  llvm::StringRef out;
  int64_t row_dims = 1;  // leading dims of x that count the rows
  int64_t columns = 0;
};

bool flag_is(const Op& op, const ops::OpDef& def, llvm::StringRef name, bool value) {
  return def.find_attr(name) == nullptr || ops::read_attr<bool>(def, op, name) == value;
}

// Leading dims of x that count the rows; nullopt if the op is no product with a matrix.
std::optional<int64_t> row_dims(const Op& op, const ops::OpDef& def, const Var* x) {
  if (op.type() == "mul") {
    if (ops::read_attr<int32_t>(def, op, "y_num_col_dims") != 1) return std::nullopt;
    return ops::read_attr<int32_t>(def, op, "x_num_col_dims");
  }
  if (op.type() != "matmul" && op.type() != "matmul_v2") return std::nullopt;
  for (const char* const turned : {"transpose_X", "transpose_Y", "trans_x", "trans_y"}) {
    if (!flag_is(op, def, turned, false)) return std::nullopt;
  }
  if (def.find_attr("alpha") != nullptr && ops::read_attr<float>(def, op, "alpha") != 1.0F)
    return std::nullopt;
  if (def.find_attr("head_number") != nullptr &&
      ops::read_attr<int32_t>(def, op, "head_number") > 1)
    return std::nullopt;
  if (!is_f32(x) || x->dims().size() < 2) return std::nullopt;
  return static_cast<int64_t>(x->dims().size()) - 1;
}

std::optional<Product> product_of(Op& op, const PassContext& context) {
  const ops::OpDef* const def = context.registry.find(op.type());
  if (def == nullptr || op.find_input("Y") == nullptr) return std::nullopt;
  Product product;
  product.op = &op;
  product.x = single_input(op, "X");
  product.weights = single_input(op, "Y");
  product.out = single_output(op, "Out");
  const Block& block = op.block();
  const std::optional<int64_t> dims = row_dims(op, *def, block.find_var(product.x));
  const Var* const weights = block.find_var(product.weights);
  if (!dims || product.x.empty() || product.out.empty() || !is_f32(weights) ||
      weights->dims().size() != 2 || weights->dims()[1] <= 0)
    return std::nullopt;
  product.row_dims = *dims;
  product.columns = weights->dims()[1];
  return product;
}

// The name of the bias if the op adds one value a column to the product.
llvm::StringRef bias_of(const Op& add, const Product& product, const PassContext& context) {
  const ops::OpDef* const def = context.registry.find("elementwise_add");
  if (def == nullptr || add.type() != "elementwise_add" || single_input(add, "X") != product.out)
    return {};
  const llvm::StringRef name = single_input(add, "Y");
  const Var* const bias = add.block().find_var(name);
  if (!is_f32(bias) || bias->dims() != llvm::ArrayRef(product.columns)) return {};
  const int32_t axis = ops::read_attr<int32_t>(*def, add, "axis");
  return axis == -1 || axis == product.row_dims ? name : llvm::StringRef();
}

// Activation that fc applies itself; empty if it has none for the op.
llvm::StringRef activation_of(const Op& op, const PassContext& context) {
  const ops::OpDef* const def = context.registry.find(op.type());
  if (def == nullptr) return {};
  return llvm::StringSwitch<llvm::StringRef>(op.type())
      .Cases("relu", "sigmoid", "tanh", op.type())
      .Case("gelu", flag_is(op, *def, "approximate", true) ? "gelu_tanh" : "gelu")
      .Default({});
}

class FuseFc final : public Pass {
 public:
  explicit FuseFc(const PassOptions& options) : keep_(options.strings("keep")) {}

  llvm::StringRef name() const override { return "fuse-fc"; }

  StatusOr<bool> run(Program& program, PassContext& context) override {
    const InnerVars inner(program, keep_);
    bool changed = false;
    llvm::SmallVector<Op*, 0> products;  // sums and activations go on the way
    for (Op& op : program.root().ops()) {
      if (product_of(op, context)) products.push_back(&op);
    }
    for (Op* const op : products) {
      const std::optional<Product> product = product_of(*op, context);
      Op* const add = product ? inner.only_reader(product->out) : nullptr;
      if (add == nullptr) continue;
      const llvm::StringRef bias = bias_of(*add, *product, context);
      if (bias.empty() || !inputs_unchanged(*op, *add)) continue;
      fuse(*product, bias, *add, inner, context);
      changed = true;
    }
    return changed;
  }

 private:
  // The last op of the chain becomes the fc, so that it stands where the result is written.
  static void fuse(const Product& product, llvm::StringRef bias, Op& add, const InnerVars& inner,
                   const PassContext& context) {
    Op* last = &add;
    llvm::StringRef activation;
    if (Op* const next = inner.only_reader(single_output(add, "Out"))) {
      activation = activation_of(*next, context);
      const bool same = inputs_unchanged(*product.op, *next) && inputs_unchanged(add, *next);
      if (!activation.empty() && same) last = next;
    }
    const llvm::StringRef out = single_output(*last, "Out");
    if (last != &add) inner.erase(add);
    turn_into(*last, "fc");
    last->set_input("Input", product.x).set_input("W", product.weights).set_input("Bias", bias);
    last->set_output("Out", out);
    last->set_int("in_num_col_dims", static_cast<int32_t>(product.row_dims));
    if (!activation.empty() && last != &add) last->set_string("activation_type", activation.str());
    inner.erase(*product.op);
  }

  std::vector<std::string> keep_;
};

}  // namespace

void register_fuse_fc(PassRegistry& passes) {
  passes.add(PassInfo("fuse-fc",
                      "make one op of a product with a matrix of weights, the sum with a bias, and "
                      "an activation")
                 .strings("keep", "vars whose value is wanted after a run")
                 .makes<FuseFc>());
}

}  // namespace millrace::transpiler

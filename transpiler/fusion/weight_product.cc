#include "transpiler/fusion/weight_product.h"

#include "ops/read_attr.h"
#include "transpiler/fusion/inner_vars.h"

namespace millrace::transpiler {
namespace weight_product {
namespace {

bool is_set(const Op& op, const ops::OpDef& def, llvm::StringRef name) {
  return def.find_attr(name) != nullptr && ops::read_attr<bool>(def, op, name);
}

// Leading dims of x that count the rows; nullopt if the op is not a product with a matrix.
std::optional<int64_t> row_dims(const Op& op, const ops::OpDef& def, const Var* x) {
  if (op.type() == "mul") {
    if (ops::read_attr<int32_t>(def, op, "y_num_col_dims") != 1) return std::nullopt;
    return ops::read_attr<int32_t>(def, op, "x_num_col_dims");
  }
  if (op.type() != "matmul" && op.type() != "matmul_v2") return std::nullopt;
  for (const char* const turned : {"transpose_X", "transpose_Y", "trans_x", "trans_y"}) {
    if (is_set(op, def, turned)) return std::nullopt;
  }
  if (def.find_attr("alpha") != nullptr && ops::read_attr<float>(def, op, "alpha") != 1.0F)
    return std::nullopt;
  if (def.find_attr("head_number") != nullptr &&
      ops::read_attr<int32_t>(def, op, "head_number") > 1)
    return std::nullopt;
  if (!is_f32(x) || x->dims().size() < 2) return std::nullopt;
  return static_cast<int64_t>(x->dims().size()) - 1;
}

// True for an op that multiplies only: nothing has been fused into it.
bool is_plain_int8(const Op& op) {
  return op.type() == "int8_fc" && single_input(op, "Bias").empty() &&
         single_input(op, "ResidualData").empty() && op.find_attr("activation_type") == nullptr;
}

}  // namespace
}  // namespace weight_product

std::optional<WeightProduct> weight_product_of(Op& op, const ops::OpRegistry& registry) {
  using namespace weight_product;
  const ops::OpDef* const def = registry.find(op.type());
  const bool int8 = is_plain_int8(op);
  if (def == nullptr || (!int8 && op.find_input("Y") == nullptr)) return std::nullopt;
  WeightProduct product;
  product.op = &op;
  product.x = single_input(op, int8 ? "Input" : "X");
  product.weights = single_input(op, int8 ? "W" : "Y");
  product.out = single_output(op, "Out");
  const Block& block = op.block();
  const std::optional<int64_t> dims = int8 ? ops::read_attr<int32_t>(*def, op, "in_num_col_dims")
                                           : row_dims(op, *def, block.find_var(product.x));
  const Var* const weights = block.find_var(product.weights);
  if (!dims || product.x.empty() || product.out.empty() || !is_f32(weights) ||
      weights->dims().size() != 2 || weights->dims()[1] <= 0)
    return std::nullopt;
  product.row_dims = *dims;
  product.columns = weights->dims()[1];
  return product;
}

}  // namespace millrace::transpiler

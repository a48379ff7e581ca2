#include "transpiler/shape_constants.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <llvm/ADT/STLExtras.h>
#include <llvm/Support/MathExtras.h>

#include "framework/op_attrs.h"

namespace millrace::transpiler {
namespace shape_constants {
namespace {

using Value = std::optional<int64_t>;
using Values = llvm::SmallVector<Value, 4>;
using Inputs = llvm::ArrayRef<const ShapeConstant*>;

// Computes the elements of an op's result; nullopt if this form of the op is not supported.
using Rule = std::optional<Values> (*)(const Op&, Inputs);

std::optional<Values> shape_of(const Op& op, Inputs /*inputs*/) {
  const Var* const var = op.block().find_var_recursive(op.first_input("Input"));
  if (var == nullptr || !var->spec().has_tensor() || var->kind() != VarKind::kLodTensor)
    return std::nullopt;
  Values values;
  for (const int64_t dim : var->dims()) values.push_back(dim < 0 ? Value() : Value(dim));
  if (var->lod_level() > 0 && !values.empty()) values[0] = std::nullopt;
  return values;
}

std::optional<Values> fill(const Op& op, Inputs /*inputs*/) {
  const std::string text = get_attr_or<std::string>(op, "str_value", "");
  double value = get_attr_or<float>(op, "value", 0.0F);
  if (!text.empty() && llvm::StringRef(text).getAsDouble(value)) return std::nullopt;
  if (std::trunc(value) != value || std::abs(value) > 1e15) return std::nullopt;
  int64_t count = 1;
  for (const int64_t dim : get_attr_or<std::vector<int64_t>>(op, "shape", {})) {
    if (dim < 0 || dim > kMaxShapeElements) return std::nullopt;
    count = std::min(count * dim, kMaxShapeElements + 1);
  }
  if (count > kMaxShapeElements) return std::nullopt;
  return Values(static_cast<size_t>(count), static_cast<int64_t>(value));
}

std::optional<Values> listed(const Op& op, Inputs /*inputs*/) {
  Values values;
  for (const char* name : {"int64_values", "int32_values"}) {
    for (const int64_t v : get_attr_or<std::vector<int64_t>>(op, name, {})) values.push_back(v);
    if (!values.empty()) return values;
  }
  return std::nullopt;
}

std::optional<Values> same(const Op& /*op*/, Inputs inputs) {
  return inputs[0]->values;
}

std::optional<Values> joined(const Op& op, Inputs inputs) {
  const bool scalars = llvm::all_of(inputs, [](const auto* i) { return i->values.size() == 1; });
  if (get_attr_or<int32_t>(op, "axis", 0) != 0 && !scalars) return std::nullopt;
  Values values;
  for (const ShapeConstant* input : inputs)
    values.append(input->values.begin(), input->values.end());
  return values;
}

std::optional<Values> scaled(const Op& op, Inputs inputs) {
  const double factor = get_attr_or<float>(op, "scale", 1.0F);
  const double bias = get_attr_or<float>(op, "bias", 0.0F);
  if (std::trunc(factor) != factor || std::trunc(bias) != bias) return std::nullopt;
  if (std::abs(factor) > 1e9 || std::abs(bias) > 1e9) return std::nullopt;
  const auto k = static_cast<int64_t>(factor);
  const auto b = static_cast<int64_t>(bias);
  const bool after = get_attr_or<bool>(op, "bias_after_scale", true);
  Values values;
  for (const Value& x : inputs[0]->values) {
    int64_t result = 0;
    const bool overflow =
        x && (after ? llvm::MulOverflow(*x, k, result) || llvm::AddOverflow(result, b, result)
                    : llvm::AddOverflow(*x, b, result) || llvm::MulOverflow(result, k, result));
    if (overflow) return std::nullopt;
    values.push_back(x ? Value(result) : std::nullopt);
  }
  return values;
}

std::optional<Values> sliced(const Op& op, Inputs inputs) {
  const auto axes = get_attr_or<std::vector<int64_t>>(op, "axes", {});
  const auto starts = get_attr_or<std::vector<int64_t>>(op, "starts", {});
  const auto ends = get_attr_or<std::vector<int64_t>>(op, "ends", {});
  const Var* const input = op.block().find_var_recursive(op.first_input("Input"));
  if (axes != std::vector<int64_t>{0} || starts.size() != 1 || ends.size() != 1 ||
      input == nullptr || input->dims().size() != 1)
    return std::nullopt;
  const auto size = static_cast<int64_t>(inputs[0]->values.size());
  const auto place = [&](int64_t i) { return std::clamp<int64_t>(i < 0 ? i + size : i, 0, size); };
  Values values;
  for (int64_t i = place(starts[0]); i < place(ends[0]); ++i)
    values.push_back(inputs[0]->values[static_cast<size_t>(i)]);
  return values;
}

template <typename Fn>
std::optional<Values> elementwise(Inputs inputs, Fn fn) {
  const Values& x = inputs[0]->values;
  const Values& y = inputs[1]->values;
  if (x.size() != y.size() && x.size() != 1 && y.size() != 1) return std::nullopt;
  Values values;
  for (size_t i = 0; i < std::max(x.size(), y.size()); ++i) {
    const Value& a = x[x.size() == 1 ? 0 : i];
    const Value& b = y[y.size() == 1 ? 0 : i];
    values.push_back(a && b ? fn(*a, *b) : std::nullopt);
  }
  return values;
}

std::optional<Values> add(const Op& /*op*/, Inputs inputs) {
  return elementwise(inputs, [](int64_t a, int64_t b) {
    int64_t r = 0;
    return llvm::AddOverflow(a, b, r) ? Value() : Value(r);
  });
}
std::optional<Values> sub(const Op& /*op*/, Inputs inputs) {
  return elementwise(inputs, [](int64_t a, int64_t b) {
    int64_t r = 0;
    return llvm::SubOverflow(a, b, r) ? Value() : Value(r);
  });
}
std::optional<Values> mul(const Op& /*op*/, Inputs inputs) {
  return elementwise(inputs, [](int64_t a, int64_t b) {
    int64_t r = 0;
    return llvm::MulOverflow(a, b, r) ? Value() : Value(r);
  });
}
// Releases differ in how they round negative quotients, so only other quotients are computed.
std::optional<Values> div(const Op& /*op*/, Inputs inputs) {
  return elementwise(inputs,
                     [](int64_t a, int64_t b) { return a >= 0 && b > 0 ? Value(a / b) : Value(); });
}
std::optional<Values> mod(const Op& /*op*/, Inputs inputs) {
  return elementwise(inputs,
                     [](int64_t a, int64_t b) { return a >= 0 && b > 0 ? Value(a % b) : Value(); });
}
std::optional<Values> maximum(const Op& /*op*/, Inputs inputs) {
  return elementwise(inputs, [](int64_t a, int64_t b) { return Value(std::max(a, b)); });
}
std::optional<Values> minimum(const Op& /*op*/, Inputs inputs) {
  return elementwise(inputs, [](int64_t a, int64_t b) { return Value(std::min(a, b)); });
}

std::optional<Values> product(const Op& /*op*/, Inputs inputs) {
  int64_t result = 1;
  for (const Value& v : inputs[0]->values) {
    if (!v || llvm::MulOverflow(result, *v, result)) return std::nullopt;
  }
  return Values{Value(result)};
}

// One op type: its rule and the slots it reads. Ops that use other slots are not supported.
struct RuleDef {
  llvm::StringLiteral type;
  Rule rule;
  llvm::SmallVector<llvm::StringRef, 2> slots;
  bool reads_values = true;  // false: only declarations and attributes
};

std::optional<RuleDef> rule_of(llvm::StringRef type) {
  const RuleDef rules[] = {
      {"shape", shape_of, {"Input"}, false},
      {"fill_constant", fill, {}, false},
      {"assign_value", listed, {}, false},
      {"assign", same, {"X"}},
      {"cast", same, {"X"}},
      {"reshape", same, {"X"}},
      {"reshape2", same, {"X"}},
      {"squeeze", same, {"X"}},
      {"squeeze2", same, {"X"}},
      {"unsqueeze", same, {"X"}},
      {"unsqueeze2", same, {"X"}},
      {"scale", scaled, {"X"}},
      {"slice", sliced, {"Input"}},
      {"concat", joined, {"X"}},
      {"stack", joined, {"X"}},
      {"elementwise_add", add, {"X", "Y"}},
      {"elementwise_sub", sub, {"X", "Y"}},
      {"elementwise_mul", mul, {"X", "Y"}},
      {"elementwise_div", div, {"X", "Y"}},
      {"elementwise_floordiv", div, {"X", "Y"}},
      {"elementwise_mod", mod, {"X", "Y"}},
      {"elementwise_max", maximum, {"X", "Y"}},
      {"elementwise_min", minimum, {"X", "Y"}},
      {"reduce_prod", product, {"X"}},
  };
  const auto* const it = llvm::find_if(rules, [&](const RuleDef& r) { return r.type == type; });
  return it == std::end(rules) ? std::nullopt : std::optional(*it);
}

// Marks values that the element type cannot hold as unknown.
void narrow(ShapeConstant& constant) {
  if (constant.dtype != DType::kInt32) return;
  for (Value& value : constant.values) {
    if (value && !llvm::isInt<32>(*value)) value.reset();
  }
}

}  // namespace
}  // namespace shape_constants

bool ShapeConstant::complete() const {
  return llvm::all_of(values,
                      [](const shape_constants::Value& value) { return value.has_value(); });
}

ShapeConstants::ShapeConstants(const Program& program) {
  for (const Block& block : program.blocks()) {
    for (const Op& op : block.ops()) {
      for (const Slot& slot : op.outputs()) {
        for (const Arg& arg : slot.args) ++writes_[arg.name];
      }
    }
  }
}

const ShapeConstant* ShapeConstants::find(NameId name) const {
  const auto it = constants_.find(name);
  return it == constants_.end() ? nullptr : &it->second;
}

const ShapeConstant* ShapeConstants::evaluate(const Op& op) {
  using namespace shape_constants;
  const std::optional<RuleDef> rule = rule_of(op.type());
  const llvm::StringRef name =
      op.first_output("Out").empty() ? op.first_output("Y") : op.first_output("Out");
  const Var* const out = op.block().find_var_recursive(name);
  if (!rule || out == nullptr || out->persistable() || writes_.lookup(out->id()) != 1)
    return nullptr;
  if (!out->spec().has_tensor() || (out->dtype() != DType::kInt32 && out->dtype() != DType::kInt64))
    return nullptr;

  llvm::SmallVector<const ShapeConstant*, 4> inputs;
  for (const Slot& slot : op.inputs()) {
    if (slot.args.empty()) continue;
    if (!llvm::is_contained(rule->slots, op.name_of(slot.name))) return nullptr;
  }
  for (const llvm::StringRef slot : rule->slots) {
    if (!rule->reads_values) break;
    const Slot* const found = op.find_input(slot);
    if (found == nullptr || found->args.empty()) return nullptr;
    for (const Arg& arg : found->args) {
      inputs.push_back(find(arg.name));
      if (inputs.back() == nullptr) return nullptr;
    }
  }
  std::optional<Values> values = rule->rule(op, inputs);
  // The declared shape must agree. It also provides the rank of the result, which is not tracked.
  if (!values || element_count(out->dims()) != static_cast<int64_t>(values->size()) ||
      static_cast<int64_t>(values->size()) > kMaxShapeElements)
    return nullptr;
  ShapeConstant constant{out->dtype(), *std::move(values)};
  narrow(constant);
  return &(constants_[out->id()] = std::move(constant));
}

}  // namespace millrace::transpiler

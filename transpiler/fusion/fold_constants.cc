#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <llvm/ADT/DenseMap.h>
#include <llvm/ADT/STLExtras.h>
#include <llvm/ADT/StringSwitch.h>

#include "ops/infer_context.h"
#include "ops/read_attr.h"
#include "transpiler/distribute/collective_plan.h"
#include "transpiler/fusion/inner_vars.h"
#include "transpiler/pass_registry.h"
#include "transpiler/program_edit.h"

namespace millrace::transpiler {
namespace {

// A tensor with more elements is tracked only while all of them are equal.
constexpr int64_t kMostElements = 256;
// Integers are held as doubles. 2^53 may be what rounding made of 2^53 + 1.
constexpr double kLargestInteger = 9007199254740991.0;

struct Constant {
  DType dtype = DType::kFloat32;
  std::vector<int64_t> dims;
  std::vector<double> values;  // one if all elements are equal

  [[nodiscard]] double at(size_t i) const { return values.size() == 1 ? values[0] : values[i]; }
};

bool is_followed(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kFloat64 || dtype == DType::kInt32 ||
         dtype == DType::kInt64 || dtype == DType::kBool;
}

// The number as an element of the type stores it; nullopt if it does not fit.
std::optional<double> rounded(double value, DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return static_cast<double>(static_cast<float>(value));
    case DType::kFloat64:
      return value;
    case DType::kBool:
      return value != 0 ? 1.0 : 0.0;
    default:
      break;
  }
  const double limit = dtype == DType::kInt32 ? 2147483647.0 : kLargestInteger;
  if (!(std::fabs(value) <= limit)) return std::nullopt;
  return std::trunc(value);
}

using Unary = double (*)(double);
Unary unary(llvm::StringRef type) {
  return llvm::StringSwitch<Unary>(type)
      .Case("sqrt", [](double x) { return std::sqrt(x); })
      .Case("rsqrt", [](double x) { return 1 / std::sqrt(x); })
      .Case("square", [](double x) { return x * x; })
      .Case("reciprocal", [](double x) { return 1 / x; })
      .Case("exp", [](double x) { return std::exp(x); })
      .Case("log", [](double x) { return std::log(x); })
      .Case("abs", [](double x) { return std::fabs(x); })
      .Case("floor", [](double x) { return std::floor(x); })
      .Case("ceil", [](double x) { return std::ceil(x); })
      .Case("relu", [](double x) { return x > 0 ? x : 0; })
      .Case("sigmoid", [](double x) { return 1 / (1 + std::exp(-x)); })
      .Case("tanh", [](double x) { return std::tanh(x); })
      .Default(nullptr);
}

using Binary = double (*)(double, double);
Binary binary(llvm::StringRef type, DType dtype) {
  const bool real = dtype == DType::kFloat32 || dtype == DType::kFloat64;
  return llvm::StringSwitch<Binary>(type)
      .Case("elementwise_add", [](double x, double y) { return x + y; })
      .Case("elementwise_sub", [](double x, double y) { return x - y; })
      .Case("elementwise_mul", [](double x, double y) { return x * y; })
      .Case("elementwise_max", [](double x, double y) { return x < y ? y : x; })
      .Case("elementwise_min", [](double x, double y) { return y < x ? y : x; })
      // integers are divided and raised by different rules
      .Case("elementwise_div", real ? [](double x, double y) { return x / y; } : Binary(nullptr))
      .Case("elementwise_pow",
            real ? [](double x, double y) { return std::pow(x, y); } : Binary(nullptr))
      .Default(nullptr);
}

int64_t count_of(llvm::ArrayRef<int64_t> dims) {
  return ops::dims_product(dims);
}

// The constants of block 0, found op by op in order.
class KnownConstants {
 public:
  KnownConstants(const Program& program, const ops::OpRegistry& registry, const InnerVars& inner)
      : block_(program.root()), registry_(registry), inner_(inner) {
    for (const Block& block : program.blocks()) {
      for (const Op& op : block.ops()) {
        for (const llvm::StringRef name : op.output_names()) ++writes_[*program.names().find(name)];
      }
    }
  }

  // The constant value of the output `Out` of the op; nullopt if it is not constant.
  std::optional<Constant> evaluate(const Op& op) const {
    const ops::OpDef* const def = registry_.find(op.type());
    const llvm::StringRef out = single_output(op, "Out");
    const Var* const var = out.empty() ? nullptr : block_.find_var(out);
    if (def == nullptr || var == nullptr || var->persistable() || !var->spec().has_tensor() ||
        var->kind() != VarKind::kLodTensor || writes_.lookup(var->id()) != 1 ||
        !only_output_read(op, out) || is_other_output_needed(op, out))
      return std::nullopt;
    std::optional<Constant> result = value_of(op, *def);
    if (!result || !is_followed(result->dtype) || result->dtype != var->dtype() ||
        llvm::ArrayRef<int64_t>(result->dims) != var->dims())
      return std::nullopt;
    return shortened(std::move(*result));
  }
  // Later ops may use the constant, unless something else can change the var before they read it:
  // data-parallel jobs scale or feed the initial gradient of the loss, devices exchange gradients
  // (which are kept), and attributes or other blocks may mention the var.
  void remember(const Op& op, Constant constant) {
    if (is_loss_grad_op(op) || !inner_.is_plain(single_output(op, "Out"))) return;
    known_[block_.find_var(single_output(op, "Out"))->id()] = std::move(constant);
  }

 private:
  bool is_other_output_needed(const Op& op, llvm::StringRef out) const {
    return llvm::any_of(op.output_names(), [&](llvm::StringRef name) {
      return name != out && inner_.is_needed_after(name);
    });
  }
  const Constant* find(const Op& op, llvm::StringRef slot) const {
    const llvm::StringRef name = single_input(op, slot);
    const Var* const var = name.empty() ? nullptr : block_.find_var(name);
    const auto found = var == nullptr ? known_.end() : known_.find(var->id());
    return found == known_.end() ? nullptr : &found->second;
  }

  std::optional<Constant> value_of(const Op& op, const ops::OpDef& def) const {
    const llvm::StringRef type = op.type();
    if (type == "fill_constant") return filled(op, def);
    if (type == "assign_value") return listed(op, def);
    const Constant* const x = find(op, "X");
    if (x == nullptr) return std::nullopt;
    if (type == "cast") {
      Constant result = *x;
      result.dtype = static_cast<DType>(ops::read_attr<int32_t>(def, op, "out_dtype"));
      return mapped(std::move(result), [](double v) { return v; });
    }
    if (type == "scale" && single_input(op, "ScaleTensor").empty()) return scaled(op, def, *x);
    if (type == "reshape2" || type == "squeeze2" || type == "unsqueeze2") return reshaped(op, *x);
    if (const Unary function = unary(type)) {
      const bool real = x->dtype == DType::kFloat32 || x->dtype == DType::kFloat64;
      return real ? mapped(*x, function) : std::nullopt;
    }
    const Constant* const y = find(op, "Y");
    const Binary function = binary(type, x->dtype);
    return y == nullptr || function == nullptr ? std::nullopt : combined(*x, *y, function);
  }

  static std::optional<Constant> filled(const Op& op, const ops::OpDef& def) {
    if (!op.input_names().empty()) return std::nullopt;
    Constant result;
    result.dtype = static_cast<DType>(ops::read_attr<int32_t>(def, op, "dtype"));
    result.dims = ops::read_attr<std::vector<int64_t>>(def, op, "shape");
    double value = ops::read_attr<float>(def, op, "value");
    if (const auto text = ops::read_attr<std::string>(def, op, "str_value"); !text.empty()) {
      char* end = nullptr;
      value = std::strtod(text.c_str(), &end);
      if (end != text.c_str() + text.size()) return std::nullopt;
    }
    result.values = {value};
    return mapped(std::move(result), [](double v) { return v; });
  }

  static std::optional<Constant> listed(const Op& op, const ops::OpDef& def) {
    Constant result;
    result.dtype = static_cast<DType>(ops::read_attr<int32_t>(def, op, "dtype"));
    result.dims = ops::read_attr<std::vector<int64_t>>(def, op, "shape");
    const auto take = [&](const auto& values) {
      result.values.assign(values.begin(), values.end());
    };
    if (result.dtype == DType::kFloat32) {
      take(ops::read_attr<std::vector<float>>(def, op, "fp32_values"));
    } else if (result.dtype == DType::kInt32) {
      take(ops::read_attr<std::vector<int32_t>>(def, op, "int32_values"));
    } else if (result.dtype == DType::kInt64) {
      take(ops::read_attr<std::vector<int64_t>>(def, op, "int64_values"));
    } else {
      return std::nullopt;
    }
    if (static_cast<int64_t>(result.values.size()) != count_of(result.dims)) return std::nullopt;
    return mapped(std::move(result), [](double v) { return v; });
  }

  std::optional<Constant> reshaped(const Op& op, const Constant& x) const {
    Constant result = x;
    const Var* const out = block_.find_var(single_output(op, "Out"));
    result.dims.assign(out->dims().begin(), out->dims().end());
    if (count_of(result.dims) != count_of(x.dims)) return std::nullopt;
    return result;
  }

  static std::optional<Constant> scaled(const Op& op, const ops::OpDef& def, const Constant& x) {
    const double factor = ops::read_attr<float>(def, op, "scale");
    const double bias = ops::read_attr<float>(def, op, "bias");
    const bool after = ops::read_attr<bool>(def, op, "bias_after_scale");
    // the op rounds the factor and the bias of integers to integers
    const bool real = x.dtype == DType::kFloat32 || x.dtype == DType::kFloat64;
    if (!real && (std::trunc(factor) != factor || std::trunc(bias) != bias)) return std::nullopt;
    return mapped(x, [=](double v) { return after ? v * factor + bias : (v + bias) * factor; });
  }

  // Operands of the same dims, or one of a single value.
  static std::optional<Constant> combined(const Constant& x, const Constant& y, Binary function) {
    if (x.dtype != y.dtype || (x.dims != y.dims && count_of(y.dims) != 1)) return std::nullopt;
    Constant result = x;
    result.values.resize(std::max(x.values.size(), y.values.size()));
    for (size_t i = 0; i < result.values.size(); ++i) result.values[i] = function(x.at(i), y.at(i));
    return mapped(std::move(result), [](double v) { return v; });
  }

  template <typename Function>
  static std::optional<Constant> mapped(Constant x, Function function) {
    for (double& value : x.values) {
      const std::optional<double> now = rounded(function(value), x.dtype);
      if (!now) return std::nullopt;
      value = *now;
    }
    return x;
  }

  // Stores equal values as one; nullopt if there are too many different values.
  static std::optional<Constant> shortened(Constant x) {
    const int64_t count = count_of(x.dims);
    if (count < 1 || x.values.empty()) return std::nullopt;
    // -0 and 0 compare equal but differ
    const bool uniform = llvm::all_of(x.values, [&](double value) {
      return value == x.values[0] && std::signbit(value) == std::signbit(x.values[0]);
    });
    if (uniform) x.values.resize(1);
    if (!uniform &&
        (count > kMostElements || x.dtype == DType::kFloat64 || x.dtype == DType::kBool))
      return std::nullopt;
    return x;
  }

  const Block& block_;
  const ops::OpRegistry& registry_;
  const InnerVars& inner_;
  llvm::DenseMap<NameId, int> writes_;
  llvm::DenseMap<NameId, Constant> known_;
};

// Turns the op into one that writes these values and has no inputs.
void turn_into_constant(Op& op, const Constant& constant) {
  const std::string out = single_output(op, "Out").str();
  const bool uniform = constant.values.size() == 1;
  turn_into(op, uniform ? "fill_constant" : "assign_value");
  op.set_output("Out", out);
  op.set_int("dtype", static_cast<int32_t>(constant.dtype));
  if (uniform) {
    op.set_attr("shape", AttrValue::of_longs(constant.dims));
    op.set_float("value", static_cast<float>(constant.values[0]));
    if (static_cast<double>(static_cast<float>(constant.values[0])) != constant.values[0])
      op.set_string("str_value", fmt::format("{:.17g}", constant.values[0]));
    return;
  }
  op.set_attr("shape", AttrValue::of_ints({constant.dims.begin(), constant.dims.end()}));
  const std::vector<double>& values = constant.values;
  if (constant.dtype == DType::kInt32) {
    op.set_attr("int32_values", AttrValue::of_ints({values.begin(), values.end()}));
  } else if (constant.dtype == DType::kInt64) {
    op.set_attr("int64_values", AttrValue::of_longs({values.begin(), values.end()}));
  } else {
    op.set_attr("fp32_values", AttrValue::of_floats({values.begin(), values.end()}));
  }
}

class FoldConstants final : public Pass {
 public:
  explicit FoldConstants(const PassOptions& options) : keep_(options.strings("keep")) {}

  llvm::StringRef name() const override { return "fold-constants"; }

  StatusOr<bool> run(Program& program, PassContext& context) override {
    const InnerVars inner(program, keep_);
    KnownConstants known(program, context.registry, inner);
    bool changed = false;
    std::vector<Op*> sources;
    for (Op* const op : program.root().op_vector()) {
      std::optional<Constant> constant = known.evaluate(*op);
      if (!constant) continue;
      known.remember(*op, *constant);
      sources.push_back(op);
      if (op->input_names().empty()) continue;
      turn_into_constant(*op, *constant);
      changed = true;
    }
    // constants that only other constants depended on
    for (Op* const op : llvm::reverse(sources)) {
      const llvm::StringRef out = single_output(*op, "Out");
      if (!changed || !inner.contains(out) || inner.block().has_readers(out)) continue;
      inner.erase(*op);
    }
    return changed;
  }

 private:
  std::vector<std::string> keep_;
};

}  // namespace

void add_fusion_fold_constants(PassRegistry& registry) {
  registry.add(PassInfo("fold-constants",
                        "compute what depends only on fill_constant and assign_value, and erase "
                        "constants that are not read any more")
                   .strings("keep", "vars whose value is needed after a run")
                   .makes<FoldConstants>());
}

}  // namespace millrace::transpiler

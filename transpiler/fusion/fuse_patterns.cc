#include <optional>
#include <vector>

#include <fmt/format.h>
#include <llvm/ADT/STLExtras.h>
#include <llvm/ADT/SmallVector.h>

#include "ops/read_attr.h"
#include "transpiler/fusion/inner_vars.h"
#include "transpiler/fusion/pattern_gradient.h"
#include "transpiler/pass_registry.h"

namespace millrace::transpiler {
namespace {

// A softmax or layer_norm that consists of simpler ops.
struct Found {
  llvm::SmallVector<Op*, 10> ops;  // in order; the last one writes the result
  PatternInputs inputs;
  float epsilon = 0;  // of layer_norm
};

class Matcher {
 public:
  Matcher(const InnerVars& inner, const ops::OpRegistry& registry)
      : inner_(inner), registry_(registry) {}

  // e / sum(e) with e = exp(x) or exp(x - max(x)), along the last dim.
  std::optional<Found> softmax(Op& div) const {
    const llvm::StringRef e = div.type() == "elementwise_div" ? single_input(div, "X") : "";
    Op* const exp = writer(e, "exp");
    Op* const sum = row_reduction(single_input(div, "Y"), "reduce_sum", e);
    if (exp == nullptr || sum == nullptr || !is_read_by(inner_, e, {sum, &div}) ||
        !same_rank(div) || !is_read_by(inner_, single_input(div, "Y"), {&div}))
      return std::nullopt;
    Found found{{exp, sum, &div}, {single_input(*exp, "X").str(), "", ""}, 0};
    const llvm::StringRef shifted = found.inputs.x;
    Op* const sub = writer(shifted, "elementwise_sub");
    if (sub == nullptr || !is_read_by(inner_, shifted, {exp}) || !same_rank(*sub)) return found;
    const llvm::StringRef x = single_input(*sub, "X");
    Op* const max = row_reduction(single_input(*sub, "Y"), "reduce_max", x);
    if (max == nullptr || !is_read_by(inner_, single_input(*sub, "Y"), {sub})) return found;
    return Found{{max, sub, exp, sum, &div}, {x.str(), "", ""}, 0};
  }

  // c / sqrt(mean(c * c) + epsilon) with c = x - mean(x), along the last dim.
  std::optional<Found> layer_norm(Op& div) const {
    const llvm::StringRef c = div.type() == "elementwise_div" ? single_input(div, "X") : "";
    Op* const sub = writer(c, "elementwise_sub");
    Op* const root = writer(single_input(div, "Y"), "sqrt");
    Op* const add = root == nullptr ? nullptr : writer(single_input(*root, "X"), "scale");
    if (sub == nullptr || add == nullptr || !same_rank(div) || !same_rank(*sub) ||
        !single_input(*add, "ScaleTensor").empty() || attr<float>(*add, "scale") != 1.0F)
      return std::nullopt;
    const llvm::StringRef squared_mean = single_input(*add, "X");
    Op* const outer = inner_.writer(squared_mean);
    const llvm::StringRef squared = outer == nullptr ? "" : single_input(*outer, "X");
    Op* const square = square_of(squared, c);
    if (square == nullptr || row_reduction(squared_mean, "reduce_mean", squared) == nullptr)
      return std::nullopt;
    const llvm::StringRef x = single_input(*sub, "X");
    Op* const mean = row_reduction(single_input(*sub, "Y"), "reduce_mean", x);
    if (mean == nullptr || !is_read_by(inner_, single_input(*sub, "Y"), {sub}) ||
        !is_read_by(inner_, c, {square, &div}) || !is_read_by(inner_, squared, {outer}) ||
        !is_read_by(inner_, squared_mean, {add}) ||
        !is_read_by(inner_, single_input(*root, "X"), {root}) ||
        !is_read_by(inner_, single_input(div, "Y"), {&div}))
      return std::nullopt;
    Found found{
        {mean, sub, square, outer, add, root, &div}, {x.str(), "", ""}, attr<float>(*add, "bias")};
    add_rows(found);
    return found;
  }

 private:
  // A multiplication and an addition with one value per column that follow become part of a
  // layer_norm.
  void add_rows(Found& found) const {
    Op* const mul = next_with_row(single_output(*found.ops.back(), "Out"), "elementwise_mul");
    Op* const add =
        mul == nullptr ? nullptr : next_with_row(single_output(*mul, "Out"), "elementwise_add");
    if (add == nullptr || !inputs_unchanged(*found.ops.front(), *add) ||
        !inputs_unchanged(*mul, *add))
      return;
    found.inputs.scale = single_input(*mul, "Y").str();
    found.inputs.bias = single_input(*add, "Y").str();
    found.ops.append({mul, add});
  }

  // The op after rows that only it and gradient ops read, if it combines each row with one
  // persistable row.
  Op* next_with_row(llvm::StringRef row, llvm::StringRef type) const {
    if (!inner_.contains(row)) return nullptr;
    Op* next = nullptr;
    for (Op* const reader : inner_.block().readers_of(row)) {
      if (reader->type().endswith("_grad")) continue;
      if (next != nullptr) return nullptr;
      next = reader;
    }
    const Var* const var = inner_.block().find_var(row);
    if (next == nullptr || next->type() != type || single_input(*next, "X") != row) return nullptr;
    const Var* const stored = inner_.block().find_var(single_input(*next, "Y"));
    const int32_t axis = attr<int32_t>(*next, "axis");
    const bool fits = stored != nullptr && stored->persistable() &&
                      stored->dtype() == DType::kFloat32 &&
                      stored->dims() == var->dims().take_back(1) && var->dims().back() > 0 &&
                      (axis == -1 || axis == static_cast<int32_t>(var->dims().size()) - 1);
    return fits ? next : nullptr;
  }

  template <typename T>
  T attr(const Op& op, llvm::StringRef name) const {
    return ops::read_attr<T>(*registry_.find(op.type()), op, name);
  }
  Op* writer(llvm::StringRef name, llvm::StringRef type) const {
    Op* const op = name.empty() ? nullptr : inner_.writer(name);
    return op != nullptr && op->type() == type && registry_.find(type) != nullptr ? op : nullptr;
  }
  // The op that reduces the last dim of x to one element and keeps the dim.
  Op* row_reduction(llvm::StringRef name, llvm::StringRef type, llvm::StringRef x) const {
    Op* const op = writer(name, type);
    const Var* const var = inner_.block().find_var(x);
    if (op == nullptr || single_input(*op, "X") != x || var == nullptr ||
        !var->spec().has_tensor() || var->dtype() != DType::kFloat32 || var->dims().size() < 2 ||
        attr<bool>(*op, "reduce_all") || !attr<bool>(*op, "keep_dim"))
      return nullptr;
    const auto dims = attr<std::vector<int32_t>>(*op, "dim");
    const auto last = static_cast<int32_t>(var->dims().size()) - 1;
    return dims.size() == 1 && (dims[0] == -1 || dims[0] == last) ? op : nullptr;
  }
  Op* square_of(llvm::StringRef name, llvm::StringRef x) const {
    Op* const op = name.empty() ? nullptr : inner_.writer(name);
    if (op == nullptr || registry_.find(op->type()) == nullptr || single_input(*op, "X") != x)
      return nullptr;
    const bool squares = op->type() == "square" ||
                         (op->type() == "pow" && single_input(*op, "FactorTensor").empty() &&
                          attr<float>(*op, "factor") == 2.0F) ||
                         (op->type() == "elementwise_mul" && single_input(*op, "Y") == x);
    return squares ? op : nullptr;
  }
  // True if the operands have the same rank, so that their dims correspond one to one.
  bool same_rank(const Op& op) const {
    const Var* const x = inner_.block().find_var(single_input(op, "X"));
    const Var* const y = inner_.block().find_var(single_input(op, "Y"));
    return x != nullptr && y != nullptr && x->dims().size() == y->dims().size();
  }

  const InnerVars& inner_;
  const ops::OpRegistry& registry_;
};

class FusePatterns final : public Pass {
 public:
  explicit FusePatterns(const PassOptions& options) : keep_(options.strings("keep")) {}

  llvm::StringRef name() const override { return "fuse-patterns"; }

  StatusOr<bool> run(Program& program, PassContext& context) override {
    const InnerVars inner(program, keep_);
    const Matcher matcher(inner, context.registry);
    llvm::SmallVector<Op*, 0> divisions;
    for (Op& op : program.root().ops()) {
      if (op.type() == "elementwise_div") divisions.push_back(&op);
    }
    bool changed = false;
    for (Op* const div : divisions) {
      auto found = matcher.softmax(*div);
      const bool is_softmax = found.has_value();
      if (!found) found = matcher.layer_norm(*div);
      if (!found || !is_movable(*found)) continue;
      const auto gradient = find_pattern_gradient(found->ops, found->inputs, inner);
      if (!gradient) continue;
      is_softmax ? make_softmax(*found, *gradient, inner)
                 : make_layer_norm(*found, *gradient, inner);
      changed = true;
    }
    return changed;
  }

 private:
  // True if x may be read at the position of the last op.
  static bool is_movable(const Found& found) {
    return llvm::all_of(found.ops, [&](const Op* op) {
      return !op->reads(found.inputs.x) || inputs_unchanged(*op, *found.ops.back());
    });
  }

  static void make_softmax(const Found& found, const PatternGradient& gradient,
                           const InnerVars& inner) {
    Op& op = *found.ops.back();
    const std::string out = single_output(op, "Out").str();
    if (!gradient.ops.empty()) {
      Op& grad = join_pattern_gradient(gradient, "softmax_grad", inner);
      grad.set_input("Out", out).set_input("Out@GRAD", gradient.incoming).set_int("axis", -1);
    }
    turn_into(op, "softmax");
    op.set_input("X", found.inputs.x).set_output("Out", out).set_int("axis", -1);
    erase_others(found, inner);
  }

  static void set_layer_norm(Op& op, const Found& found, size_t rank) {
    op.set_input("X", found.inputs.x);
    if (!found.inputs.scale.empty())
      op.set_input("Scale", found.inputs.scale).set_input("Bias", found.inputs.bias);
    op.set_float("epsilon", found.epsilon);
    op.set_int("begin_norm_axis", static_cast<int32_t>(rank) - 1);
  }

  // The gradient needs the moments of each row.
  static void make_layer_norm(const Found& found, const PatternGradient& gradient,
                              const InnerVars& inner) {
    const Dims dims = inner.block().find_var(found.inputs.x)->spec().dims;
    Op& op = *found.ops.back();
    const std::string out = single_output(op, "Out").str();
    const bool trains = !gradient.ops.empty();
    turn_into(op, "layer_norm");
    set_layer_norm(op, found, dims.size());
    op.set_output("Y", out);
    if (trains) {
      Op& grad = join_pattern_gradient(gradient, "layer_norm_grad", inner);
      set_layer_norm(grad, found, dims.size());
      grad.set_input("Y@GRAD", gradient.incoming);
      for (const char* const slot : {"Mean", "Variance"}) {
        const std::string name = declare_moments(inner.block(), out, slot, dims);
        op.set_output(slot, name);
        grad.set_input(slot, name);
      }
    }
    erase_others(found, inner);
  }

  // Declares a var with one element per row, under an unused name.
  static std::string declare_moments(Block& block, const std::string& out, const char* what,
                                     const Dims& dims) {
    int64_t rows = 1;
    for (const int64_t dim : llvm::ArrayRef(dims).drop_back())
      rows = rows < 0 || dim < 0 ? -1 : rows * dim;
    std::string name = fmt::format("{}@{}", out, what);
    while (block.find_var(name) != nullptr) name += "_";
    block.declare(name, VarSpec::tensor(DType::kFloat32, {rows}));
    return name;
  }

  // Erases all ops but the last one, readers before writers.
  static void erase_others(const Found& found, const InnerVars& inner) {
    for (Op* const op : llvm::reverse(llvm::ArrayRef(found.ops).drop_back())) inner.erase(*op);
  }

  std::vector<std::string> keep_;
};

}  // namespace

void add_fusion_fuse_patterns(PassRegistry& registry) {
  registry.add(
      PassInfo("fuse-patterns",
               "replace reductions and elementwise ops that compute a softmax or layer_norm along "
               "the last dim by that op, and their gradients by one op")
          .strings("keep", "vars whose value is needed after a run")
          .makes<FusePatterns>());
}

}  // namespace millrace::transpiler

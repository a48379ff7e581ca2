#include <optional>
#include <vector>

#include <llvm/ADT/STLExtras.h>
#include <llvm/ADT/SmallVector.h>

#include "ops/read_attr.h"
#include "transpiler/fusion/fusions.h"
#include "transpiler/fusion/inner_vars.h"

namespace millrace::transpiler {
namespace {

// A softmax or layer_norm that is written out, as it is found by its last op but for the factor and
// summand of a layer_norm.
struct Found {
  llvm::SmallVector<Op*, 8> ops;  // in order; the last one writes the result
  std::string x;
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
    if (exp == nullptr || sum == nullptr || !is_read_by(e, {sum, &div}) || !same_rank(div) ||
        !is_read_by(single_input(div, "Y"), {&div}))
      return std::nullopt;
    Found found{{exp, sum, &div}, single_input(*exp, "X").str(), 0};
    const llvm::StringRef shifted = found.x;
    Op* const sub = writer(shifted, "elementwise_sub");
    if (sub == nullptr || !is_read_by(shifted, {exp}) || !same_rank(*sub)) return found;
    const llvm::StringRef x = single_input(*sub, "X");
    Op* const max = row_reduction(single_input(*sub, "Y"), "reduce_max", x);
    if (max == nullptr || !is_read_by(single_input(*sub, "Y"), {sub})) return found;
    return Found{{max, sub, exp, sum, &div}, x.str(), 0};
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
    if (mean == nullptr || !is_read_by(single_input(*sub, "Y"), {sub}) ||
        !is_read_by(c, {square, &div}) || !is_read_by(squared, {outer}) ||
        !is_read_by(squared_mean, {add}) || !is_read_by(single_input(*root, "X"), {root}) ||
        !is_read_by(single_input(div, "Y"), {&div}))
      return std::nullopt;
    return Found{{mean, sub, square, outer, add, root, &div}, x.str(), attr<float>(*add, "bias")};
  }

  // The op behind a row that only it reads, if it combines each row with one stored row.
  Op* next_with_row(llvm::StringRef row, llvm::StringRef type) const {
    Op* const next = inner_.only_reader(row);
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

 private:
  template <typename T>
  T attr(const Op& op, llvm::StringRef name) const {
    return ops::read_attr<T>(*registry_.find(op.type()), op, name);
  }
  Op* writer(llvm::StringRef name, llvm::StringRef type) const {
    Op* const op = name.empty() ? nullptr : inner_.writer(name);
    return op != nullptr && op->type() == type && registry_.find(type) != nullptr ? op : nullptr;
  }
  // The op that reduces the last dim of x to one element, which stays a dim.
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
  bool is_read_by(llvm::StringRef name, llvm::ArrayRef<const Op*> ops) const {
    return inner_.contains(name) && llvm::all_of(inner_.block().readers_of(name), [&](Op* reader) {
             return llvm::is_contained(ops, reader);
           });
  }
  // Operands of one rank: their dims stand one above the other.
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
      if (const auto softmax = matcher.softmax(*div); softmax && is_movable(*softmax)) {
        make_softmax(*softmax, inner);
        changed = true;
      } else if (const auto norm = matcher.layer_norm(*div); norm && is_movable(*norm)) {
        make_layer_norm(*norm, inner, matcher);
        changed = true;
      }
    }
    return changed;
  }

 private:
  // x is read where the last op stands.
  static bool is_movable(const Found& found) {
    return llvm::all_of(found.ops, [&](const Op* op) {
      return !op->reads(found.x) || inputs_unchanged(*op, *found.ops.back());
    });
  }

  static void make_softmax(const Found& found, const InnerVars& inner) {
    Op& op = *found.ops.back();
    const std::string out = single_output(op, "Out").str();
    turn_into(op, "softmax");
    op.set_input("X", found.x).set_output("Out", out).set_int("axis", -1);
    erase_others(found, inner);
  }

  // A factor and a summand a column that follow become part of it.
  static void make_layer_norm(const Found& found, const InnerVars& inner, const Matcher& matcher) {
    Op* last = found.ops.back();
    std::string scale;
    std::string bias;
    llvm::SmallVector<Op*, 2> behind;
    if (Op* const mul = matcher.next_with_row(single_output(*last, "Out"), "elementwise_mul")) {
      Op* const add = matcher.next_with_row(single_output(*mul, "Out"), "elementwise_add");
      if (add != nullptr && inputs_unchanged(*found.ops.front(), *add) &&
          inputs_unchanged(*mul, *add)) {
        scale = single_input(*mul, "Y").str();
        bias = single_input(*add, "Y").str();
        behind = {last, mul};
        last = add;
      }
    }
    const auto rank = inner.block().find_var(found.x)->dims().size();
    const std::string out = single_output(*last, "Out").str();
    turn_into(*last, "layer_norm");
    last->set_input("X", found.x).set_output("Y", out);
    if (!scale.empty()) last->set_input("Scale", scale).set_input("Bias", bias);
    last->set_float("epsilon", found.epsilon);
    last->set_int("begin_norm_axis", static_cast<int32_t>(rank) - 1);
    for (Op* const op : llvm::reverse(behind)) inner.erase(*op);
    erase_others(found, inner);
  }

  // All but the last one, readers before writers.
  static void erase_others(const Found& found, const InnerVars& inner) {
    for (Op* const op : llvm::reverse(llvm::ArrayRef(found.ops).drop_back())) inner.erase(*op);
  }

  std::vector<std::string> keep_;
};

}  // namespace

void register_fuse_patterns(PassRegistry& passes) {
  passes.add(
      PassInfo("fuse-patterns",
               "make a softmax or layer_norm of the reductions and elementwise ops that it is "
               "written out in, along the last dim")
          .strings("keep", "vars whose value is wanted after a run")
          .makes<FusePatterns>());
}

}  // namespace millrace::transpiler

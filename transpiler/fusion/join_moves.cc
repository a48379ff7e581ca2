#include <algorithm>
#include <optional>
#include <vector>

#include <llvm/ADT/STLExtras.h>
#include <llvm/ADT/SmallVector.h>

#include "framework/names.h"
#include "ops/lod_source.h"
#include "ops/read_attr.h"
#include "transpiler/fusion/inner_vars.h"
#include "transpiler/pass_registry.h"

namespace millrace::transpiler {
namespace {

// Ops that only change the order of elements or the dims.
bool is_transpose(const Op& op) {
  return op.type() == "transpose2" || op.type() == "transpose";
}
bool is_reshape(const Op& op) {
  return (op.type() == "reshape2" || op.type() == "reshape") && single_input(op, "Shape").empty() &&
         op.input("ShapeTensor").empty();
}

// A move op and its gradient op. Only the gradient op reads the output of the move that is meant
// for gradients (XShape).
struct Move {
  Op* op = nullptr;
  Op* grad = nullptr;  // null without a gradient
};

// Nullopt if an op other than the gradient op reads an output besides the result, or such an output
// is needed after a run. Old ops without XShape have gradient ops that read other vars: those are
// left alone.
std::optional<Move> move_of(Op& op, const InnerVars& inner) {
  const llvm::StringRef out = single_output(op, "Out");
  if (out.empty()) return std::nullopt;
  Move move{&op, nullptr};
  const std::string grad_type = (op.type() + "_grad").str();
  for (const llvm::StringRef name : op.output_names()) {
    if (name == out) continue;
    if (inner.is_needed_after(name)) return std::nullopt;
    for (Op* const reader : op.block().readers_of(name)) {
      if (move.grad != nullptr || reader->type() != grad_type ||
          single_input(*reader, "XShape") != name)
        return std::nullopt;
      move.grad = reader;
    }
  }
  if (move.grad == nullptr) {
    const std::string gradient = names::grad(out);
    return op.block().has_readers(gradient) ? std::nullopt : std::optional<Move>(move);
  }
  const bool whole =
      !single_input(*move.grad, "Out@GRAD").empty() && !single_output(*move.grad, "X@GRAD").empty();
  return whole ? std::optional<Move>(move) : std::nullopt;
}

class JoinMoves final : public Pass {
 public:
  explicit JoinMoves(const PassOptions& options) : keep_(options.strings("keep")) {}

  llvm::StringRef name() const override { return "join-moves"; }

  StatusOr<bool> run(Program& program, PassContext& context) override {
    const InnerVars inner(program, keep_);
    llvm::SmallVector<Op*, 0> moves;
    for (Op& op : program.root().ops()) {
      if ((is_transpose(op) || is_reshape(op)) && context.registry.find(op.type()) != nullptr)
        moves.push_back(&op);
    }
    bool changed = false;
    for (Op* const op : moves) {
      const std::optional<Move> move = move_of(*op, inner);
      if (!move) continue;
      changed |= join(*move, inner, context);
      if (changes_nothing(*op, context) && keeps_lod(*op, inner, context) && bypass(*move, inner))
        changed = true;
    }
    return changed;
  }

 private:
  static std::vector<int32_t> list(const Op& op, llvm::StringRef name, const PassContext& context) {
    return ops::read_attr<std::vector<int32_t>>(*context.registry.find(op.type()), op, name);
  }

  // Joins the op with a preceding op of its kind, whose input it then reads; and their gradients.
  static bool join(const Move& move, const InnerVars& inner, const PassContext& context) {
    Op& op = *move.op;
    Op* const writer = inner.writer(single_input(op, "X"));
    if (writer == nullptr || is_transpose(*writer) != is_transpose(op) ||
        is_reshape(*writer) != is_reshape(op) || context.registry.find(writer->type()) == nullptr ||
        inner.only_reader(single_output(*writer, "Out")) != &op || !inputs_unchanged(*writer, op))
      return false;
    const std::optional<Move> before = move_of(*writer, inner);
    if (!before || !are_gradients_joinable(*before, move, inner)) return false;
    if (is_transpose(op)) {
      std::optional<std::vector<int32_t>> axes =
          combined(list(*writer, "axis", context), list(op, "axis", context));
      if (!axes) return false;
      if (before->grad != nullptr) before->grad->set_attr("axis", AttrValue::of_ints(*axes));
      op.set_attr("axis", AttrValue::of_ints(std::move(*axes)));
    } else if (llvm::is_contained(list(op, "shape", context), 0)) {
      return false;  // 0 copies a dim of the input
    }
    if (before->grad != nullptr) join_gradients(*before, move, inner);
    op.set_input("X", single_input(*writer, "X").str());
    inner.erase(*writer);
    return true;
  }

  // Axes of both transposes combined; nullopt if they do not fit together.
  static std::optional<std::vector<int32_t>> combined(const std::vector<int32_t>& first,
                                                      std::vector<int32_t> axes) {
    if (axes.size() != first.size()) return std::nullopt;
    for (int32_t& axis : axes) {
      if (axis < 0 || static_cast<size_t>(axis) >= first.size()) return std::nullopt;
      axis = first[static_cast<size_t>(axis)];
    }
    return axes;
  }

  // True if neither has a gradient, or only the gradient of the first op reads that of the second.
  static bool are_gradients_joinable(const Move& first, const Move& second,
                                     const InnerVars& inner) {
    if (first.grad == nullptr || second.grad == nullptr)
      return first.grad == nullptr && second.grad == nullptr;
    const llvm::StringRef between = single_output(*second.grad, "X@GRAD");
    const llvm::StringRef shape = single_input(*second.grad, "XShape");
    return first.op->type() == second.op->type() && inner.contains(shape) &&
           inner.block().find_var(single_input(*first.grad, "XShape")) != nullptr &&
           single_input(*first.grad, "Out@GRAD") == between &&
           inner.only_reader(between) == first.grad && inputs_unchanged(*second.grad, *first.grad);
  }

  // Gives the second op's XShape the dims of the first op's, and keeps only the first gradient op.
  static void join_gradients(const Move& first, const Move& second, const InnerVars& inner) {
    const Block& block = inner.block();
    Var& shape = *inner.block().find_var(single_input(*second.grad, "XShape"));
    const Var& seen = *block.find_var(single_input(*first.grad, "XShape"));
    const Dims dims(seen.dims().begin(), seen.dims().end());
    shape.set_dims(dims);
    first.grad->set_input("XShape", shape.name().str());
    first.grad->set_input("Out@GRAD", single_input(*second.grad, "Out@GRAD").str());
    inner.erase(*second.grad);
  }

  static bool changes_nothing(const Op& op, const PassContext& context) {
    if (is_transpose(op)) {
      const std::vector<int32_t> axes = list(op, "axis", context);
      for (size_t i = 0; i < axes.size(); ++i) {
        if (axes[i] != static_cast<int32_t>(i)) return false;
      }
      return true;
    }
    const Var* const x = op.block().find_var(single_input(op, "X"));
    const Var* const out = op.block().find_var(single_output(op, "Out"));
    if (x == nullptr || out == nullptr || x->dims().empty() || x->dims() != out->dims())
      return false;
    // one unknown dim can be computed from the others
    return llvm::count_if(x->dims(), [](int64_t dim) { return dim < 0; }) <= 1 &&
           llvm::none_of(x->dims(), [](int64_t dim) { return dim == 0; });
  }

  // True if the readers of the result find the same LoD in the input. Transposes drop it.
  static bool keeps_lod(const Op& op, const InnerVars& inner, const PassContext& context) {
    const llvm::StringRef x = single_input(op, "X");
    const auto source = ops::lod_source(context.registry, op, single_output(op, "Out"));
    return source && (*source == x || (source->empty() && has_no_lod(x, inner, context)));
  }

  // False for vars of which it is not known, such as those that are fed.
  static bool has_no_lod(llvm::StringRef name, const InnerVars& inner, const PassContext& context) {
    while (const Op* const writer = inner.writer(name)) {
      const auto source = ops::lod_source(context.registry, *writer, name);
      if (!source) return false;
      if (source->empty()) return true;
      name = *source;
    }
    return false;
  }

  // Readers of the result now read the input; readers of the input's gradient read the result's.
  static bool bypass(const Move& move, const InnerVars& inner) {
    Op& op = *move.op;
    const std::string x = single_input(op, "X").str();
    const std::string out = single_output(op, "Out").str();
    const Var* const from = inner.block().find_var(x);
    const Var* const to = inner.block().find_var(out);
    if (!inner.contains(out) || from == nullptr || from->kind() != VarKind::kLodTensor ||
        from->dtype() != to->dtype() || from->dims().size() != to->dims().size())
      return false;
    const auto readers = inner.block().readers_of(out);
    if (llvm::any_of(readers, [&](Op* reader) {
          return reader->writes(x) || !inputs_unchanged(op, *reader);
        }))
      return false;
    if (move.grad != nullptr && !bypass_gradient(*move.grad, inner)) return false;
    replace(inner, out, x);
    inner.erase(op);
    return true;
  }

  static bool bypass_gradient(Op& grad, const InnerVars& inner) {
    const std::string from = single_input(grad, "Out@GRAD").str();
    const std::string to = single_output(grad, "X@GRAD").str();
    if (!inner.contains(from) || !inner.contains(to)) return false;
    replace(inner, to, from);
    inner.erase(grad);
    return true;
  }

  // Makes readers of `out` read `x`.
  static void replace(const InnerVars& inner, const std::string& out, const std::string& x) {
    const auto readers = inner.block().readers_of(out);
    for (Op* const reader : llvm::SmallVector<Op*, 4>(readers.begin(), readers.end()))
      reader->replace_input(out, x);
  }

  std::vector<std::string> keep_;
};

}  // namespace

void add_fusion_join_moves(PassRegistry& registry) {
  registry.add(
      PassInfo("join-moves",
               "join two transposes or two reshapes in a row into one, and erase those that "
               "change nothing; the same for their gradients")
          .strings("keep", "vars whose value is needed after a run")
          .makes<JoinMoves>());
}

}  // namespace millrace::transpiler

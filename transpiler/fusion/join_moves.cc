#include <algorithm>
#include <optional>
#include <vector>

#include <llvm/ADT/STLExtras.h>
#include <llvm/ADT/SmallVector.h>

#include "ops/read_attr.h"
#include "transpiler/fusion/fusions.h"
#include "transpiler/fusion/inner_vars.h"

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

class JoinMoves final : public Pass {
 public:
  explicit JoinMoves(const PassOptions& options) : keep_(options.strings("keep")) {}

  llvm::StringRef name() const override { return "join-moves"; }

  StatusOr<bool> run(Program& program, PassContext& context) override {
    const InnerVars inner(program, keep_);
    bool changed = false;
    for (Op* const op : program.root().op_vector()) {
      if (!(is_transpose(*op) || is_reshape(*op)) || context.registry.find(op->type()) == nullptr ||
          !only_out_is_read(*op))
        continue;
      changed |= join(*op, inner, context);
      if (changes_nothing(*op, context) && bypass(*op, inner)) changed = true;
    }
    return changed;
  }

 private:
  static std::vector<int32_t> list(const Op& op, llvm::StringRef name, const PassContext& context) {
    return ops::read_attr<std::vector<int32_t>>(*context.registry.find(op.type()), op, name);
  }

  // XShape is for the gradient.
  static bool only_out_is_read(const Op& op) {
    const llvm::StringRef out = single_output(op, "Out");
    return !out.empty() && llvm::all_of(op.output_names(), [&](llvm::StringRef name) {
      return name == out || !op.block().has_readers(name);
    });
  }

  // Lets the op read what an op of its kind before it reads.
  static bool join(Op& op, const InnerVars& inner, const PassContext& context) {
    Op* const before = inner.writer(single_input(op, "X"));
    if (before == nullptr || is_transpose(*before) != is_transpose(op) ||
        is_reshape(*before) != is_reshape(op) || context.registry.find(before->type()) == nullptr ||
        !only_out_is_read(*before) || inner.only_reader(single_output(*before, "Out")) != &op ||
        !inputs_unchanged(*before, op))
      return false;
    if (is_transpose(op)) {
      const std::vector<int32_t> first = list(*before, "axis", context);
      std::vector<int32_t> axes = list(op, "axis", context);
      if (axes.size() != first.size()) return false;
      for (int32_t& axis : axes) {
        if (axis < 0 || static_cast<size_t>(axis) >= first.size()) return false;
        axis = first[static_cast<size_t>(axis)];
      }
      op.set_attr("axis", AttrValue::of_ints(std::move(axes)));
    } else if (llvm::is_contained(list(op, "shape", context), 0)) {
      return false;  // a dim of what comes in
    }
    op.set_input("X", single_input(*before, "X").str());
    inner.erase(*before);
    return true;
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
    // one unknown dim follows from the others
    return llvm::count_if(x->dims(), [](int64_t dim) { return dim < 0; }) <= 1 &&
           llvm::none_of(x->dims(), [](int64_t dim) { return dim == 0; });
  }

  // Readers of the result read what the op reads.
  static bool bypass(Op& op, const InnerVars& inner) {
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
    for (Op* const reader : llvm::SmallVector<Op*, 4>(readers.begin(), readers.end()))
      reader->replace_input(out, x);
    inner.erase(op);
    return true;
  }

  std::vector<std::string> keep_;
};

}  // namespace

void register_join_moves(PassRegistry& passes) {
  passes.add(
      PassInfo("join-moves",
               "make one op of two transposes or two reshapes in a row, and erase those that "
               "change nothing")
          .strings("keep", "vars whose value is wanted after a run")
          .makes<JoinMoves>());
}

}  // namespace millrace::transpiler

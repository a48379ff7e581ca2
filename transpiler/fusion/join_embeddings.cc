#include <optional>
#include <string>
#include <vector>

#include <llvm/ADT/STLExtras.h>
#include <llvm/ADT/SmallVector.h>

#include "framework/names.h"
#include "ops/read_attr.h"
#include "transpiler/fusion/inner_vars.h"
#include "transpiler/pass_registry.h"

namespace millrace::transpiler {
namespace {

constexpr const char* kPooled = "fused_embedding_seq_pool";
constexpr const char* kPooledGrad = "fused_embedding_seq_pool_grad";

// Settings that all tables of one op share.
struct Settings {
  std::string combiner;
  int64_t padding = -1;
  float pad_value = 0;
  bool sparse = false;

  bool operator==(const Settings&) const = default;
};

Settings settings_of(const Op& op, const ops::OpDef& def) {
  return {ops::read_attr<std::string>(def, op, "combiner"),
          ops::read_attr<int64_t>(def, op, "padding_idx"),
          ops::read_attr<float>(def, op, "pad_value"), ops::read_attr<bool>(def, op, "is_sparse")};
}

// An operand of the concat, and the op that pools it if there is one.
struct Part {
  std::string name;
  Op* pool = nullptr;
  Op* grad = nullptr;  // null without a gradient
};

struct Join {
  Op* concat = nullptr;
  Op* concat_grad = nullptr;  // null without a gradient
  std::vector<Part> parts;
  std::optional<Settings> settings;
};

bool is_matrix(const Var* var, DType dtype) {
  return var != nullptr && var->kind() == VarKind::kLodTensor && var->spec().has_tensor() &&
         var->dtype() == dtype && var->dims().size() == 2;
}

class JoinEmbeddings final : public Pass {
 public:
  explicit JoinEmbeddings(const PassOptions& options) : keep_(options.strings("keep")) {}

  llvm::StringRef name() const override { return "join-embeddings"; }

  StatusOr<bool> run(Program& program, PassContext& context) override {
    const InnerVars inner(program, keep_);
    llvm::SmallVector<Op*, 0> concats;
    for (Op& op : program.root().ops()) {
      if (op.type() == "concat") concats.push_back(&op);
    }
    bool changed = false;
    for (Op* const op : concats) {
      Join join;
      join.concat = op;
      if (!is_of_columns(*op, context) || !find_gradient(join, inner)) continue;
      if (find_parts(join, inner, context) < 2) continue;
      fuse(join, inner);
      changed = true;
    }
    return changed;
  }

 private:
  // True for a concat of matrices of one element type along the columns.
  static bool is_of_columns(const Op& op, const PassContext& context) {
    const ops::OpDef* const def = context.registry.find("concat");
    const Var* const out = op.block().find_var(single_output(op, "Out"));
    if (def == nullptr || out == nullptr || !out->spec().has_tensor() ||
        !is_matrix(out, out->dtype()) || !op.input("AxisTensor").empty())
      return false;
    const auto axis = ops::read_attr<int32_t>(*def, op, "axis");
    return (axis == 1 || axis == -1) && llvm::all_of(op.input("X"), [&](llvm::StringRef name) {
             return is_matrix(op.block().find_var(name), out->dtype());
           });
  }

  // The one concat_grad that reads the same operands, if there is one. False if there are several.
  static bool find_gradient(Join& join, const InnerVars& inner) {
    const auto operands = join.concat->input("X");
    for (const llvm::StringRef name : operands) {
      for (Op* const reader : inner.block().readers_of(name)) {
        if (reader->type() != "concat_grad" || reader->input("X") != operands) continue;
        if (join.concat_grad != nullptr && join.concat_grad != reader) return false;
        join.concat_grad = reader;
      }
    }
    return join.concat_grad == nullptr ||
           (!single_input(*join.concat_grad, "Out@GRAD").empty() &&
            join.concat_grad->input("AxisTensor").empty() &&
            join.concat_grad->output("X@GRAD").size() == operands.size());
  }

  // Returns the number of pooled parts.
  static size_t find_parts(Join& join, const InnerVars& inner, const PassContext& context) {
    const ops::OpDef* const def = context.registry.find(kPooled);
    size_t count = 0;
    const auto operands = join.concat->input("X");
    for (size_t i = 0; def != nullptr && i < operands.size(); ++i) {
      Part part{operands[i].str()};
      if (take(part, i, join, inner)) {
        const Settings own = settings_of(*part.pool, *def);
        if (!join.settings) join.settings = own;
        if (own == *join.settings) {
          ++count;
        } else {
          part.pool = part.grad = nullptr;
        }
      }
      join.parts.push_back(std::move(part));
    }
    return count;
  }

  // True if only the concat uses the pooled part, and its gradient is used only for the table.
  static bool take(Part& part, size_t index, const Join& join, const InnerVars& inner) {
    Op* const pool = inner.writer(part.name);
    if (pool == nullptr || pool->type() != kPooled || !inputs_unchanged(*pool, *join.concat) ||
        llvm::count(join.concat->input("X"), part.name) != 1)
      return false;
    for (const Op* const reader : inner.block().readers_of(part.name)) {
      if (reader != join.concat && reader != join.concat_grad) return false;
    }
    part.pool = pool;
    const llvm::StringRef grad = join.concat_grad == nullptr
                                     ? llvm::StringRef(names::kEmpty)
                                     : join.concat_grad->output("X@GRAD")[index];
    if (grad == names::kEmpty) return true;
    part.grad = inner.only_reader(grad);
    if (part.grad != nullptr && belongs(*part.grad, *pool, grad) &&
        may_run_at(*part.grad, *join.concat_grad))
      return true;
    part.pool = part.grad = nullptr;
    return false;
  }

  static bool belongs(const Op& grad, const Op& pool, llvm::StringRef incoming) {
    return grad.type() == kPooledGrad && single_input(grad, "Out@GRAD") == incoming &&
           single_input(grad, "W") == single_input(pool, "W") &&
           single_input(grad, "Ids") == single_input(pool, "Ids") &&
           !single_output(grad, "W@GRAD").empty();
  }

  // True if the gradient of a table may be computed at the position of the concat_grad, which is
  // earlier: its inputs are the same there, and no op reads the result in between.
  static bool may_run_at(const Op& grad, const Op& earlier) {
    const Block& block = grad.block();
    const auto between = [&](const Op* op) {
      return earlier.comes_before(*op) && op->comes_before(grad);
    };
    for (const char* const slot : {"W", "Ids"}) {
      if (is_written_elsewhere(block, single_input(grad, slot)) ||
          llvm::any_of(block.writers_of(single_input(grad, slot)), between))
        return false;
    }
    const llvm::StringRef result = single_output(grad, "W@GRAD");
    return block.writers_of(result).size() == 1 &&
           llvm::none_of(block.readers_of(result),
                         [&](const Op* op) { return op->comes_before(grad); });
  }

  static void set_inputs(Op& op, const Join& join, llvm::ArrayRef<std::string> tables,
                         llvm::ArrayRef<std::string> ids) {
    std::vector<std::string> matrices;
    std::vector<int32_t> parts;
    for (const Part& part : join.parts) {
      parts.push_back(part.pool == nullptr ? 0 : 1);
      if (part.pool == nullptr) matrices.push_back(part.name);
    }
    op.set_input("W", tables).set_input("Ids", ids);
    if (!matrices.empty()) op.set_input("X", llvm::ArrayRef(matrices));
    op.set_attr("parts", AttrValue::of_ints(std::move(parts)));
    op.set_string("combiner", join.settings->combiner);
    if (join.settings->padding != -1)
      op.set_attr("padding_idx", AttrValue::of_long(join.settings->padding));
    if (join.settings->pad_value != 0.0F) op.set_float("pad_value", join.settings->pad_value);
    if (join.settings->sparse) op.set_bool("is_sparse", true);
  }

  // The concat becomes the new op, and the concat_grad becomes its gradient op.
  static void fuse(const Join& join, const InnerVars& inner) {
    std::vector<std::string> tables;
    std::vector<std::string> ids;
    for (const Part& part : join.parts) {
      if (part.pool == nullptr) continue;
      tables.push_back(single_input(*part.pool, "W").str());
      ids.push_back(single_input(*part.pool, "Ids").str());
    }
    const std::string out = single_output(*join.concat, "Out").str();
    turn_into(*join.concat, "fused_embedding_seq_pool_concat");
    set_inputs(*join.concat, join, tables, ids);
    join.concat->set_output("Out", out);
    if (join.concat_grad != nullptr) fuse_gradient(join, tables, ids, inner);
    for (const Part& part : join.parts) {
      if (part.pool != nullptr) inner.erase(*part.pool);
    }
  }

  static void fuse_gradient(const Join& join, llvm::ArrayRef<std::string> tables,
                            llvm::ArrayRef<std::string> ids, const InnerVars& inner) {
    Op& op = *join.concat_grad;
    std::vector<std::string> of_tables;
    std::vector<std::string> of_matrices;
    std::vector<std::string> roles;  // pairs of a parameter and its gradient
    llvm::SmallVector<Var*, 4> gone;
    for (size_t i = 0; i < join.parts.size(); ++i) {
      const Part& part = join.parts[i];
      const std::string grad = op.output("X@GRAD")[i].str();
      if (part.pool == nullptr) {
        of_matrices.push_back(grad);
        continue;
      }
      of_tables.push_back(part.grad == nullptr ? std::string(names::kEmpty)
                                               : single_output(*part.grad, "W@GRAD").str());
      if (part.grad == nullptr) continue;
      const AttrValue* const role = part.grad->find_attr("op_role_var");
      if (role != nullptr && role->kind() == AttrKind::kStrings)
        roles.insert(roles.end(), role->strings().begin(), role->strings().end());
      gone.push_back(inner.block().find_var(grad));
    }
    const std::string incoming = single_input(op, "Out@GRAD").str();
    turn_into(op, "fused_embedding_seq_pool_concat_grad");
    set_inputs(op, join, tables, ids);
    op.set_input("Out@GRAD", incoming);
    op.set_output("W@GRAD", llvm::ArrayRef(of_tables));
    if (!of_matrices.empty()) op.set_output("X@GRAD", llvm::ArrayRef(of_matrices));
    if (!roles.empty()) op.set_strings("op_role_var", std::move(roles));
    for (const Part& part : join.parts) {
      if (part.grad != nullptr) inner.block().erase(*part.grad);
    }
    for (Var* const var : gone) inner.block().erase(*var);
  }

  std::vector<std::string> keep_;
};

}  // namespace

void add_fusion_join_embeddings(PassRegistry& registry) {
  registry.add(
      PassInfo("join-embeddings",
               "fuse the concatenation of pooled rows of several tables and other matrices "
               "into one op, and its gradient into another; run after fuse-embedding")
          .strings("keep", "vars whose value is needed after a run")
          .makes<JoinEmbeddings>());
}

}  // namespace millrace::transpiler

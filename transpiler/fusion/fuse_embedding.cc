#include <string>
#include <utility>
#include <vector>

#include <llvm/ADT/STLExtras.h>
#include <llvm/ADT/SmallVector.h>
#include <llvm/ADT/StringSwitch.h>

#include "ops/read_attr.h"
#include "transpiler/fusion/inner_vars.h"
#include "transpiler/pass_registry.h"

namespace millrace::transpiler {
namespace fuse_embedding {
namespace {

// Rows of a table that are looked up only to be pooled, and their gradients.
struct Pooled {
  Op* lookup = nullptr;
  Op* pool = nullptr;
  Op* pool_grad = nullptr;  // null without a gradient
  Op* lookup_grad = nullptr;
  llvm::StringRef combiner;
};

template <typename T>
T attr_of(const Op& op, const PassContext& context, llvm::StringRef name) {
  const ops::OpDef* const def = context.registry.find(op.type());
  return def == nullptr ? T{} : ops::read_attr<T>(*def, op, name);
}

bool is_lookup(const Op& op, const PassContext& context) {
  if (op.type() != "lookup_table" && op.type() != "lookup_table_v2") return false;
  const Var* const table = op.block().find_var(single_input(op, "W"));
  const Var* const rows = op.block().find_var(single_output(op, "Out"));
  if (table == nullptr || rows == nullptr || table->kind() != VarKind::kLodTensor ||
      !table->spec().has_tensor() || !rows->spec().has_tensor())
    return false;
  const bool is_float = table->dtype() == DType::kFloat32 || table->dtype() == DType::kFloat64;
  return is_float && table->dims().size() == 2 && rows->dims().size() == 2 &&
         !attr_of<bool>(op, context, "remote_prefetch") && !single_input(op, "Ids").empty();
}

llvm::StringRef combiner_of(const Op& pool, const PassContext& context) {
  return llvm::StringSwitch<llvm::StringRef>(attr_of<std::string>(pool, context, "pooltype"))
      .Case("SUM", "sum")
      .Case("AVERAGE", "average")
      .Case("SQRT", "sqrt")
      .Default({});
}

class FuseEmbedding final : public Pass {
 public:
  explicit FuseEmbedding(const PassOptions& options) : keep_(options.strings("keep")) {}

  llvm::StringRef name() const override { return "fuse-embedding"; }

  StatusOr<bool> run(Program& program, PassContext& context) override {
    const InnerVars inner(program, keep_);
    llvm::SmallVector<Op*, 0> lookups;
    for (Op& op : program.root().ops()) {
      if (is_lookup(op, context)) lookups.push_back(&op);
    }
    bool changed = false;
    for (Op* const op : lookups) {
      Pooled found;
      found.lookup = op;
      if (!complete(found, inner, context)) continue;
      fuse(found, inner, context);
      changed = true;
    }
    return changed;
  }

 private:
  static bool complete(Pooled& found, const InnerVars& inner, const PassContext& context) {
    const llvm::StringRef rows = single_output(*found.lookup, "Out");
    if (inner.writer(rows) != found.lookup) return false;
    for (Op* const reader : inner.block().readers_of(rows)) {
      const bool is_grad = reader->type() == "sequence_pool_grad";
      Op*& place = is_grad ? found.pool_grad : found.pool;
      if (place != nullptr || single_input(*reader, "X") != rows) return false;
      place = reader;
    }
    if (found.pool == nullptr || found.pool->type() != "sequence_pool") return false;
    found.combiner = combiner_of(*found.pool, context);
    return !found.combiner.empty() && is_unused(*found.pool, "MaxIndex", inner) &&
           inputs_unchanged(*found.lookup, *found.pool) && complete_gradient(found, inner);
  }

  // True if the gradient of the rows is used only for the gradient of the table.
  static bool complete_gradient(Pooled& found, const InnerVars& inner) {
    if (found.pool_grad == nullptr) return true;
    Op* const last = inner.only_reader(single_output(*found.pool_grad, "X@GRAD"));
    if (last == nullptr || last->type() != (found.lookup->type() + "_grad").str() ||
        single_input(*last, "Out@GRAD") != single_output(*found.pool_grad, "X@GRAD") ||
        single_input(*found.pool_grad, "Out@GRAD").empty() ||
        single_output(*last, "W@GRAD").empty())
      return false;
    for (const char* const slot : {"W", "Ids"}) {
      if (single_input(*last, slot) != single_input(*found.lookup, slot)) return false;
    }
    found.lookup_grad = last;
    return inputs_unchanged(*found.lookup, *last) && inputs_unchanged(*found.pool_grad, *last);
  }

  static bool is_unused(const Op& op, llvm::StringRef slot, const InnerVars& inner) {
    const llvm::StringRef name = single_output(op, slot);
    return name.empty() || (inner.contains(name) && !inner.block().has_readers(name));
  }

  // The pooling op becomes the new op; the gradient op of the table computes both gradients.
  static void fuse(const Pooled& found, const InnerVars& inner, const PassContext& context) {
    Op& pool = *found.pool;
    const std::string table = single_input(*found.lookup, "W").str();
    const std::string ids = single_input(*found.lookup, "Ids").str();
    const std::string out = single_output(pool, "Out").str();
    const auto pad_value = attr_of<float>(pool, context, "pad_value");
    const auto padding = attr_of<int64_t>(*found.lookup, context, "padding_idx");
    Op* const grad = found.lookup_grad;
    const bool sparse =
        attr_of<bool>(grad == nullptr ? *found.lookup : *grad, context, "is_sparse");
    const auto become = [&](Op& op, llvm::StringRef type) {
      turn_into(op, type);
      op.set_input("W", table).set_input("Ids", ids);
      op.set_string("combiner", found.combiner.str());
      if (padding != -1) op.set_attr("padding_idx", AttrValue::of_long(padding));
      if (pad_value != 0.0F) op.set_float("pad_value", pad_value);
      if (sparse) op.set_bool("is_sparse", true);
    };
    inner.erase_outputs(pool, out);
    become(pool, "fused_embedding_seq_pool");
    pool.set_output("Out", out);
    if (grad != nullptr) {
      const std::string incoming = single_input(*found.pool_grad, "Out@GRAD").str();
      const std::string result = single_output(*grad, "W@GRAD").str();
      become(*grad, "fused_embedding_seq_pool_grad");
      grad->set_input("Out@GRAD", incoming).set_output("W@GRAD", result);
      inner.erase(*found.pool_grad);
    }
    inner.erase(*found.lookup);
  }

  std::vector<std::string> keep_;
};

}  // namespace
}  // namespace fuse_embedding

void add_fusion_fuse_embedding(PassRegistry& registry) {
  registry.add(PassInfo("fuse-embedding",
                        "fuse the lookup of table rows and their sum per sequence into one op, and "
                        "their gradients into another")
                   .strings("keep", "vars whose value is needed after a run")
                   .makes<fuse_embedding::FuseEmbedding>());
}

}  // namespace millrace::transpiler

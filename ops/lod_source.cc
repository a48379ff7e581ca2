#include "ops/lod_source.h"

#include <memory>
#include <utility>

#include <llvm/ADT/DenseMap.h>

#include "framework/block.h"
#include "ops/infer_context.h"
#include "ops/infer_shapes.h"

namespace millrace::ops {
namespace {

Lod mark_of(NameId name) {
  return Lod({{0, static_cast<int64_t>(name)}});
}

// Each input has offsets that no other input has.
class MarkedContext final : public InferContext {
 public:
  using InferContext::InferContext;

  [[nodiscard]] const VarMeta* result(NameId name) const {
    const auto found = results_.find(name);
    return found == results_.end() ? nullptr : found->second.get();
  }

 protected:
  const VarMeta& meta(NameId name) const override {
    std::unique_ptr<VarMeta>& slot = inputs_[name];
    if (slot != nullptr) return *slot;
    slot = std::make_unique<VarMeta>();
    const Var* const var = op().block().find_var_recursive(op().name_of(name));
    if (var == nullptr) {
      slot->has_shape = false;
    } else {
      *slot = meta_of(var->spec());
    }
    slot->lod = mark_of(name);
    return *slot;
  }
  void set_meta(NameId name, VarMeta meta) override {
    results_[name] = std::make_unique<VarMeta>(std::move(meta));
  }

 private:
  mutable llvm::DenseMap<NameId, std::unique_ptr<VarMeta>> inputs_;
  llvm::DenseMap<NameId, std::unique_ptr<VarMeta>> results_;
};

}  // namespace

std::optional<llvm::StringRef> lod_source(const OpRegistry& registry, const Op& op,
                                          llvm::StringRef out) {
  const OpDef* const def = registry.find(op.type());
  const std::optional<NameId> name = op.program().names().find(out);
  if (def == nullptr || def->infer_fn() == nullptr || !name) return std::nullopt;
  MarkedContext context(*def, op);
  if (!def->infer_fn()(context).ok()) return std::nullopt;
  const VarMeta* const result = context.result(*name);
  if (result == nullptr) return std::nullopt;
  if (result->lod.empty()) return llvm::StringRef();
  for (const Slot& slot : op.inputs()) {
    for (const Arg& arg : slot.args) {
      if (result->lod == mark_of(arg.name)) return op.name_of(arg.name);
    }
  }
  return std::nullopt;
}

}  // namespace millrace::ops

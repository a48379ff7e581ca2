#include "ops/cost.h"

#include <limits>

#include <llvm/ADT/DenseMap.h>

#include "framework/block.h"
#include "ops/infer_context.h"
#include "ops/infer_shapes.h"

namespace millrace::ops {
namespace {

// Returns metas as declared. Cost functions only read metas, so set_meta() does nothing.
class DeclaredContext final : public InferContext {
 public:
  using InferContext::InferContext;

 protected:
  const VarMeta& meta(NameId name) const override {
    auto& slot = cache_[name];
    if (slot == nullptr) {
      slot = std::make_unique<VarMeta>();
      const Var* const var = op().block().find_var_recursive(op().name_of(name));
      if (var != nullptr) {
        *slot = meta_of(var->spec());
      } else {
        slot->has_shape = false;
      }
    }
    return *slot;
  }
  void set_meta(NameId name, VarMeta meta) override {
    *(cache_[name] = std::make_unique<VarMeta>()) = std::move(meta);
  }

 private:
  mutable llvm::DenseMap<NameId, std::unique_ptr<VarMeta>> cache_;
};

int64_t known_elements(llvm::ArrayRef<int64_t> dims) {
  int64_t count = 1;
  for (const int64_t dim : dims) {
    if (dim > 0 && __builtin_mul_overflow(count, dim, &count))
      return std::numeric_limits<int64_t>::max();
    if (dim == 0) return 0;
  }
  return count;
}

}  // namespace

double estimate_flops(const OpRegistry& registry, const Op& op) {
  const OpDef* const def = registry.find(op.type());
  if (def == nullptr) return 0;
  if (def->flops_fn() != nullptr) return def->flops_fn()(DeclaredContext(*def, op));
  double total = 0;
  for (const llvm::StringRef name : op.output_names()) {
    const Var* const var = op.block().find_var_recursive(name);
    if (var != nullptr && var->spec().has_tensor())
      total += static_cast<double>(known_elements(var->dims()));
  }
  return total;
}

int64_t tensor_bytes(const VarSpec& spec) {
  if (!spec.has_tensor()) return 0;
  int64_t bytes = 0;
  if (__builtin_mul_overflow(known_elements(spec.dims), dtype_size(spec.dtype), &bytes)) {
    return std::numeric_limits<int64_t>::max();
  }
  return bytes;
}

}  // namespace millrace::ops

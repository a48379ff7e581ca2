#include "executor/overlap/op_work.h"

#include <algorithm>

#include <llvm/ADT/DenseMap.h>

#include "framework/names.h"
#include "framework/program.h"
#include "kernels/cpu/layouts.h"
#include "ops/random_numbers.h"

namespace millrace::executor {
namespace op_work {
namespace {

using ops::VarMeta;

// Typical of current processors; only the ratios matter.
constexpr double kFlopsPerUs = 200e3;
constexpr double kBytesPerUs = 50e3;
constexpr double kLeast_us = 0.3;
// Cost of dividing an op among threads and waiting for the last of them.
constexpr double kHandOver_us = 3;
// Efficiency of each additional thread for a product or convolution.
constexpr double kShare = 0.85;
// Data that does not fit into the caches of the cores is limited by memory bandwidth, which all
// cores share.
constexpr int64_t kCache = int64_t{1} << 20U;
constexpr double kMemoryGain = 1.1;
// Shorter loops are not divided among threads.
constexpr double kSmall_us = 4;

// Facts about the vars of a block, as far as inference has proceeded.
class Metas {
 public:
  [[nodiscard]] const VarMeta& of(NameId name) const {
    const auto found = known_.find(name);
    return found == known_.end() ? unknown_ : found->second;
  }
  void see(const CompiledOp& compiled, Value* const* table) {
    size_t i = 0;
    for (const Slot& slot : compiled.op->inputs()) {
      for (const Arg& arg : slot.args) {
        const int32_t index = compiled.inputs[i++];
        if (index >= 0 && known_.find(arg.name) == known_.end())
          known_[arg.name] = meta_of_value(*table[index]);
      }
    }
  }
  void set(NameId name, VarMeta meta) { known_[name] = std::move(meta); }
  void forget(const Op& op) {
    for (const Slot& slot : op.outputs()) {
      for (const Arg& arg : slot.args) known_[arg.name] = unknown_;
    }
  }
  Metas() { unknown_.has_shape = false; }

 private:
  llvm::DenseMap<NameId, VarMeta> known_;
  VarMeta unknown_;
};

class AheadContext final : public ops::InferContext {
 public:
  AheadContext(const CompiledOp& compiled, const Metas& metas)
      : InferContext(*compiled.def, *compiled.op), metas_(metas) {}
  std::vector<std::pair<NameId, VarMeta>> results;

 protected:
  const VarMeta& meta(NameId name) const override { return metas_.of(name); }
  void set_meta(NameId name, VarMeta meta) override { results.emplace_back(name, std::move(meta)); }

 private:
  const Metas& metas_;
};

// -1 if it is not a dense tensor of known dims.
int64_t bytes_of(const VarMeta& meta) {
  if (!meta.has_shape || meta.kind != VarKind::kLodTensor) return -1;
  const int64_t count = ops::dims_product(meta.dims);
  return count < 0 ? -1 : count * dtype_size(meta.dtype);
}

// Total bytes of the inputs or outputs; -1 if one is not a dense tensor or has no dims before the
// run.
int64_t bytes_of(const Op& op, const ops::OpDef& def, llvm::ArrayRef<Slot> slots, bool outputs,
                 const Metas& metas) {
  int64_t total = 0;
  for (const Slot& slot : slots) {
    const ops::SlotDef* const declared =
        outputs ? def.find_output(op.name_of(slot.name)) : def.find_input(op.name_of(slot.name));
    // an optional argument may have no dims
    const bool optional = declared != nullptr && (declared->arity == ops::Arity::kOptional ||
                                                  declared->arity == ops::Arity::kAny);
    for (const Arg& arg : slot.args) {
      if (op.name_of(arg.name) == names::kEmpty) continue;
      const Var* const var = op.block().find_var_recursive(op.name_of(arg.name));
      if (var != nullptr && var->kind() != VarKind::kLodTensor) return -1;
      const int64_t bytes = bytes_of(metas.of(arg.name));
      if (bytes < 0 && !optional) return -1;
      total += std::max<int64_t>(bytes, 0);
    }
  }
  return total;
}

bool runs_alone(const CompiledOp& compiled, const kernels::KernelRegistry& kernels) {
  const llvm::StringRef type = compiled.op->type();
  return compiled.control || kernels.find(type) == nullptr || compiled.op->outputs().empty() ||
         compiled.def->has_side_effects() || compiled.def->capability() != ops::Capability::kPure ||
         ops::draws_random_numbers(*compiled.def) || kernels::keeps_private_layouts(type) ||
         type == "coalesce_tensor" || type.startswith("sync_");
}

OpWork work_of(double flops, int64_t bytes, int threads) {
  const double compute = flops / kFlopsPerUs;
  const double memory = static_cast<double>(bytes) / kBytesPerUs;
  OpWork work;
  work.alone = false;
  work.one_us = std::max({compute, memory, kLeast_us});
  const double lanes = 1 + kShare * (threads - 1);
  const double memory_lanes = bytes > kCache ? kMemoryGain : lanes;
  const double shared = std::max(compute / lanes, memory / memory_lanes) + kHandOver_us;
  work.all_us = work.one_us < kSmall_us ? work.one_us : std::min(shared, work.one_us);
  return work;
}

}  // namespace
}  // namespace op_work

std::vector<OpWork> estimate_work(llvm::ArrayRef<CompiledOp> compiled_ops, Value* const* table,
                                  const kernels::KernelRegistry& kernels, int threads) {
  using namespace op_work;
  std::vector<OpWork> result(compiled_ops.size());
  Metas metas;
  for (size_t s = 0; s < compiled_ops.size(); ++s) {
    const CompiledOp& compiled = compiled_ops[s];
    metas.see(compiled, table);
    AheadContext ctx(compiled, metas);
    const bool told = compiled.def->infer_fn() != nullptr && compiled.def->infer_fn()(ctx).ok();
    const ops::FlopsFn flops_fn = compiled.def->flops_fn();
    const double flops = told && flops_fn != nullptr ? flops_fn(ctx) : 0;
    metas.forget(*compiled.op);
    if (!told) continue;
    for (auto& [name, meta] : ctx.results) metas.set(name, std::move(meta));
    const int64_t in =
        bytes_of(*compiled.op, *compiled.def, compiled.op->inputs(), /*outputs=*/false, metas);
    const int64_t out =
        bytes_of(*compiled.op, *compiled.def, compiled.op->outputs(), /*outputs=*/true, metas);
    if (in >= 0 && out >= 0 && !runs_alone(compiled, kernels))
      result[s] = work_of(flops, in + out, threads);
  }
  return result;
}

}  // namespace millrace::executor

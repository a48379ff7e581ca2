#include "framework/op_attrs.h"
#include "transpiler/parallel/parallel.h"
#include "transpiler/pass_registry.h"

namespace millrace::transpiler {
namespace {

// Training ops only: stored statistics are the same on every device anyway.
bool uses_batch(const Op& op) {
  const bool test = get_attr_or<bool>(op, "is_test", false) &&
                    !get_attr_or<bool>(op, "trainable_statistics", false);
  return !test && !get_attr_or<bool>(op, "use_global_stats", false);
}

class SyncBatchNorm final : public Pass {
 public:
  llvm::StringRef name() const override { return "sync-batch-norm"; }

  // Ops of sub-blocks are not changed: devices may run those a different number of times.
  StatusOr<bool> run(Program& program, PassContext& /*context*/) override {
    bool changed = false;
    for (Op& op : program.root().ops()) {
      const bool is_grad = op.type() == "batch_norm_grad";
      if ((!is_grad && op.type() != "batch_norm") || !uses_batch(op)) continue;
      op.set_type(is_grad ? "sync_batch_norm_grad" : "sync_batch_norm");
      changed = true;
    }
    return changed;
  }
};

}  // namespace

void add_parallel_sync_batch_norm(PassRegistry& registry) {
  registry.add(PassInfo("sync-batch-norm",
                        "make batch_norm ops of block 0 compute their statistics over all devices")
                   .makes<SyncBatchNorm>());
}

}  // namespace millrace::transpiler

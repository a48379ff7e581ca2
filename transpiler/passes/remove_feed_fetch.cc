#include "transpiler/pass_registry.h"

namespace millrace::transpiler {
namespace {

class RemoveFeedFetch final : public Pass {
 public:
  llvm::StringRef name() const override { return "remove-feed-fetch"; }

  StatusOr<bool> run(Program& program, PassContext& /*context*/) override {
    bool changed = false;
    for (Block& block : program.blocks()) {
      for (Op* const op : block.op_vector()) {
        if (op->type() != "feed" && op->type() != "fetch") continue;
        block.erase(*op);
        changed = true;
      }
      for (Var& var : llvm::make_early_inc_range(block.vars())) {
        const bool holder =
            var.kind() == VarKind::kFeedMinibatch || var.kind() == VarKind::kFetchList;
        if (!holder || block.has_readers(var.name()) || block.has_writers(var.name())) continue;
        block.erase(var);
        changed = true;
      }
    }
    return changed;
  }
};

}  // namespace

void add_passes_remove_feed_fetch(PassRegistry& registry) {
  registry.add(PassInfo("remove-feed-fetch", "drop feed and fetch ops and their list vars")
                   .makes<RemoveFeedFetch>());
}

}  // namespace millrace::transpiler

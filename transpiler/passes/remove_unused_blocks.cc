#include "transpiler/pass_registry.h"
#include "transpiler/program_edit.h"

namespace millrace::transpiler {
namespace {

class RemoveUnusedBlocks final : public Pass {
 public:
  llvm::StringRef name() const override { return "remove-unused-blocks"; }

  StatusOr<bool> run(Program& program, PassContext& /*context*/) override {
    return erase_unowned_blocks(program) > 0;
  }
};

}  // namespace

void add_passes_remove_unused_blocks(PassRegistry& registry) {
  registry.add(PassInfo("remove-unused-blocks",
                        "drop blocks that no op owns any more and renumber the others")
                   .makes<RemoveUnusedBlocks>());
}

}  // namespace millrace::transpiler

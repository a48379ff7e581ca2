#include "transpiler/register_all.h"

#include "transpiler/passes/passes.h"

namespace millrace::transpiler {

void register_all_passes(PassRegistry& registry) {
  register_remove_dead_ops(registry);
}

}  // namespace millrace::transpiler

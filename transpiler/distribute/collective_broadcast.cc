#include "transpiler/distribute/collective_passes.h"
#include "transpiler/roles.h"

namespace millrace::transpiler {

Status broadcast_parameters(Program& main, PassContext& context, CollectivePlan& plan) {
  (void)main;
  if (plan.parameters.empty()) return Ok();
  Block& block = context.startup->root();
  int64_t count = 0;
  for (const std::string& param : plan.parameters) {
    if (plan.is_table(param)) continue;
    insert_on_ring(block, nullptr, "c_broadcast", param, count++ % plan.rings, role::kForward)
        .set_int("root", 0);
  }
  // A ring's stream is waited for through any var; the original takes the last parameter.
  for (int64_t ring = 0; ring < plan.rings; ++ring) {
    insert_on_ring(block, nullptr, "c_sync_comm_stream", plan.parameters.back(), ring,
                   role::kForward);
  }
  return Ok();
}

}  // namespace millrace::transpiler

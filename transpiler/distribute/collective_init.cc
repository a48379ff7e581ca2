#include "framework/names.h"
#include "transpiler/distribute/collective_passes.h"
#include "transpiler/distribute/op_builder.h"
#include "transpiler/roles.h"

namespace millrace::transpiler {
namespace {

// Rank 0 creates the id of a ring and sends it to the others; c_comm_init* joins the ring.
void append_ring(Block& block, const CollectivePlan& plan, int64_t ring) {
  const std::string id = names::comm_id(ring);
  VarSpec spec = VarSpec::shapeless(VarKind::kRaw);
  spec.persistable = true;
  block.declare(id, std::move(spec));

  const auto rank = static_cast<int32_t>(plan.rank);
  Op& make_id = block.append_op("c_gen_nccl_id").set_output("Out", id);
  make_id.set_int("rank", rank)
      .set_string("endpoint", plan.current_endpoint)
      .set_strings("other_endpoints", plan.others);
  finish(make_id, role::kForward);

  Op& join = block.append_op(plan.many_devices ? "c_comm_init_multitrainer" : "c_comm_init");
  join.set_input("X", id)
      .set_int(plan.many_devices ? "ntrainers" : "nranks",
               static_cast<int32_t>(plan.endpoints.size()))
      .set_int(plan.many_devices ? "trainer_id" : "rank", rank)
      .set_int("ring_id", static_cast<int32_t>(ring));
  finish(join, role::kForward);
}

}  // namespace

Status init_communicators(Program& main, PassContext& context, CollectivePlan& plan) {
  (void)main;
  Block& block = context.startup->root();
  if (plan.many_devices && plan.ranks == 1) {
    finish(block.append_op("c_comm_init_all"), role::kForward).set_int("ring_id", 0);
    return Ok();
  }
  if (plan.device_count == 0) return Ok();
  for (int64_t ring = 0; ring < plan.rings; ++ring) append_ring(block, plan, ring);
  return Ok();
}

}  // namespace millrace::transpiler

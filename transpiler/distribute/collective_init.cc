#include "framework/names.h"
#include "transpiler/distribute/collective_passes.h"
#include "transpiler/distribute/op_builder.h"
#include "transpiler/roles.h"

namespace millrace::transpiler {
namespace {

// Rank 0 creates the id of a ring and sends it to the others; c_comm_init* joins the ring.
void append_ring(Block& block, const CollectivePlan& plan, int64_t ring, bool many_devices) {
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

  Op& join = block.append_op(many_devices ? "c_comm_init_multitrainer" : "c_comm_init");
  join.set_input("X", id)
      .set_int(many_devices ? "ntrainers" : "nranks", static_cast<int32_t>(plan.endpoints.size()))
      .set_int(many_devices ? "trainer_id" : "rank", rank)
      .set_int("ring_id", static_cast<int32_t>(ring));
  finish(join, role::kForward);
}

class InitCommunicators final : public Pass {
 public:
  InitCommunicators(const CollectivePlan& plan, bool many_devices)
      : plan_(plan), many_devices_(many_devices) {}

  llvm::StringRef name() const override { return "collective-init-communicators"; }

  StatusOr<bool> run(Program& startup, PassContext& /*context*/) override {
    if (many_devices_ && plan_.ranks == 1) {
      finish(startup.root().append_op("c_comm_init_all"), role::kForward).set_int("ring_id", 0);
      return true;
    }
    if (plan_.device_count == 0) return false;
    for (int64_t ring = 0; ring < plan_.rings; ++ring) {
      append_ring(startup.root(), plan_, ring, many_devices_);
    }
    return true;
  }

 private:
  const CollectivePlan& plan_;
  bool many_devices_;
};

}  // namespace

std::unique_ptr<Pass> init_communicators(const CollectivePlan& plan) {
  return std::make_unique<InitCommunicators>(plan, false);
}

std::unique_ptr<Pass> init_device_communicators(const CollectivePlan& plan) {
  return std::make_unique<InitCommunicators>(plan, true);
}

}  // namespace millrace::transpiler

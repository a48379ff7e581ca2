#include "transpiler/distribute/collective_passes.h"
#include "transpiler/roles.h"

namespace millrace::transpiler {
namespace {

class BroadcastParameters final : public Pass {
 public:
  explicit BroadcastParameters(const CollectivePlan& plan) : plan_(plan) {}

  llvm::StringRef name() const override { return "collective-broadcast-parameters"; }

  StatusOr<bool> run(Program& startup, PassContext& /*context*/) override {
    if (plan_.parameters.empty()) return false;
    Block& block = startup.root();
    int64_t count = 0;
    for (const std::string& param : plan_.parameters) {
      if (plan_.is_table(param)) continue;
      insert_on_ring(block, nullptr, "c_broadcast", param, count++ % plan_.rings, role::kForward)
          .set_int("root", 0);
    }
    // A ring's stream is waited for through any var; the original takes the last parameter.
    for (int64_t ring = 0; ring < plan_.rings; ++ring) {
      insert_on_ring(block, nullptr, "c_sync_comm_stream", plan_.parameters.back(), ring,
                     role::kForward);
    }
    return true;
  }

 private:
  const CollectivePlan& plan_;
};

}  // namespace

std::unique_ptr<Pass> broadcast_parameters(const CollectivePlan& plan) {
  return std::make_unique<BroadcastParameters>(plan);
}

}  // namespace millrace::transpiler

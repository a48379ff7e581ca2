#include "framework/base/errors.h"
#include "framework/names.h"
#include "transpiler/distribute/geo_passes.h"
#include "transpiler/distribute/steps.h"
#include "transpiler/roles.h"

namespace millrace::transpiler {
namespace {

class GeoExtendStartup final : public Pass {
 public:
  llvm::StringRef name() const override { return "geo-extend-startup"; }

  StatusOr<bool> run(Program& main, PassContext& context) override {
    MILLRACE_ASSIGN_OR_RETURN(DistributionJob* const job, job_of(context, name()));
    if (context.startup == nullptr) return InvalidArgument("there is no startup program");
    MILLRACE_RETURN_IF_ERROR(extend_trainer_startup(main, context, *job));
    Block& block = context.startup->root();
    for (const ParamGrad& pair : job->pairs) {
      const std::string delta = names::delta(pair.param);
      block.declare(delta, main.root().find_var(delta)->spec());
    }
    const std::string done = job->startup_controls.create(block);
    block.declare(names::kParamInit, VarSpec::shapeless(VarKind::kLodTensor));
    Op& send = block.append_op("send").set_input("X", names::kParamInit).set_output("Out", done);
    send.set_strings("send_varnames", {names::kParamInit});
    finish(send, role::kForward);
    return true;
  }
};

}  // namespace

std::unique_ptr<Pass> geo_extend_startup() {
  return std::make_unique<GeoExtendStartup>();
}

}  // namespace millrace::transpiler

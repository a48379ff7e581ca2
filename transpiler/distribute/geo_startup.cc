#include "framework/names.h"
#include "transpiler/distribute/geo_passes.h"
#include "transpiler/distribute/pserver_passes.h"
#include "transpiler/roles.h"

namespace millrace::transpiler {

Status geo_extend_startup(Program& main, PassContext& context, DistributionJob& job) {
  MILLRACE_RETURN_IF_ERROR(extend_trainer_startup(main, context, job));
  Block& block = context.startup->root();
  for (const ParamGrad& pair : job.pairs) {
    const std::string delta = names::delta(pair.param);
    block.declare(delta, main.root().find_var(delta)->spec());
  }
  const std::string done = job.startup_controls.create(block);
  block.declare(names::kParamInit, VarSpec::shapeless(VarKind::kLodTensor));
  Op& send = block.append_op("send").set_input("X", names::kParamInit).set_output("Out", done);
  send.set_strings("send_varnames", {names::kParamInit});
  finish(send, role::kForward);
  return Ok();
}

}  // namespace millrace::transpiler

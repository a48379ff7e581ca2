#include "transpiler/distribute/op_builder.h"

#include "framework/names.h"

namespace millrace::transpiler {

std::string ControlVars::create(Block& block) {
  std::string name = names::control(next_++);
  block.declare(name, VarSpec::shapeless(VarKind::kLodTensor));
  return name;
}

Op& finish(Op& op, int32_t role) {
  return op.set_string("op_namescope", "/").set_int("op_role", role);
}

}  // namespace millrace::transpiler

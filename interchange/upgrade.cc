#include "interchange/upgrade.h"

#include "framework/base/errors.h"
#include "ops/verify.h"
#include "transpiler/pass_manager.h"
#include "transpiler/register_all.h"

namespace millrace::interchange {

Status upgrade_and_check(Program& program, const ops::OpRegistry& registry) {
  transpiler::PassRegistry passes;
  transpiler::register_all(passes);
  MILLRACE_ASSIGN_OR_RETURN(const transpiler::PassManager manager,
                            transpiler::PassManager::create(passes, "upgrade-program"));
  transpiler::PassContext context(registry);
  transpiler::PassManagerOptions options;
  options.error_note = transpiler::ErrorNote::kNothing;
  ops::VerifyOptions old_forms;
  old_forms.allow_old_forms = true;
  options.verify_old_forms = [&](const Program& checked) {
    return ops::check_program(registry, checked, old_forms);
  };
  options.verify = options.verify_old_forms;
  MILLRACE_RETURN_IF_ERROR(manager.run(program, context, options).status());
  return ops::check_program(registry, program);
}

}  // namespace millrace::interchange

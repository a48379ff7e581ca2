#include "jobs/distribute/made_program.h"

#include "framework/base/errors.h"
#include "framework/export.h"
#include "framework/text_form/print.h"
#include "ops/verify.h"

namespace millrace::jobs {

Status check_made_program(const ops::OpRegistry& registry, const Program& program,
                          const std::string& name) {
  Status status = ops::check_program(registry, program);
  if (status.ok()) return status;
  return Internal("generated a program that does not verify: {}", status.message())
      .at(status.location())
      .in_file(name);
}

void strip_debug(Program& program) {
  for (Block& block : program.blocks()) {
    for (Op& op : block.ops()) op.remove_attr("op_callstack");
  }
}

std::string made_program_bytes(const Program& program, bool as_text) {
  return as_text ? print_program(program) : export_program(program);
}

}  // namespace millrace::jobs

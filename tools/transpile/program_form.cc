#include "tools/transpile/program_form.h"

#include "framework/export.h"
#include "framework/text_form/print.h"

namespace millrace::tools {

std::string serialize(const Program& program, bool as_text) {
  return as_text ? print_program(program) : export_program(program);
}

bool form_is_text(const std::string& path, bool input_is_text) {
  if (path.empty() || path == "-") return input_is_text;
  const llvm::StringRef name(path);
  return name.endswith(".prog") || name.endswith(".txt");
}

std::string readable_text(const Program& program) {
  TextOptions options;
  options.callstack = false;
  return print_program(program, options);
}

void strip_debug(Program& program) {
  for (Block& block : program.blocks()) {
    for (Op& op : block.ops()) op.remove_attr("op_callstack");
  }
}

}  // namespace millrace::tools

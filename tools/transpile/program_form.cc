#include "tools/transpile/program_form.h"

#include <llvm/ADT/StringRef.h>

#include "framework/text_form/print.h"

namespace millrace::tools {

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

}  // namespace millrace::tools

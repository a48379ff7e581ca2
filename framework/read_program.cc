#include "framework/read_program.h"

#include "framework/base/file.h"
#include "framework/text_form/parse.h"

namespace millrace {
namespace {

// What a file that is no program may be.
std::string hint_for(const std::string& bytes, const std::string& file) {
  if (file.ends_with(".onnx") || bytes.starts_with('{'))
    return "ONNX files and PIR programs (.json) become programs by migrate --to program";
  return "is this a serialized ProgramDesc (__model__, .pdmodel)?";
}

}  // namespace

StatusOr<std::unique_ptr<Program>> read_program_bytes(std::string bytes, const std::string& file,
                                                      const ImportOptions& options) {
  if (is_text_form(bytes)) return parse_program(bytes, file, options);
  const auto held = std::make_shared<const std::string>(std::move(bytes));
  StatusOr<std::unique_ptr<Program>> program = import_program(held, file, options);
  if (program.ok() || program.status().code() != StatusCode::kInvalidProgram ||
      !program.status().message().starts_with("malformed program"))
    return program;
  return std::move(program).status().with_hint(hint_for(*held, file));
}

StatusOr<std::unique_ptr<Program>> read_program(const std::string& path,
                                                const ImportOptions& options) {
  MILLRACE_ASSIGN_OR_RETURN(std::string bytes, read_file(path, options.max_bytes));
  return read_program_bytes(std::move(bytes), path == "-" ? "standard input" : path, options);
}

}  // namespace millrace

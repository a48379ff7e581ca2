#include "framework/program_file.h"

#include "framework/base/file.h"
#include "framework/export.h"
#include "framework/read_program.h"
#include "framework/text_form/print.h"

namespace millrace {

StatusOr<std::shared_ptr<const Program>> load_program(const std::string& path) {
  MILLRACE_ASSIGN_OR_RETURN(std::unique_ptr<Program> program, read_program(path));
  return std::shared_ptr<const Program>(std::move(program));
}

StatusOr<std::shared_ptr<const Program>> parse_program_bytes(std::string bytes,
                                                             const std::string& name) {
  MILLRACE_ASSIGN_OR_RETURN(std::unique_ptr<Program> program,
                            read_program_bytes(std::move(bytes), name));
  return std::shared_ptr<const Program>(std::move(program));
}

std::string program_bytes(const Program& program) {
  return export_program(program);
}

std::string program_text(const Program& program) {
  return print_program(program);
}

Status save_program(const Program& program, const std::string& path, bool replace) {
  return write_file_atomically(path, export_program(program),
                               replace ? Replace::kYes : Replace::kNo);
}

}  // namespace millrace

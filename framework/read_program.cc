#include "framework/read_program.h"

#include "framework/base/file.h"
#include "framework/text_form/parse.h"

namespace millrace {

StatusOr<std::unique_ptr<Program>> read_program_bytes(std::string bytes, const std::string& file,
                                                      const ImportOptions& options) {
  if (is_text_form(bytes)) return parse_program(bytes, file, options);
  return import_program(std::make_shared<const std::string>(std::move(bytes)), file, options);
}

StatusOr<std::unique_ptr<Program>> read_program(const std::string& path,
                                                const ImportOptions& options) {
  MILLRACE_ASSIGN_OR_RETURN(std::string bytes, read_file(path, options.max_bytes));
  return read_program_bytes(std::move(bytes), path == "-" ? "standard input" : path, options);
}

}  // namespace millrace

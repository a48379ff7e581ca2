#include "framework/read_program.h"

#include "framework/base/errors.h"
#include "framework/base/file.h"

namespace millrace {

StatusOr<std::unique_ptr<Program>> read_program_bytes(std::string bytes, const std::string& file,
                                                      const ImportOptions& options) {
  constexpr std::string_view kTextForm = "# millrace program";
  if (std::string_view(bytes).starts_with(kTextForm))
    return Unimplemented("reading the text form of programs").in_file(file);
  return import_program(std::make_shared<const std::string>(std::move(bytes)), file, options);
}

StatusOr<std::unique_ptr<Program>> read_program(const std::string& path,
                                                const ImportOptions& options) {
  MILLRACE_ASSIGN_OR_RETURN(std::string bytes, read_file(path, options.max_bytes));
  return read_program_bytes(std::move(bytes), path == "-" ? "standard input" : path, options);
}

}  // namespace millrace

#include "ops/read_checked_program.h"

#include <utility>

#include "framework/read_program.h"
#include "ops/verify.h"

namespace millrace::ops {

StatusOr<std::unique_ptr<Program>> read_checked_program(const OpRegistry& registry,
                                                        const std::string& path,
                                                        const ImportOptions& options) {
  MILLRACE_ASSIGN_OR_RETURN(std::unique_ptr<Program> program, read_program(path, options));
  if (Status status = check_program(registry, *program); !status.ok())
    return std::move(status).in_file(path);
  return program;
}

}  // namespace millrace::ops

#pragma once

#include <memory>
#include <string>

#include "framework/base/status.h"
#include "framework/import.h"
#include "framework/program.h"

namespace millrace {

/// Reads a program from a file in either form; "-" is standard input.
///
/// The form is detected by content, never by file name: text starts with '#' (print_program()
/// begins with "# millrace program 1"), which a serialized ProgramDesc (__model__, .pb, .pdmodel)
/// never does. Errors: those of read_file(), import_program() and parse_program(), each with the
/// file name.
StatusOr<std::unique_ptr<Program>> read_program(const std::string& path,
                                                const ImportOptions& options = {});

/// Reads a program in either form from bytes in memory.
/// \param file  name for error messages
StatusOr<std::unique_ptr<Program>> read_program_bytes(std::string bytes, const std::string& file,
                                                      const ImportOptions& options = {});

}  // namespace millrace

#pragma once

#include <memory>
#include <string>

#include "framework/base/status.h"

namespace millrace {

class Program;

/// Reads a program from a file: a serialized ProgramDesc (__model__, .pb, .pdmodel) or the text
/// form, detected by content. Errors: kNotFound, kIo, kInvalidProgram with block, op and byte
/// offset.
StatusOr<std::shared_ptr<const Program>> load_program(const std::string& path);

/// Reads a program from bytes in memory. \param name  used in place of the file name in messages
StatusOr<std::shared_ptr<const Program>> parse_program_bytes(std::string bytes,
                                                             const std::string& name);

/// Serializes a program as a ProgramDesc. An unedited program produces the bytes it was read from.
std::string program_bytes(const Program& program);

/// The program in the text form, which load_program() can read.
std::string program_text(const Program& program);

/// Writes program_bytes() to a temporary file and renames it. Errors: kUsage if the file exists and
/// replace is false; kIo.
Status save_program(const Program& program, const std::string& path, bool replace = false);

}  // namespace millrace

#pragma once

#include <memory>
#include <string>

#include "framework/base/status.h"

namespace millrace {

class Program;

/// Reads a program from a file: a serialized ProgramDesc (__model__, .pb, .pdmodel) or the text
/// form, told by content. Errors: kNotFound, kIo, kInvalidProgram with block, op and byte offset.
StatusOr<std::shared_ptr<const Program>> load_program(const std::string& path);

/// Reads a program from bytes in memory. \param name  stands for the file in messages
StatusOr<std::shared_ptr<const Program>> parse_program_bytes(std::string bytes,
                                                             const std::string& name);

/// Serializes a program as a ProgramDesc; a program that was not edited gives the bytes it was read
/// from.
std::string program_bytes(const Program& program);

/// The text form, which load_program() reads back.
std::string program_text(const Program& program);

/// Writes program_bytes() to a file by rename. Errors: kUsage if it exists and replace is false,
/// kIo.
Status save_program(const Program& program, const std::string& path, bool replace = false);

}  // namespace millrace

#pragma once

#include <string>

#include "framework/base/status.h"
#include "framework/program.h"
#include "ops/registry.h"

/// What happens to a program that was generated before it is written. Thread-safety: one thread for
/// each program.
namespace millrace::jobs {

/// Verifies a program that millrace generated: an error is a bug of millrace.
/// Errors: kInternal with the location of the op. \param name  the program, as file of the message
Status check_made_program(const ops::OpRegistry& registry, const Program& program,
                          const std::string& name);

/// Drops op_callstack from every op.
void strip_debug(Program& program);

/// The text form of a program, or a serialized ProgramDesc.
std::string made_program_bytes(const Program& program, bool as_text);

}  // namespace millrace::jobs

#pragma once

#include <functional>
#include <string>

#include "framework/base/status.h"
#include "framework/program.h"
#include "ops/registry.h"

namespace millrace::tools {

/// Serializes a program to text form or to a binary ProgramDesc.
std::string serialize(const Program& program, bool as_text);

/// Returns true if a file has text form, by its name: *.prog and *.txt are text, others binary.
/// Standard output ("" and "-") has the form of the input.
bool form_is_text(const std::string& path, bool input_is_text);

/// Text form for users: without op_callstack.
std::string readable_text(const Program& program);

/// Drops op_callstack from every op.
void strip_debug(Program& program);

}  // namespace millrace::tools

#pragma once

#include <functional>
#include <string>

#include "framework/base/status.h"
#include "framework/program.h"
#include "ops/registry.h"

namespace millrace::tools {

/// The program as a file: text form, or serialized ProgramDesc.
std::string serialize(const Program& program, bool as_text);

/// The form of a file by its name: text for *.prog and *.txt, else binary. Standard output ("" and
/// "-") has the form of the input.
bool form_is_text(const std::string& path, bool input_is_text);

/// Text form for people: without op_callstack.
std::string readable_text(const Program& program);

/// Drops op_callstack from every op.
void strip_debug(Program& program);

}  // namespace millrace::tools

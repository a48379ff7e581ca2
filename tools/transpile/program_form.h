#pragma once

#include <string>

#include "framework/program.h"

namespace millrace::tools {

/// Returns true if a file has text form, by its name: *.prog and *.txt are text, others binary.
/// Standard output ("" and "-") has the form of the input.
bool form_is_text(const std::string& path, bool input_is_text);

/// Text form for users: without op_callstack.
std::string readable_text(const Program& program);

}  // namespace millrace::tools

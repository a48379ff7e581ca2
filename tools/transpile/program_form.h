#pragma once

#include <functional>
#include <string>

#include "framework/base/status.h"
#include "framework/program.h"
#include "ops/registry.h"

namespace millrace::tools {

/// The program as a file: text form, or serialized ProgramDesc.
std::string serialize(const Program& program, bool as_text);

/// Text form for people: without op_callstack.
std::string readable_text(const Program& program);

/// Drops op_callstack from every op.
void strip_debug(Program& program);

}  // namespace millrace::tools

#pragma once

#include <string>

#include "framework/program.h"

namespace millrace {

/// What json_view() includes.
struct JsonOptions {
  bool attrs = true;      ///< attributes of ops
  bool callstack = true;  ///< the attribute op_callstack
};

/// The program as a JSON document (schema millrace.program, version 1): version, sizes, blocks with
/// vars and ops, slots and attributes as lists in file order. For other programs to read; millrace
/// does not read it back.
std::string json_view(const Program& program, const std::string& file,
                      const JsonOptions& options = {});

}  // namespace millrace

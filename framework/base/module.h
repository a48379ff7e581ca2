#pragma once

#include <string>
#include <string_view>

#include "framework/base/status.h"

namespace millrace {

/// Parts of millrace that need large libraries stand in files of their own, which are loaded when a
/// job needs them: <library folder>/millrace/<name>.so. Objects of C++ cross the border, so a
/// module must come from the build that loads it.
/// Source: docs/decisions/0011-modules.md.

/// What a module exports, with C linkage and the name kModuleEntry.
/// \param functions  receives a table of functions, whose type belongs to the module's name
/// \returns build_stamp() of the module
using ModuleEntry = const char*(const void** functions);
inline constexpr const char* kModuleEntry = "millrace_module";

/// Version, commit, build type and compiler. Static.
const char* build_stamp();

/// The table of a module. It is looked for relative to the file that this very function stands in,
/// the program or the shared library; once loaded it stays until the process ends. Asking again
/// costs some microseconds.
/// Errors: kNotFound for a missing file; kIo where it, or a library that it needs, cannot be
/// loaded; kInvalidData for a file of another build. All name the file. Thread-safety: concurrent
/// calls.
StatusOr<const void*> load_module(std::string_view name);

template <typename Functions>
StatusOr<const Functions*> load_functions(std::string_view name) {
  MILLRACE_ASSIGN_OR_RETURN(const void* const functions, load_module(name));
  return static_cast<const Functions*>(functions);
}

}  // namespace millrace

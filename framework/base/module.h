#pragma once

#include <string>
#include <string_view>

#include "framework/base/status.h"

namespace millrace {

/// Features that need large libraries are built as modules: files of their own that are loaded on
/// demand, at <library folder>/millrace/<name>.so. C++ objects are passed between the program and a
/// module, so a module must come from the same build as the program that loads it.
/// Source: docs/decisions/0011-modules.md.

/// The function that a module exports, with C linkage and the name kModuleEntry.
/// \param functions  receives a table of functions; its type depends on the module's name
/// \returns build_stamp() of the module
using ModuleEntry = const char*(const void** functions);
inline constexpr const char* kModuleEntry = "millrace_module";

/// Version, commit, build type and compiler. Static.
const char* build_stamp();

/// Loads a module and returns its table of functions. The path is relative to the file that
/// contains this function (the program or the shared library). A loaded module stays loaded until
/// the process ends; a repeated call takes some microseconds.
/// Errors: kNotFound for a missing file; kIo if it, or a library that it needs, cannot be loaded;
/// kInvalidData for a file that is not a module or is from another build. All errors name the file.
/// Thread-safety: concurrent calls.
StatusOr<const void*> load_module(std::string_view name);

/// The same with the type of the table, which the module's header declares (kernels/gpu/module.h).
template <typename Functions>
StatusOr<const Functions*> load_functions(std::string_view name) {
  MILLRACE_ASSIGN_OR_RETURN(const void* const functions, load_module(name));
  return static_cast<const Functions*>(functions);
}

}  // namespace millrace

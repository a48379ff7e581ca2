#pragma once

#include <string>
#include <vector>

#include "framework/program.h"
#include "framework/tensor/scope.h"

/// Parameter files that have no value for some vars, which then keep the one they have.
namespace millrace::io {

/// The persistable vars of a program that an npz archive has no value for, sorted; empty for other
/// files and for folders, which must have all of them.
std::vector<std::string> lacking_vars(const std::string& path, const Program& program);

/// Those of lacking_vars() that have a value in the scope, which loading the file leaves. If an op
/// reads another one, its run ends with an error.
std::vector<std::string> kept_vars(const std::string& path, const Program& program,
                                   const Scope& scope);

/// At most ten names, and the number of the others.
std::string short_list(const std::vector<std::string>& names);

/// A warning that these vars keep the values of the startup program.
std::string lacking_warning(const std::string& path, const std::vector<std::string>& names);

}  // namespace millrace::io

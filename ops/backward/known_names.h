#pragma once

#include <set>
#include <string>
#include <vector>

#include "framework/base/status.h"
#include "framework/program.h"

/// Checks of names that users give: a misspelt one would silently have no effect.
namespace millrace::ops::backward {

/// Where a name must be declared.
enum class DeclaredIn { kRoot, kAnyBlock };

/// \param option  what the name was given as, for the message
/// Errors: kInvalidArgument naming option and var, with the nearest name as a hint.
Status require_declared(const Program& program, const std::string& name, DeclaredIn where,
                        const std::string& option);

/// Checks parameters, and vars without gradient, of a call of append_backward(). Errors: as above.
Status check_names(const Program& program, const std::vector<std::string>& parameters,
                   const std::set<std::string>& no_grad);

}  // namespace millrace::ops::backward

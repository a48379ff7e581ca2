#pragma once

#include <string_view>
#include <vector>

#include "executor/parallel/options.h"
#include "framework/base/status.h"

namespace millrace::executor {

/// Sets a field of a strategy by its name in the original; `_dry_run` is `dry_run`.
///
/// \param value  true or false, a number, a word of an enumeration (all_reduce, reduce; average,
///               one, customized, weighted), or words separated by commas
/// Errors: kInvalidArgument for an unknown field (with the nearest one as a hint) or a value that
/// it does not take.
Status set_field(BuildStrategy& strategy, std::string_view name, std::string_view value);
Status set_field(ExecutionStrategy& strategy, std::string_view name, std::string_view value);

/// Names of all fields, in the order of their declaration.
std::vector<std::string_view> build_strategy_fields();
std::vector<std::string_view> execution_strategy_fields();

}  // namespace millrace::executor

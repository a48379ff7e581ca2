#pragma once

#include <functional>
#include <string>
#include <vector>

#include "framework/base/status.h"
#include "ops/construct/builder.h"

namespace millrace::ops {

/// Appends a conditional_block. body() appends ops to its new sub-block, which runs if `condition`,
/// a var with one bool, is true. Outer vars that the block reads become Input; `outputs` are the
/// outer vars that it writes.
/// Errors: those of body() and of Builder::append().
Status add_conditional_block(Builder& builder, const std::string& condition,
                             const std::vector<std::string>& outputs,
                             const std::function<Status()>& body);

/// Appends ops for a value that one of two branches computes: two conditional_block and a
/// select_input. Each branch function appends ops to a new sub-block and returns the name of a var
/// of that block or an outer one.
///
/// \returns the name of the selected value
///
/// Source: spec/backward.md section 8, and section 6 for the gradient.
StatusOr<std::string> add_choice(Builder& builder, const std::string& condition,
                                 const std::function<StatusOr<std::string>()>& if_true,
                                 const std::function<StatusOr<std::string>()>& if_false);

}  // namespace millrace::ops

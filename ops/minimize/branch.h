#pragma once

#include <functional>
#include <string>
#include <vector>

#include "framework/base/status.h"
#include "ops/construct/builder.h"

namespace millrace::ops {

/// Appends conditional_block: body() appends to a block of its own, which runs if the one bool in
/// condition is true. What the block reads of outside becomes Input; outputs are vars of outside
/// that it writes.
Status add_conditional_block(Builder& builder, const std::string& condition,
                             const std::vector<std::string>& outputs,
                             const std::function<Status()>& body);

/// A value that one of two branches computes.
///
/// Appends two conditional_block and a select_input. A branch appends to a block of its own and
/// returns the name of a var there or outside. \returns the name of the selected value
///
/// Source: spec/backward.md section 8, and section 6 for the gradient.
StatusOr<std::string> add_choice(Builder& builder, const std::string& condition,
                                 const std::function<StatusOr<std::string>()>& if_true,
                                 const std::function<StatusOr<std::string>()>& if_false);

}  // namespace millrace::ops

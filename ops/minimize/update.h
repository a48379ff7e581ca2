#pragma once

#include <string>
#include <vector>

#include "framework/base/status.h"
#include "ops/construct/builder.h"
#include "ops/minimize/gradients.h"
#include "ops/minimize/options.h"

namespace millrace::ops {

/// Declares what the optimizer keeps, in order of the pairs, and appends one update op a pair, then
/// the ops that bring powers forward.
///
/// \param rate  var that holds the learning rate
/// \returns the appended ops
/// Source: spec/backward.md section 8, step 3.
StatusOr<std::vector<Op*>> append_updates(Builder& builder, const MinimizeOptions& options,
                                          const std::string& rate,
                                          const std::vector<ParamGrad>& pairs);

}  // namespace millrace::ops

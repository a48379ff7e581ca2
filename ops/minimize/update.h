#pragma once

#include <string>
#include <vector>

#include "framework/base/status.h"
#include "ops/construct/builder.h"
#include "ops/minimize/gradients.h"
#include "ops/minimize/options.h"

namespace millrace::ops {

/// Declares the optimizer's state in order of the pairs, appends one update op per pair, and then
/// the ops that update powers of beta1 (PowerUpdate).
///
/// \param rate  var that holds the learning rate
/// \returns the appended ops
/// Source: spec/backward.md section 8, step 3.
StatusOr<std::vector<Op*>> append_updates(Builder& builder, const MinimizeOptions& options,
                                          const std::string& rate,
                                          const std::vector<ParamGrad>& pairs);

}  // namespace millrace::ops

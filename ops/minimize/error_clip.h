#pragma once

#include <functional>
#include <map>
#include <string>

#include "framework/base/status.h"
#include "framework/program.h"
#include "ops/minimize/options.h"

namespace millrace::ops {

/// Errors: kInvalidArgument with the name of a var whose min exceeds its max.
Status check_error_clips(const std::map<std::string, ErrorClip>& clips);

/// Returns a BackwardRequest::after_append that appends an in-place `clip` after every op that
/// writes the complete gradient of a var in the map. The terms of a sum are not clipped, only the
/// sum. In a gradient block, the gradient computed there is clipped, and later the sum outside as
/// well.
/// Source: spec/backward.md section 7.
std::function<void(Block& block, Op& op)> clip_errors(std::map<std::string, ErrorClip> clips);

}  // namespace millrace::ops

#pragma once

#include <functional>
#include <map>
#include <string>

#include "framework/base/status.h"
#include "framework/program.h"
#include "ops/minimize/options.h"

namespace millrace::ops {

/// Error: kInvalidArgument naming a var whose min exceeds its max.
Status check_error_clips(const std::map<std::string, ErrorClip>& clips);

/// A BackwardRequest::after_append that appends `clip`, in place, after every op that writes the
/// whole gradient of a var in the map. Parts of a gradient are not clipped, their sum is; inside a
/// gradient block its share is, and then the sum outside as well.
/// Source: spec/backward.md section 7.
std::function<void(Block& block, Op& op)> clip_errors(std::map<std::string, ErrorClip> clips);

}  // namespace millrace::ops

#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "framework/base/status.h"

namespace millrace::tools {

/// The rate of a scheduler object after so many steps.
using RateAtStep = std::function<float(int64_t step)>;

/// Reads a schedule as configurations of --minimize state it ("exponential_scheduler",
/// "natural_exp_scheduler", "inverse_time_scheduler", "noam_scheduler"), which
/// transpile-program --fleet leaves beside a worker's program (schedule.json).
/// Errors: kInvalidArgument naming the member.
StatusOr<RateAtStep> parse_rate_schedule(const std::string& text);

}  // namespace millrace::tools

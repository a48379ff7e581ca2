#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "framework/base/status.h"

namespace millrace::jobs {

/// The learning rate of a scheduler object after the given number of steps.
using RateAtStep = std::function<float(int64_t step)>;

/// Parses a schedule in the form of the configuration of --minimize ("exponential_scheduler",
/// "natural_exp_scheduler", "inverse_time_scheduler", "noam_scheduler"). transpile-program --fleet
/// writes it as schedule.json into the folder of a worker's program.
/// Errors: kInvalidArgument naming the member.
StatusOr<RateAtStep> parse_rate_schedule(const std::string& text);

}  // namespace millrace::jobs

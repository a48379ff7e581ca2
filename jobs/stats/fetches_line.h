#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "executor/executor.h"

namespace millrace::jobs {

/// The fetches of a step for the log: "step 100: loss = 0.5, prob = 0.25, 0.75, ... (f32 [512,
/// 2])". Of tensors of float32, float64 and int64 the first four elements are shown. \param step
/// number of steps that are done
std::string fetches_line(int64_t step, const std::vector<std::string>& fetches,
                         const executor::NamedValues& values);

}  // namespace millrace::jobs

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "executor/executor.h"

namespace millrace::jobs {

/// "0.5, 0.25, ...": the first elements of a tensor in row-major order; those of bool are 0 and 1.
/// Empty for types that are not numbers, such as complex ones, and for a tensor without elements.
std::string first_elements(const Tensor& tensor, size_t count);

/// The fetches of a step for the log: "step 100: loss = 0.5, prob = 0.25, 0.75, ... (f32 [512,
/// 2])", with the first four elements of each tensor. \param step  number of steps that are done
std::string fetches_line(int64_t step, const std::vector<std::string>& fetches,
                         const executor::NamedValues& values);

}  // namespace millrace::jobs

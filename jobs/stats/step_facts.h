#pragma once

#include <cstdint>
#include <optional>

#include "executor/executor.h"

namespace millrace::jobs {

/// The value of a dense float tensor with one element, or the mean if it has one element per
/// device; nothing for other values.
std::optional<double> loss_of(const Value& value, int devices = 1);

/// Number of examples of the first fed tensor, in order of names: rows, or sequences of the first
/// level of its LoD; 1 if there is none.
int64_t batch_of(const executor::NamedValues& feeds);

}  // namespace millrace::jobs

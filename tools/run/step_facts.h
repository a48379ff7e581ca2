#pragma once

#include <cstdint>
#include <optional>

#include "executor/executor.h"

namespace millrace::tools {

/// The one number of a dense float of one element, or the mean of one a device; nothing for other
/// values.
std::optional<double> loss_of(const Value& value, int devices = 1);

/// Rows of the first dense feed, in order of names; 1 if there is none.
int64_t batch_of(const executor::NamedValues& feeds);

}  // namespace millrace::tools

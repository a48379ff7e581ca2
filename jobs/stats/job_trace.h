#pragma once

#include <string>
#include <vector>

#include "framework/base/status.h"

namespace millrace::jobs {

/// Merges the traces of the trainers and servers of one job into one Chrome trace, with one process
/// each, on one time axis. The clocks of their machines must agree.
/// \param texts  traces of CallTrace (ps/transport/tracing.h)
/// Errors: kInvalidData for a text that is not such a trace, with its index in the list.
StatusOr<std::string> join_traces(const std::vector<std::string>& texts);

}  // namespace millrace::jobs

#pragma once

#include <string>
#include <vector>

#include "framework/base/status.h"

namespace millrace::tools {

/// Joins the traces that trainers and servers of one job have written into one Chrome trace: a
/// process each, on one time axis. The clocks of their machines must agree.
/// \param texts  traces of CallTrace (ps/transport/tracing.h)
/// Errors: kInvalidData for a text that is none, with its place in the list.
StatusOr<std::string> join_traces(const std::vector<std::string>& texts);

}  // namespace millrace::tools

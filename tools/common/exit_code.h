#pragma once

#include "framework/base/exit_code.h"

namespace millrace::tools {

/// Exit codes that do not come from a Status.
inline constexpr int kDone = 0;
/// The tool worked, and the result is negative: programs differ, or a check failed.
inline constexpr int kAnswerIsNo = 1;

}  // namespace millrace::tools

#pragma once

#include "framework/base/exit_code.h"

namespace millrace::tools {

/// Exit codes that are not made from a Status.
inline constexpr int kDone = 0;
/// The question was answered "no": programs differ, a check failed.
inline constexpr int kAnswerIsNo = 1;

}  // namespace millrace::tools

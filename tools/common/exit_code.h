#pragma once

#include "framework/base/status.h"

namespace millrace::tools {

/// Exit codes that are not made from a Status.
inline constexpr int kDone = 0;
/// The question was answered "no": programs differ, a check failed.
inline constexpr int kAnswerIsNo = 1;

/// The exit code of every tool for a failure of this kind: usage 2, bad input 3, execution 4,
/// distributed 5, resource 6, unsupported 7, bug 70.
int exit_code(StatusCode code);

}  // namespace millrace::tools

#pragma once

#include "framework/base/status.h"

namespace millrace {

/// The exit code of every tool for a status code. Functions of the C interface return it too.
/// Success 0, usage 2, bad input 3, execution 4, distributed 5, resource 6, unsupported 7, internal
/// error 70.
int exit_code(StatusCode code);

}  // namespace millrace

#pragma once

#include "framework/base/status.h"

namespace millrace {

/// The exit code of every tool, and the result of the functions of the C interface, for an outcome
/// of this kind: done 0, usage 2, bad input 3, execution 4, distributed 5, resource 6, unsupported
/// 7, bug 70.
int exit_code(StatusCode code);

}  // namespace millrace

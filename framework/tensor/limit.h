#pragma once

#include <cstdint>

#include "framework/base/status.h"

namespace millrace {

/// The most bytes that one tensor of this process may take. It is a fact of the process, as the
/// memory is that it stands for, so that every reader, op and server obeys the same one.
/// Thread-safe.
///
/// \returns three quarters of the machine's memory (or of what the control group of the process
///     may use) until set_max_tensor_bytes() says otherwise
int64_t max_tensor_bytes();
/// \param bytes  0 stands for the share of the memory
void set_max_tensor_bytes(int64_t bytes);

/// Asked before memory is taken, not where memory suffices. Errors: kResource with both numbers.
Status check_tensor_bytes(int64_t bytes);

}  // namespace millrace

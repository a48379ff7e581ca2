#pragma once

#include <cstdint>

#include "framework/base/status.h"

namespace millrace {

/// Maximum number of bytes of one tensor in this process. The limit is process-wide, because memory
/// is, and holds for every reader, op and server. Thread-safety: any thread.
///
/// \returns three quarters of the machine's memory (or of the memory limit of the process's
///     control group) unless set_max_tensor_bytes() has set another limit
int64_t max_tensor_bytes();
/// \param bytes  the new limit; 0 restores the default
void set_max_tensor_bytes(int64_t bytes);

/// Checks a size before memory is allocated; not called if existing memory suffices. Errors:
/// kResource with the size and the limit.
Status check_tensor_bytes(int64_t bytes);

}  // namespace millrace

#pragma once

#include <cstddef>
#include <functional>

#include "framework/base/status.h"

namespace millrace::jobs {

/// Runs body(0) .. body(count - 1) on up to `threads` threads and waits for all of them. After a
/// failure no further index is started; the failure with the smallest index is returned.
Status parallel_for(size_t count, int threads, const std::function<Status(size_t)>& body);

}  // namespace millrace::jobs

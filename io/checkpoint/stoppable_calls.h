#pragma once

#include <atomic>
#include <memory>

#include "io/checkpoint/file_calls.h"

namespace millrace::io {

/// File calls that can be stopped. After the stop, creating, writing, flushing, renaming and
/// reading fail with stopped_error() (kResource). Removing still works, so that the caller can
/// clean up.
/// \param stop  must outlive the calls
std::shared_ptr<FileCalls> stoppable(std::shared_ptr<FileCalls> calls,
                                     const std::atomic<bool>& stop);

/// The error that stopped calls return.
Status stopped_error();

}  // namespace millrace::io

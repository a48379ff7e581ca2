#pragma once

#include <atomic>
#include <memory>

#include "io/checkpoint/file_calls.h"

namespace millrace::io {

/// File calls that can be told to stop: from then on nothing is created, written, flushed, renamed
/// or read, which is an error (kResource: stopped). Removing goes on, so that whoever gets the
/// error can clean up. \param stop  must outlive the calls
std::shared_ptr<FileCalls> stoppable(std::shared_ptr<FileCalls> calls,
                                     const std::atomic<bool>& stop);

/// The error.
Status stopped_error();

}  // namespace millrace::io

#pragma once

#include <functional>
#include <memory>
#include <string>

#include "framework/base/status.h"
#include "io/multi_slot/line_stream.h"

namespace millrace::io {

/// Sends bytes through a command: it reads them from its standard input, and what it writes to its
/// standard output is the result. It runs in bash with the option pipefail, in a process group of
/// its own, with the environment of this process.
///
/// The command ends with the result: at its end the bytes are complete only if it has ended with
/// status 0. A command that ends without reading all of its input is not an error by itself. If the
/// result is destroyed before, the process group is killed.
///
/// \param from     decompressed bytes, read as the command takes them
/// \param stopped  called several times a second while the command is awaited; true ends the read
///                 with an error
/// Errors: kIo if the command cannot be started. read() of the result: those of `from`; kIo if the
/// command ends with another status than 0 or by a signal, with the end of what it has written to
/// standard error.
StatusOr<std::unique_ptr<InputBytes>> pipe_through(const std::string& command,
                                                   std::unique_ptr<InputBytes> from,
                                                   std::function<bool()> stopped);

}  // namespace millrace::io

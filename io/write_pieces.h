#pragma once

#include <span>
#include <string_view>

namespace millrace::io {

/// Writes all pieces one after the other, as few system calls as possible, without a copy.
/// \returns 0, or errno of the call that failed; what was written by then stays written
int write_pieces(int fd, std::span<const std::string_view> pieces);

}  // namespace millrace::io

#pragma once

#include <span>
#include <string_view>

namespace millrace::io {

/// Writes all pieces in order with as few system calls as possible, without copying them.
/// \returns 0, or errno of the call that failed; earlier pieces may have been written
int write_pieces(int fd, std::span<const std::string_view> pieces);

}  // namespace millrace::io

#pragma once

#include <cstddef>
#include <span>

namespace millrace::io {

/// Adds bytes to an XXH3 state (from XXH3_createState()). Uses the widest vector instructions of
/// the processor if the library can choose at run time.
void update_checksum(void* xxh_state, std::span<const std::byte> bytes);

}  // namespace millrace::io

#pragma once

#include <cstddef>
#include <span>

namespace millrace::io {

/// Adds bytes to an XXH3 state (of XXH3_createState()), with the widest vectors of the processor
/// where the library can choose.
void update_checksum(void* xxh_state, std::span<const std::byte> bytes);

}  // namespace millrace::io

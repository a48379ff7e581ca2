#include <xxhash.h>

#include "io/checksum_update.h"

namespace millrace::io {

void update_checksum(void* xxh_state, std::span<const std::byte> bytes) {
  XXH3_128bits_update(static_cast<XXH3_state_t*>(xxh_state), bytes.data(), bytes.size());
}

}  // namespace millrace::io

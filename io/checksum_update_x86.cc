#include <xxhash.h>

#include "io/checksum_update.h"
// Must be included after xxhash.h: it redirects xxHash calls to versions for the processor at hand,
// which are four times as fast as the version that runs on every x86 processor.
#include <xxh_x86dispatch.h>

namespace millrace::io {

void update_checksum(void* xxh_state, std::span<const std::byte> bytes) {
  XXH3_128bits_update_dispatch(static_cast<XXH3_state_t*>(xxh_state), bytes.data(), bytes.size());
}

}  // namespace millrace::io

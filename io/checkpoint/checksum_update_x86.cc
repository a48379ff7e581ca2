#include <xxhash.h>

#include "io/checkpoint/checksum_update.h"
// Comes behind xxhash.h, whose calls it sends to versions for the processor that is there: four
// times as fast as the one that every x86 processor can run.
#include <xxh_x86dispatch.h>

namespace millrace::io {

void update_checksum(void* xxh_state, std::span<const std::byte> bytes) {
  XXH3_128bits_update_dispatch(static_cast<XXH3_state_t*>(xxh_state), bytes.data(), bytes.size());
}

}  // namespace millrace::io

#pragma once

namespace millrace::spawn {

/// True if a sanitizer keeps freed memory and has bookkeeping data, so that the memory use of a
/// process is not meaningful.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitizerKeepsMemory = true;
#else
inline constexpr bool kSanitizerKeepsMemory = false;
#endif

}  // namespace millrace::spawn

#pragma once

namespace millrace::spawn {

/// True if a sanitizer keeps freed memory and has bookkeeping data, so that the memory use of a
/// process is not meaningful.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitizerKeepsMemory = true;
#else
inline constexpr bool kSanitizerKeepsMemory = false;
#endif

/// True in builds for the thread sanitizer, which cannot follow a fork of a process with threads.
#if defined(__SANITIZE_THREAD__)
inline constexpr bool kThreadSanitizer = true;
#else
inline constexpr bool kThreadSanitizer = false;
#endif

}  // namespace millrace::spawn

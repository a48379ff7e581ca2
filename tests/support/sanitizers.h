#pragma once

namespace millrace::spawn {

/// True where a sanitizer keeps memory that was freed, and notes of its own, so that what a process
/// takes says nothing.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitizerKeepsMemory = true;
#else
inline constexpr bool kSanitizerKeepsMemory = false;
#endif

}  // namespace millrace::spawn

#pragma once

#include <thread>

namespace millrace::executor {

/// Lets the processor rest for an instant in a loop that waits for another thread.
inline void spin_pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

/// How often a thread of so many that compute at once looks for the others before it sleeps: a
/// moment where each has a core; not at all where spinning would hold up one that needs the core.
inline int spins_for(int threads) {
  constexpr int kMoment = 4000;
  return threads > static_cast<int>(std::thread::hardware_concurrency()) ? 0 : kMoment;
}

}  // namespace millrace::executor

#pragma once

#include <thread>

namespace millrace::executor {

/// Pauses the processor briefly in a loop that waits for another thread.
inline void spin_pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

/// How often a thread checks for the others before it sleeps, if the given number of threads
/// compute at once. It spins for a short time if each has a core; not at all if spinning would
/// block a thread that needs the core.
inline int spins_for(int threads) {
  constexpr int kMoment = 4000;
  return threads > static_cast<int>(std::thread::hardware_concurrency()) ? 0 : kMoment;
}

}  // namespace millrace::executor

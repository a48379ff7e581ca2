#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include <llvm/ADT/STLFunctionalExtras.h>

namespace millrace::executor {

/// One thread per device; the caller's thread is that of device 0. The threads exist as long as the
/// object, so thread-local state of libraries stays with its device.
///
/// If there is a core for each thread, a thread spins for a short time before it sleeps: the time
/// between two steps is shorter than waking up takes.
class DeviceThreads {
 public:
  /// \param devices  at least 1; devices - 1 threads are started
  explicit DeviceThreads(int devices);
  DeviceThreads(const DeviceThreads&) = delete;
  DeviceThreads& operator=(const DeviceThreads&) = delete;
  ~DeviceThreads();

  /// Calls body(device) for every device, each on its thread, and returns when all have returned.
  /// Then rethrows an exception that a body has thrown.
  void run(llvm::function_ref<void(int device)> body);

 private:
  /// Ends and joins the threads.
  void end();
  /// The loop of one thread: waits for a round, calls the body, reports that it is done.
  void work(int device);
  /// Calls the body; what it throws is kept for run().
  void run_caught(int device);
  /// Spins, then sleeps until done() is true.
  template <typename Done>
  void wait(std::condition_variable& changed, Done&& done);
  /// Wakes the sleepers, if there are any.
  void notify(std::condition_variable& changed);

  const int spins_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable done_;
  std::atomic<int> sleepers_{0};
  std::vector<std::thread> threads_;
  llvm::function_ref<void(int)>* body_ = nullptr;  ///< set before the round begins
  std::exception_ptr thrown_;                      ///< by a body of this round
  std::atomic<uint64_t> round_{0};
  std::atomic<int> pending_{0};
  std::atomic<bool> stop_{false};
};

}  // namespace millrace::executor

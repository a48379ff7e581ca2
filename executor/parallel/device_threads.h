#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include <llvm/ADT/STLFunctionalExtras.h>

namespace millrace::executor {

/// One thread per device; the caller's thread is that of device 0. The threads exist as long as the
/// object, so thread-local state of libraries stays with its device. A forked process starts its
/// own at its first run.
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
  /// What the threads use. It is separate because a forked process cannot destroy it: its condition
  /// variables have waiters that do not exist there.
  struct Shared {
    const int spins;
    std::mutex mutex;
    std::condition_variable wake;
    std::condition_variable done;
    std::atomic<int> sleepers{0};
    llvm::function_ref<void(int)>* body = nullptr;  ///< set before the round begins
    std::exception_ptr thrown;                      ///< by a body of this round
    std::atomic<uint64_t> round{0};
    std::atomic<int> pending{0};
    std::atomic<bool> stop{false};

    explicit Shared(int devices);
    /// The loop of one thread: waits for a round, calls the body, reports that it is done.
    void work(int device);
    /// Calls the body; what it throws is kept for run().
    void run_caught(int device);
    /// Spins, then sleeps until until() is true.
    template <typename Until>
    void wait(std::condition_variable& changed, Until&& until);
    /// Wakes the sleepers, if there are any.
    void notify(std::condition_variable& changed);
  };

  /// Starts the threads. Throws if one cannot be started; none is left then.
  void start();
  /// Ends and joins the threads.
  void end();
  /// Forgets threads of the process that this one was forked from.
  void leave_to_parent();

  const int devices_;
  int process_ = 0;  ///< id of the process that has the threads
  std::unique_ptr<Shared> shared_;
  std::vector<std::thread> threads_;
};

}  // namespace millrace::executor

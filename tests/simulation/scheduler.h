#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <unordered_map>
#include <vector>

#include <semaphore.h>

namespace millrace::simulation {

/// Virtual time in nanoseconds since the start of a run.
using Time = int64_t;
inline constexpr Time kMicrosecond = 1'000;
inline constexpr Time kMillisecond = 1'000'000;
inline constexpr Time kSecond = 1'000'000'000;
inline constexpr Time kNever = INT64_MAX;

/// A stream of numbers that a seed determines, the same on every platform.
class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  /// A number in [0, count). \param count  at least 1
  uint64_t below(uint64_t count) { return engine_() % count; }
  /// True with this probability.
  bool chance(double probability) {
    return static_cast<double>(engine_() >> 11U) * 0x1p-53 < probability;
  }
  Time between(Time low, Time high) {
    return low + static_cast<Time>(below(static_cast<uint64_t>(high - low + 1)));
  }

 private:
  std::mt19937_64 engine_;
};

/// Runs threads of several simulated processes one at a time, in an order and at times that a seed
/// determines. The functions of interpose.cc lead here, so product code runs unchanged.
///
/// Time passes only where threads wait, and a little at each call of a thread function or clock.
/// When all threads wait, time advances to the next timer. Thread-safety: only simulated threads
/// may call it, and only one of them runs at a time.
class Scheduler {
 public:
  using ProcessId = int;
  /// The process of the function that run() calls; it is never paused or killed.
  static constexpr ProcessId kDriver = 0;

  /// \param stuck  called with a reason when no thread can ever continue, or when the run exceeds
  ///     its time or number of switches. It must end the operating system's process.
  Scheduler(uint64_t seed, Time time_limit, std::function<void(const std::string&)> stuck);
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;
  ~Scheduler();

  /// The scheduler of the running simulated thread; null outside of a simulation.
  static Scheduler* active();

  /// Calls a function as the first simulated thread. Other threads that are not done when it
  /// returns never run again.
  void run(const std::function<void()>& driver);

  ProcessId add_process(std::string name);
  /// Starts a thread in a process.
  void spawn(ProcessId process, std::function<void()> body);
  [[nodiscard]] ProcessId current_process() const;
  [[nodiscard]] bool is_alive(ProcessId process) const { return processes_[index(process)].alive; }
  [[nodiscard]] bool is_paused(ProcessId process) const {
    return processes_[index(process)].paused;
  }
  [[nodiscard]] const std::string& name_of(ProcessId process) const {
    return processes_[index(process)].name;
  }
  /// The threads of a paused process do not run, while time passes.
  /// \param suspended  as if its machine was suspended: the monotonic clock stands still
  void pause(ProcessId process, bool paused, bool suspended = false);
  /// The clock of the date jumps for a process.
  void shift_date(ProcessId process, Time by) { processes_[index(process)].date_shift += by; }
  /// What the clocks of the running process differ from now().
  [[nodiscard]] Time date_shift() const { return processes_[index(self_->process)].date_shift; }
  [[nodiscard]] Time suspended_for() const { return processes_[index(self_->process)].suspended; }
  /// How long the process was paused in all.
  [[nodiscard]] Time paused_for(ProcessId process) const;
  /// The threads of a killed process never run again; its objects stay in memory. \returns false if
  /// it cannot be killed now, because one of its threads holds a lock of an object that all
  /// processes share
  bool kill(ProcessId process);
  /// Releases the locks of files that a process has, which does not notice it: as a file server
  /// does with those of a machine that it does not hear of.
  void drop_file_locks(ProcessId process);
  /// Records that the running process has locked an open file, so that its lock ends with it.
  void own_file_lock(int file) { file_locks_[file] = current_process(); }

  [[nodiscard]] Time now() const { return now_; }
  /// Returns after that time, and not before other threads have made that many switches or wait.
  void sleep_until(Time time);
  void wait_steps(int64_t steps);
  /// Waits until wake_one() or wake_all() is called for the key. \returns false if `until` has come
  bool block(const void* key, Time until);
  void wake_one(const void* key);
  void wake_all(const void* key);
  /// A point at which another thread may continue. \param yields  prefers another thread
  void point(bool yields = false);
  /// Lets a little time pass without a switch.
  void tick() { now_ += kTick; }

  // ---- what interpose.cc needs; return values as of the functions of the same name
  int create_thread(uint64_t* id, void* (*body)(void*), void* argument);
  int join_thread(uint64_t id, void** result);
  void detach_thread(uint64_t id);
  int lock(const void* mutex, bool recursive, bool only_try);
  int unlock(const void* mutex);
  int lock_shared(const void* mutex, bool only_try);
  int lock_exclusive(const void* mutex, bool only_try);
  int unlock_rw(const void* mutex);
  int wait(const void* condition, const void* mutex, Time until);
  void forget(const void* object);
  void once(const void* flag, int* state, void (*body)());
  uint64_t random_number() { return numbers_.below(UINT64_MAX); }

  /// Adds an event to the record of the run. Equal seeds have equal records.
  void note(const std::string& event);
  /// The same for text that may differ between runs, such as paths: shown, but not in hash().
  void remark(const std::string& text);
  [[nodiscard]] uint64_t hash() const { return hash_; }
  [[nodiscard]] int64_t steps() const { return steps_; }
  [[nodiscard]] int64_t switches() const { return switches_; }
  void keep_notes(std::vector<std::string>* notes) { notes_ = notes; }

 private:
  static constexpr Time kTick = 50;

  enum class State : uint8_t { kRunnable, kBlocked, kDone };
  struct Thread {
    int number = 0;
    ProcessId process = kDriver;
    State state = State::kRunnable;
    Time wake_at = kNever;
    const void* key = nullptr;
    bool timed_out = false;
    int64_t priority = 0;
    sem_t baton;
    std::function<void()> body;
    uint64_t id = 0;  ///< pthread_t
    void* result = nullptr;
  };
  struct Process {
    std::string name;
    bool alive = true;
    bool paused = false;
    Time paused_at = 0;
    Time paused_for = 0;
    Time suspended = 0;   ///< the part of it that the monotonic clock does not show
    Time date_shift = 0;  ///< of CLOCK_REALTIME
  };
  /// A mutex (owner and count) or a lock of readers and writers.
  struct Lock {
    Thread* owner = nullptr;
    int count = 0;
    std::map<Thread*, int> readers;
  };

  static size_t index(int number) { return static_cast<size_t>(number); }
  static void* begin_thread(void* thread);
  Thread& start(ProcessId process, std::function<void()> body);
  [[nodiscard]] bool may_run(const Thread& thread) const;
  Thread& pick();
  Thread& choose(const std::vector<Thread*>& ready);
  void switch_from(Thread& self);
  void become_blocked(Thread& self, const void* key, Time until);
  void make_runnable(Thread& thread);
  template <typename Take>
  int acquire(const void* mutex, bool only_try, Take&& take);
  void mix(uint64_t value);

  Random schedule_;
  Random numbers_;
  Time time_limit_;
  std::function<void(const std::string&)> stuck_;
  std::vector<std::unique_ptr<Thread>> threads_;  ///< that are not done
  std::vector<std::unique_ptr<Thread>> done_;     ///< whose memory may still be in use
  std::unordered_map<uint64_t, Thread*> by_id_;
  std::vector<Process> processes_;
  std::unordered_map<const void*, Lock> locks_;
  std::map<int, ProcessId> file_locks_;  ///< by descriptor
  Thread* self_ = nullptr;               ///< the running one
  Thread* first_ = nullptr;
  int count_ = 0;  ///< threads ever started
  Time now_ = 0;
  int64_t steps_ = 0;
  int64_t switches_ = 0;
  int64_t call_first_at_ = INT64_MAX;  ///< step at which the driver continues
  bool woken_ = false;                 ///< since the last choice
  bool by_priority_ = false;
  double switch_chance_ = 0;
  std::vector<int64_t> change_points_;
  int64_t lowest_ = 0;
  uint64_t hash_ = 14695981039346656037ULL;
  std::vector<std::string>* notes_ = nullptr;
};

}  // namespace millrace::simulation

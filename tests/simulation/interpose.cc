// Replaces functions of the C library for the whole program, as its symbols precede those of shared
// libraries. In simulated threads they lead to the Scheduler; elsewhere to the real functions.
#include <cerrno>
#include <cstdarg>
#include <random>

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/simulation/real_calls.h"
#include "tests/simulation/scheduler.h"

namespace millrace::simulation {
namespace {

template <typename Function>
void find(Function& to, const char* name) {
  // the older version of the functions of conditions has another layout of pthread_cond_t
  void* found = dlvsym(RTLD_NEXT, name, "GLIBC_2.3.2");
  if (found == nullptr) found = dlsym(RTLD_NEXT, name);
  to = reinterpret_cast<Function>(found);
}

RealCalls find_all() {
  RealCalls calls;
  find(calls.pthread_create, "pthread_create");
  find(calls.pthread_join, "pthread_join");
  find(calls.pthread_detach, "pthread_detach");
  find(calls.pthread_mutex_lock, "pthread_mutex_lock");
  find(calls.pthread_mutex_trylock, "pthread_mutex_trylock");
  find(calls.pthread_mutex_unlock, "pthread_mutex_unlock");
  find(calls.pthread_mutex_destroy, "pthread_mutex_destroy");
  find(calls.pthread_rwlock_rdlock, "pthread_rwlock_rdlock");
  find(calls.pthread_rwlock_tryrdlock, "pthread_rwlock_tryrdlock");
  find(calls.pthread_rwlock_wrlock, "pthread_rwlock_wrlock");
  find(calls.pthread_rwlock_trywrlock, "pthread_rwlock_trywrlock");
  find(calls.pthread_rwlock_unlock, "pthread_rwlock_unlock");
  find(calls.pthread_cond_wait, "pthread_cond_wait");
  find(calls.pthread_cond_timedwait, "pthread_cond_timedwait");
  find(calls.pthread_cond_clockwait, "pthread_cond_clockwait");
  find(calls.pthread_cond_signal, "pthread_cond_signal");
  find(calls.pthread_cond_broadcast, "pthread_cond_broadcast");
  find(calls.pthread_cond_destroy, "pthread_cond_destroy");
  find(calls.pthread_once, "pthread_once");
  find(calls.clock_gettime, "clock_gettime");
  find(calls.nanosleep, "nanosleep");
  find(calls.clock_nanosleep, "clock_nanosleep");
  find(calls.sched_yield, "sched_yield");
  find(calls.syscall, "syscall");
  find(calls.get_nprocs, "get_nprocs");
  find(calls.fcntl, "fcntl64");
  return calls;
}

// The clocks at the start of a run: the same in every run.
constexpr Time kMonotonicStart = 1'000 * kSecond;
constexpr Time kRealStart = 1'700'000'000 * kSecond;

// What a clock of the running process shows when virtual time is 0.
Time start_of(clockid_t clock) {
  const Scheduler& scheduler = *Scheduler::active();
  if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)
    return kRealStart + scheduler.date_shift();
  return clock == CLOCK_BOOTTIME ? kMonotonicStart : kMonotonicStart - scheduler.suspended_for();
}

Time length_of(const timespec& time) {
  return time.tv_sec * kSecond + time.tv_nsec;
}

Time virtual_time(clockid_t clock, const timespec& time) {
  // later than any run lasts, and beyond what fits into nanoseconds
  if (time.tv_sec > 4'000'000'000) return kNever;
  return length_of(time) - start_of(clock);
}

bool is_recursive(const pthread_mutex_t* mutex) {
  return (mutex->__data.__kind & 3) == PTHREAD_MUTEX_RECURSIVE_NP;
}

}  // namespace

const RealCalls& real() {
  static RealCalls calls;
  // no guard of a static object here: it would call back
  static bool found = false;
  if (!found) {
    calls = find_all();
    found = true;
  }
  return calls;
}

Scheduler*& active_scheduler_of_new_threads() {
  static Scheduler* scheduler = nullptr;
  return scheduler;
}

}  // namespace millrace::simulation

namespace sim = millrace::simulation;
using sim::real;
using sim::Scheduler;

extern "C" {

int pthread_create(pthread_t* id, const pthread_attr_t* options, void* (*body)(void*),
                   void* argument) noexcept {
  Scheduler* const scheduler = Scheduler::active();
  if (scheduler == nullptr) return real().pthread_create(id, options, body, argument);
  return scheduler->create_thread(id, body, argument);
}
int pthread_join(pthread_t id, void** result) {
  Scheduler* const scheduler = Scheduler::active();
  return scheduler == nullptr ? real().pthread_join(id, result)
                              : scheduler->join_thread(id, result);
}
int pthread_detach(pthread_t id) noexcept {
  Scheduler* const scheduler = Scheduler::active();
  if (scheduler == nullptr) return real().pthread_detach(id);
  scheduler->detach_thread(id);
  return 0;
}

int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
  Scheduler* const scheduler = Scheduler::active();
  return scheduler == nullptr ? real().pthread_mutex_lock(mutex)
                              : scheduler->lock(mutex, sim::is_recursive(mutex), false);
}
int pthread_mutex_trylock(pthread_mutex_t* mutex) noexcept {
  Scheduler* const scheduler = Scheduler::active();
  return scheduler == nullptr ? real().pthread_mutex_trylock(mutex)
                              : scheduler->lock(mutex, sim::is_recursive(mutex), true);
}
int pthread_mutex_unlock(pthread_mutex_t* mutex) noexcept {
  Scheduler* const scheduler = Scheduler::active();
  return scheduler == nullptr ? real().pthread_mutex_unlock(mutex) : scheduler->unlock(mutex);
}
int pthread_mutex_destroy(pthread_mutex_t* mutex) noexcept {
  if (Scheduler* const scheduler = Scheduler::active()) scheduler->forget(mutex);
  return real().pthread_mutex_destroy(mutex);
}

int pthread_rwlock_rdlock(pthread_rwlock_t* lock) noexcept {
  Scheduler* const scheduler = Scheduler::active();
  return scheduler == nullptr ? real().pthread_rwlock_rdlock(lock)
                              : scheduler->lock_shared(lock, false);
}
int pthread_rwlock_tryrdlock(pthread_rwlock_t* lock) noexcept {
  Scheduler* const scheduler = Scheduler::active();
  return scheduler == nullptr ? real().pthread_rwlock_tryrdlock(lock)
                              : scheduler->lock_shared(lock, true);
}
int pthread_rwlock_wrlock(pthread_rwlock_t* lock) noexcept {
  Scheduler* const scheduler = Scheduler::active();
  return scheduler == nullptr ? real().pthread_rwlock_wrlock(lock)
                              : scheduler->lock_exclusive(lock, false);
}
int pthread_rwlock_trywrlock(pthread_rwlock_t* lock) noexcept {
  Scheduler* const scheduler = Scheduler::active();
  return scheduler == nullptr ? real().pthread_rwlock_trywrlock(lock)
                              : scheduler->lock_exclusive(lock, true);
}
int pthread_rwlock_unlock(pthread_rwlock_t* lock) noexcept {
  Scheduler* const scheduler = Scheduler::active();
  return scheduler == nullptr ? real().pthread_rwlock_unlock(lock) : scheduler->unlock_rw(lock);
}

int pthread_cond_wait(pthread_cond_t* condition, pthread_mutex_t* mutex) {
  Scheduler* const scheduler = Scheduler::active();
  return scheduler == nullptr ? real().pthread_cond_wait(condition, mutex)
                              : scheduler->wait(condition, mutex, sim::kNever);
}
int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                           const timespec* until) {
  Scheduler* const scheduler = Scheduler::active();
  return scheduler == nullptr ? real().pthread_cond_clockwait(condition, mutex, clock, until)
                              : scheduler->wait(condition, mutex, sim::virtual_time(clock, *until));
}
int pthread_cond_timedwait(pthread_cond_t* condition, pthread_mutex_t* mutex,
                           const timespec* until) {
  Scheduler* const scheduler = Scheduler::active();
  return scheduler == nullptr
             ? real().pthread_cond_timedwait(condition, mutex, until)
             : scheduler->wait(condition, mutex, sim::virtual_time(CLOCK_REALTIME, *until));
}
int pthread_cond_signal(pthread_cond_t* condition) noexcept {
  Scheduler* const scheduler = Scheduler::active();
  if (scheduler == nullptr) return real().pthread_cond_signal(condition);
  scheduler->wake_one(condition);
  scheduler->point();
  return 0;
}
int pthread_cond_broadcast(pthread_cond_t* condition) noexcept {
  Scheduler* const scheduler = Scheduler::active();
  if (scheduler == nullptr) return real().pthread_cond_broadcast(condition);
  scheduler->wake_all(condition);
  scheduler->point();
  return 0;
}
int pthread_cond_destroy(pthread_cond_t* condition) noexcept {
  return Scheduler::active() == nullptr ? real().pthread_cond_destroy(condition) : 0;
}
int pthread_once(pthread_once_t* flag, void (*body)()) {
  Scheduler* const scheduler = Scheduler::active();
  if (scheduler == nullptr) return real().pthread_once(flag, body);
  scheduler->once(flag, flag, body);
  return 0;
}

int clock_gettime(clockid_t clock, timespec* time) noexcept {
  Scheduler* const scheduler = Scheduler::active();
  if (scheduler == nullptr) return real().clock_gettime(clock, time);
  scheduler->tick();
  const sim::Time now = scheduler->now() + sim::start_of(clock);
  *time = {now / sim::kSecond, now % sim::kSecond};
  return 0;
}
int nanosleep(const timespec* length, timespec* rest) {
  Scheduler* const scheduler = Scheduler::active();
  if (scheduler == nullptr) return real().nanosleep(length, rest);
  scheduler->sleep_until(scheduler->now() + sim::length_of(*length));
  return 0;
}
int clock_nanosleep(clockid_t clock, int flags, const timespec* time, timespec* rest) {
  Scheduler* const scheduler = Scheduler::active();
  if (scheduler == nullptr) return real().clock_nanosleep(clock, flags, time, rest);
  const bool absolute = (flags & TIMER_ABSTIME) != 0;
  scheduler->sleep_until(absolute ? sim::virtual_time(clock, *time)
                                  : scheduler->now() + sim::length_of(*time));
  return 0;
}
int sched_yield() noexcept {
  Scheduler* const scheduler = Scheduler::active();
  if (scheduler == nullptr) return real().sched_yield();
  scheduler->point(true);
  return 0;
}
int get_nprocs() noexcept {
  return Scheduler::active() == nullptr ? real().get_nprocs() : 2;
}

// Locks of files, which a killed process has to lose though its descriptors stay open.
int fcntl(int file, int command, ...) {
  va_list list;
  va_start(list, command);
  void* const argument = va_arg(list, void*);
  va_end(list);
  const int result = real().fcntl(file, command, argument);
  Scheduler* const scheduler = Scheduler::active();
  if (scheduler != nullptr && command == F_OFD_SETLK && result == 0) scheduler->own_file_lock(file);
  return result;
}
int fcntl64(int file, int command, ...) {
  va_list list;
  va_start(list, command);
  void* const argument = va_arg(list, void*);
  va_end(list);
  return fcntl(file, command, argument);
}

// std::atomic::wait and the guards of static objects: a futex may wake up at any time, so a wait is
// only a point at which others continue.
long syscall(long number, ...) noexcept {
  va_list list;
  va_start(list, number);
  long arguments[6];
  for (long& argument : arguments) argument = va_arg(list, long);
  va_end(list);
  Scheduler* const scheduler = Scheduler::active();
  if (scheduler != nullptr && number == SYS_futex) {
    scheduler->point(true);
    return 0;
  }
  return real().syscall(number, arguments[0], arguments[1], arguments[2], arguments[3],
                        arguments[4], arguments[5]);
}

}  // extern "C"

// The numbers that name incarnations and epochs, otherwise from the processor.
unsigned int std::random_device::_M_getval() {
  Scheduler* const scheduler = Scheduler::active();
  if (scheduler != nullptr) return static_cast<unsigned int>(scheduler->random_number());
  static std::mt19937 engine(static_cast<unsigned int>(getpid()));
  return static_cast<unsigned int>(engine());
}

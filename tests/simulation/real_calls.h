#pragma once

#include <pthread.h>
#include <sys/random.h>
#include <time.h>

namespace millrace::simulation {

class Scheduler;

/// The functions of the C library that interpose.cc replaces.
struct RealCalls {
  decltype(&::pthread_create) pthread_create;
  decltype(&::pthread_join) pthread_join;
  decltype(&::pthread_detach) pthread_detach;
  decltype(&::pthread_mutex_lock) pthread_mutex_lock;
  decltype(&::pthread_mutex_trylock) pthread_mutex_trylock;
  decltype(&::pthread_mutex_unlock) pthread_mutex_unlock;
  decltype(&::pthread_mutex_destroy) pthread_mutex_destroy;
  decltype(&::pthread_rwlock_rdlock) pthread_rwlock_rdlock;
  decltype(&::pthread_rwlock_tryrdlock) pthread_rwlock_tryrdlock;
  decltype(&::pthread_rwlock_wrlock) pthread_rwlock_wrlock;
  decltype(&::pthread_rwlock_trywrlock) pthread_rwlock_trywrlock;
  decltype(&::pthread_rwlock_unlock) pthread_rwlock_unlock;
  decltype(&::pthread_cond_wait) pthread_cond_wait;
  decltype(&::pthread_cond_timedwait) pthread_cond_timedwait;
  decltype(&::pthread_cond_clockwait) pthread_cond_clockwait;
  decltype(&::pthread_cond_signal) pthread_cond_signal;
  decltype(&::pthread_cond_broadcast) pthread_cond_broadcast;
  decltype(&::pthread_cond_destroy) pthread_cond_destroy;
  decltype(&::pthread_once) pthread_once;
  decltype(&::clock_gettime) clock_gettime;
  decltype(&::nanosleep) nanosleep;
  decltype(&::clock_nanosleep) clock_nanosleep;
  int (*sched_yield)();
  long (*syscall)(long, ...);
  int (*get_nprocs)();
  int (*fcntl)(int, int, ...);
};
const RealCalls& real();

/// The scheduler of threads that begin; the process has one at a time.
Scheduler*& active_scheduler_of_new_threads();

}  // namespace millrace::simulation

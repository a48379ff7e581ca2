#include <exception>
#include <mutex>

#include <pthread.h>

#include "kernels/workers.h"

// The functions that GCC calls for parallel regions. They are declared here because their header
// comes with GCC only and no code is compiled with -fopenmp.
extern "C" {
void GOMP_parallel(void (*body)(void*), void* data, unsigned threads, unsigned flags);
int omp_get_thread_num();
int omp_get_num_threads();
int omp_pause_resource_all(int kind);
}

namespace millrace::kernels {
namespace {

struct WorkersOpenmpLoop {
  int ranges;
  llvm::function_ref<void(int)> body;
  std::mutex mutex;
  std::exception_ptr thrown;
};

// The runtime may start fewer threads than requested. An exception that left it would end the
// process.
void run_share(void* data) {
  auto& loop = *static_cast<WorkersOpenmpLoop*>(data);
  try {
    for (int range = omp_get_thread_num(); range < loop.ranges; range += omp_get_num_threads())
      loop.body(range);
  } catch (...) {
    const std::lock_guard lock(loop.mutex);
    loop.thrown = std::current_exception();
  }
}

// The runtime keeps threads for each thread that has run a parallel region. Only the thread that
// forks exists in the child, and only its threads would be waited for.
void end_threads_of_caller() {
  constexpr int kSoftPause = 1;
  omp_pause_resource_all(kSoftPause);
}

}  // namespace

struct Workers::Parts {};

Workers::Workers(int /*threads*/) {}
Workers::~Workers() = default;

void Workers::run(int ranges, llvm::function_ref<void(int)> body) {
  WorkersOpenmpLoop loop{ranges, body, {}, {}};
  GOMP_parallel(run_share, &loop, static_cast<unsigned>(ranges), 0);
  if (loop.thrown != nullptr) std::rethrow_exception(loop.thrown);
}

void Workers::end_threads_before_forks() {
  static const int registered = pthread_atfork(end_threads_of_caller, nullptr, nullptr);
  static_cast<void>(registered);
}

}  // namespace millrace::kernels

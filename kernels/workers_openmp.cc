#include "kernels/workers.h"

// The functions that GCC calls for parallel regions. They are declared here because their header
// comes with GCC only and no code is compiled with -fopenmp.
extern "C" {
void GOMP_parallel(void (*body)(void*), void* data, unsigned threads, unsigned flags);
int omp_get_thread_num();
int omp_get_num_threads();
}

namespace millrace::kernels {
namespace {

struct WorkersOpenmpLoop {
  int ranges;
  llvm::function_ref<void(int)> body;
};

// The runtime may start fewer threads than requested.
void run_share(void* data) {
  const auto& loop = *static_cast<const WorkersOpenmpLoop*>(data);
  for (int range = omp_get_thread_num(); range < loop.ranges; range += omp_get_num_threads())
    loop.body(range);
}

}  // namespace

struct Workers::Parts {};

Workers::Workers(int /*threads*/) {}
Workers::~Workers() = default;

void Workers::run(int ranges, llvm::function_ref<void(int)> body) {
  WorkersOpenmpLoop loop{ranges, body};
  GOMP_parallel(run_share, &loop, static_cast<unsigned>(ranges), 0);
}

}  // namespace millrace::kernels

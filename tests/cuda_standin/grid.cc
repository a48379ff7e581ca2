#include "tests/cuda_standin/grid.h"

#include <algorithm>
#include <array>
#include <csetjmp>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include <sys/mman.h>
#include <ucontext.h>

millrace::standin::Index threadIdx;
millrace::standin::Index blockIdx;
dim3 blockDim;
dim3 gridDim;

namespace millrace::standin {
namespace {

constexpr size_t kStackBytes = 256 * 1024;
constexpr unsigned kWarpThreads = 32;

// A stack on which threads of a block run, one after the other; a thread that waits keeps it.
struct Fiber {
  jmp_buf at{};  // where it continues
  ucontext_t first{};
  void* stack = nullptr;
  bool has_started = false;
  unsigned thread = 0;  // that runs or waits on it
};

struct Warp {
  std::array<std::array<double, kWarpThreads>, 2> values{};  // of this shuffle and the previous one
  std::array<unsigned, kWarpThreads> turns{};                // shuffles of each lane so far
  std::vector<Fiber*> waiting;
};

class Grid {
 public:
  const char* run(dim3 grid, dim3 block, const std::function<void()>& body) {
    gridDim = grid;
    blockDim = block;
    body_ = &body;
    is_reversed_ = !is_reversed_;
    for (unsigned i = 0; i < grid.x; ++i) {
      blockIdx.x = is_reversed_ ? grid.x - 1 - i : i;
      if (const char* const problem = run_block(); *problem != '\0') {
        abandon();
        return problem;
      }
    }
    return "";
  }

  void abandon() {
    idle_.clear();
    ready_.clear();
    at_barrier_.clear();
    for (const auto& fiber : fibers_) ::munmap(fiber->stack, kStackBytes);
    fibers_.clear();
  }

  void barrier() {
    at_barrier_.push_back(current_);
    if (at_barrier_.size() < blockDim.x) {
      yield();
      return;
    }
    release(at_barrier_);
  }

  double shuffle(unsigned mask, double value, const std::function<unsigned(unsigned)>& from) {
    const unsigned lane = threadIdx.x % kWarpThreads;
    const unsigned source = from(lane);
    Warp& warp = warps_[threadIdx.x / kWarpThreads];
    const unsigned turn = warp.turns[lane]++;
    warp.values[turn % 2][lane] = value;
    if ((mask >> lane & 1U) == 0) problem_ = "a lane shuffles that its mask lacks";
    warp.waiting.push_back(current_);
    if (warp.waiting.size() < static_cast<size_t>(__builtin_popcount(mask))) {
      yield();
    } else {
      release(warp.waiting);
    }
    return source < kWarpThreads ? warp.values[turn % 2][source] : value;
  }

 private:
  const char* run_block() {
    next_ = done_ = 0;
    problem_ = "";
    warps_.assign((blockDim.x + kWarpThreads - 1) / kWarpThreads, {});
    while (*problem_ == '\0') {
      if (!ready_.empty()) {
        Fiber* const fiber = ready_.front();
        ready_.pop_front();
        resume(*fiber);
      } else if (next_ < blockDim.x) {
        resume(idle_fiber());
      } else if (done_ == blockDim.x) {
        return "";
      } else {
        return at_barrier_.empty() ? "a warp shuffles without all of its lanes"
                                   : "not all threads of a block reach a barrier";
      }
    }
    return problem_;
  }

  Fiber& idle_fiber() {
    if (idle_.empty()) {
      auto fiber = std::make_unique<Fiber>();
      fiber->stack = ::mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      ::getcontext(&fiber->first);
      fiber->first.uc_stack.ss_sp = fiber->stack;
      fiber->first.uc_stack.ss_size = kStackBytes;
      ::makecontext(&fiber->first, &Grid::enter, 0);
      idle_.push_back(fiber.get());
      fibers_.push_back(std::move(fiber));
    }
    Fiber& fiber = *idle_.back();
    idle_.pop_back();
    return fiber;
  }

  // Continues a fiber until it yields. Later switches need no call of the kernel, unlike those of
  // ucontext.
  [[gnu::noinline]] void resume(Fiber& fiber) {
    current_ = &fiber;
    threadIdx.x = fiber.thread;
    if (_setjmp(scheduler_) != 0) return;
    if (fiber.has_started) _longjmp(fiber.at, 1);
    fiber.has_started = true;
    ::setcontext(&fiber.first);
  }
  [[gnu::noinline]] void yield() {
    if (_setjmp(current_->at) == 0) _longjmp(scheduler_, 1);
  }
  void release(std::vector<Fiber*>& waiting) {
    for (Fiber* const fiber : waiting) {
      if (fiber != current_) ready_.push_back(fiber);
    }
    if (is_reversed_) std::reverse(ready_.begin(), ready_.end());
    waiting.clear();
  }

  [[noreturn]] void run_threads() {
    for (;;) {
      while (next_ < blockDim.x) {
        const unsigned order = next_++;
        current_->thread = is_reversed_ ? blockDim.x - 1 - order : order;
        threadIdx.x = current_->thread;
        (*body_)();
        ++done_;
      }
      idle_.push_back(current_);
      yield();
    }
  }
  static void enter();

  const std::function<void()>* body_ = nullptr;
  bool is_reversed_ = true;
  unsigned next_ = 0;  // number of threads of the block that have started
  unsigned done_ = 0;
  const char* problem_ = "";
  jmp_buf scheduler_{};
  Fiber* current_ = nullptr;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> idle_;
  std::deque<Fiber*> ready_;
  std::vector<Fiber*> at_barrier_;
  std::vector<Warp> warps_;
};

Grid& the_grid() {
  static Grid* const kGrid = new Grid;  // lives until the process ends
  return *kGrid;
}

void Grid::enter() {
  the_grid().run_threads();
}

}  // namespace

const char* run_grid(dim3 grid, dim3 block, const std::function<void()>& body) {
  return the_grid().run(grid, block, body);
}

void abandon_grid() {
  the_grid().abandon();
}

void wait_for_block() {
  the_grid().barrier();
}

double shuffle_down(unsigned mask, double value, unsigned delta) {
  return the_grid().shuffle(mask, value, [=](unsigned lane) { return lane + delta; });
}

double shuffle_xor(unsigned mask, double value, unsigned bits) {
  return the_grid().shuffle(mask, value, [=](unsigned lane) { return lane ^ bits; });
}

}  // namespace millrace::standin

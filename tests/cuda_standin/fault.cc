#include "tests/cuda_standin/fault.h"

#include <csetjmp>
#include <csignal>
#include <cstring>

#include <unistd.h>

namespace millrace::standin {
namespace {

thread_local sigjmp_buf back;
thread_local volatile bool is_guarded = false;
bool (*is_device_address)(const void*) = nullptr;

void handle(int signal, siginfo_t* info, void* /*context*/) {
  if (is_guarded) siglongjmp(back, 1);
  if (is_device_address(info->si_addr)) {
    constexpr char kMessage[] = "stand-in: the processor touched device memory\n";
    [[maybe_unused]] const ssize_t written = ::write(2, kMessage, sizeof kMessage - 1);
  }
  struct sigaction usual {};
  usual.sa_handler = SIG_DFL;
  ::sigaction(signal, &usual, nullptr);  // the access is repeated and ends the process
}

void install(bool (*is_device_memory)(const void*)) {
  if (is_device_address != nullptr) return;
  is_device_address = is_device_memory;
  struct sigaction action {};
  action.sa_sigaction = handle;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGSEGV, &action, nullptr);
  ::sigaction(SIGBUS, &action, nullptr);
}

}  // namespace

bool run_guarded(const std::function<void()>& work, bool (*is_device_memory)(const void*)) {
  install(is_device_memory);
  sigjmp_buf outer;  // of the work that runs this work, if any
  const bool was_guarded = is_guarded;
  std::memcpy(&outer, &back, sizeof back);
  const bool is_good = sigsetjmp(back, 1) == 0;
  if (is_good) {
    is_guarded = true;
    work();
  }
  is_guarded = was_guarded;
  std::memcpy(&back, &outer, sizeof back);
  return is_good;
}

}  // namespace millrace::standin

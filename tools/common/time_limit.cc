#include "tools/common/time_limit.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

namespace millrace::tools {
namespace {

// What the signal handler writes; set before the timer is started.
struct Ending {
  std::string error;
  std::string output;
  int code = 0;
};

Ending& ending() {
  static Ending the_ending;
  return the_ending;
}

const Ending* armed_ending = nullptr;  // NOLINT: signal handlers can only use globals

void end_process(int /*signal*/) {
  const Ending& now = *armed_ending;
  // nothing can be done about a failure to write
  if (write(STDERR_FILENO, now.error.data(), now.error.size()) < 0) _exit(now.code);
  if (write(STDOUT_FILENO, now.output.data(), now.output.size()) < 0) _exit(now.code);
  _exit(now.code);
}

}  // namespace

TimeLimit::TimeLimit(double seconds, std::string error, std::string output, int code) {
  if (seconds <= 0) return;
  ending() = {std::move(error), std::move(output), code};
  armed_ending = &ending();
  struct sigaction action {};
  action.sa_handler = end_process;
  sigaction(SIGALRM, &action, nullptr);
  itimerval timer{};
  const double whole = std::floor(seconds);
  timer.it_value.tv_sec = static_cast<time_t>(whole);
  // a timer of zero would never expire
  timer.it_value.tv_usec =
      std::max<suseconds_t>(whole > 0 ? 0 : 1, static_cast<suseconds_t>((seconds - whole) * 1e6));
  armed_ = setitimer(ITIMER_REAL, &timer, nullptr) == 0;
}

TimeLimit::~TimeLimit() {
  if (!armed_) return;
  const itimerval none{};
  setitimer(ITIMER_REAL, &none, nullptr);
  signal(SIGALRM, SIG_DFL);
}

}  // namespace millrace::tools

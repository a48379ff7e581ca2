#pragma once

#include <chrono>

#include <sys/types.h>

#include "framework/base/status.h"

namespace millrace::fleet {

/// A small process that ends the children of a launcher if the launcher itself is killed. The
/// system tells children of their parent's death (PR_SET_PDEATHSIG), but not the processes that
/// they have started; the guard ends whole process groups: SIGTERM, after a grace time SIGKILL.
///
/// It notices the launcher's end by a socket whose other end only the launcher and its children
/// until their exec have. Thread-safety: one thread; announce() is for a child between fork and
/// exec.
class ChildGuard {
 public:
  explicit ChildGuard(std::chrono::milliseconds grace) : grace_(grace) {}
  ChildGuard(const ChildGuard&) = delete;
  ChildGuard& operator=(const ChildGuard&) = delete;
  /// Dismisses the guard, which first ends groups that were not forgotten, and waits for it.
  ~ChildGuard();

  /// Starts the process, with the signal mask of the caller. Errors: kResource.
  Status start();
  /// Called in a child, which is the leader of its process group.
  void announce() const;
  /// The child has ended and was waited for.
  void forget(pid_t child) const;

 private:
  std::chrono::milliseconds grace_;
  int socket_ = -1;
  pid_t guard_ = -1;
};

}  // namespace millrace::fleet

#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "executor/executor.h"
#include "framework/base/status.h"
#include "framework/program.h"
#include "framework/tensor/scope.h"
#include "ps/ops/serve_ops.h"
#include "ps/transport/transport.h"

namespace millrace::fleet {

/// A heter worker of a fleet job: runs its part of the program for workers that ask for it. It
/// holds no values between calls, so a process that takes the place of another one needs nothing of
/// it.
class HeterWorker {
 public:
  /// \param program  of make_heter_workers(); must outlive the result
  /// \param service  deadlines and threads; snapshots are refused
  /// Errors: kUnimplemented for snapshots.
  static StatusOr<std::unique_ptr<HeterWorker>> create(const Program& program,
                                                       ps::ServerOptions service);
  HeterWorker(const HeterWorker&) = delete;
  HeterWorker& operator=(const HeterWorker&) = delete;

  /// Serves at an endpoint until all workers have completed or stop() is called. Call it once.
  /// Errors: those of compilation and of listening; kDistributed for a worker that is lost or never
  /// connected.
  Status serve(ps::Transport& transport, const std::string& endpoint);
  /// Ends serve(). Thread-safety: any thread.
  void stop();

 private:
  HeterWorker(const Program& program, ps::ServerOptions service)
      : program_(program), service_(std::move(service)) {}

  const Program& program_;
  ps::ServerOptions service_;
  Scope scope_;
  std::mutex mutex_;
  std::shared_ptr<ps::ServerRole> role_;  ///< guarded by mutex_; null before serve()
  bool stopped_ = false;                  ///< likewise
};

}  // namespace millrace::fleet

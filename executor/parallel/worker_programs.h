#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "executor/executor.h"
#include "executor/var_locks.h"
#include "framework/base/status.h"

namespace millrace::executor {

/// One program for several threads that run it at the same time with the same variables: the
/// Hogwild worker of the original. Every thread has temporaries and random numbers of its own.
///
/// A variable does not change while an op reads it, and no update of it is lost
/// (executor/var_locks.h), but another thread may update it between two ops of a step. So results
/// depend on the timing, except where the order of the updates makes no difference.
///
/// Source: spec/fleet.md section 14. Thread-safety: different workers may run at the same time.
class WorkerPrograms {
 public:
  /// Compiles a program again for each worker.
  /// \param program  with the scope that the workers share; it may not run before `finish()`, and
  ///                 must outlive the result
  /// \param fetches  of all runs
  /// Errors: kUnimplemented for programs with loops or branches, on a GPU, with inter_op, in one of
  /// several processes, and for variables that share memory; those of PreparedProgram.
  static StatusOr<std::unique_ptr<WorkerPrograms>> create(PreparedProgram& program, int count,
                                                          const std::vector<std::string>& fetches);

  [[nodiscard]] int count() const { return static_cast<int>(programs_.size()); }
  /// PreparedProgram::run() of one worker. Errors: also kUnimplemented for an op whose output
  /// shares memory with a variable.
  Status run(int worker, const NamedValues& feeds, std::vector<Value>& results) {
    return programs_[static_cast<size_t>(worker)]->run(feeds, fetches_, results);
  }
  /// The locks of all variables; a caller that holds them may use the variables between the ops of
  /// the workers.
  [[nodiscard]] std::vector<VarUse> all_vars() const { return locks_->all(); }
  /// Lets the random numbers of the program continue from those of the first worker.
  void finish() { program_.set_random_position(programs_.front()->random_position()); }

 private:
  WorkerPrograms(PreparedProgram& program, std::vector<std::string> fetches)
      : program_(program), fetches_(std::move(fetches)) {}

  PreparedProgram& program_;
  std::vector<std::string> fetches_;
  std::unique_ptr<VarLocks> locks_;
  std::vector<std::unique_ptr<PreparedProgram>> programs_;
};

}  // namespace millrace::executor

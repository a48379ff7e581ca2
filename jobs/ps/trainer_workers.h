#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "executor/executor.h"
#include "framework/program.h"
#include "framework/tensor/scope.h"
#include "jobs/stats/trainer_stats.h"
#include "ps/communicator/communicator.h"

namespace millrace::jobs {

/// Threads of one asynchronous trainer that run steps concurrently, with one communicator. Each has
/// its own copy of the variables. Values from the servers are copied between two of its steps, so
/// that parameters never change during a step. Source: spec/fleet.md section 14, spec/ps_runtime.md
/// section 5.
///
/// Thread-safety: different workers may call run() and leave() concurrently.
class TrainerWorkers {
 public:
  /// Prepares the program for one worker, given its number and scope.
  using Prepare =
      std::function<StatusOr<std::unique_ptr<executor::PreparedProgram>>(int worker, Scope& scope)>;
  /// \param program       each worker gets copies of its persistable variables
  /// \param scope         holds them, and receives the communicator's values; must outlive the
  /// result
  /// \param communicator  null: the ops of the program send and receive
  /// Errors: those of prepare; kResource.
  static StatusOr<std::unique_ptr<TrainerWorkers>> create(int count, const Program& program,
                                                          Scope& scope,
                                                          ps::Communicator* communicator,
                                                          const Prepare& prepare);

  [[nodiscard]] int count() const { return static_cast<int>(workers_.size()); }
  /// Runs one step of one worker. Errors: those of the ops and the communicator.
  Status run(int worker, const executor::NamedValues& feeds,
             const std::vector<std::string>& fetches, std::vector<Value>& values);
  /// All workers run steps again, after they have left. No worker may run meanwhile.
  void join();
  /// Marks a worker as finished: the others do not wait for it.
  Status leave();
  /// Copies the variables that no server holds from the first worker to the scope.
  Status finish();

  void observe(ps::CallTrace* trace);
  [[nodiscard]] double send_seconds() const;
  [[nodiscard]] double wait_seconds() const;

 private:
  struct Worker {
    Scope scope;
    std::unique_ptr<executor::PreparedProgram> prepared;
    TransferClock clock;
    int64_t receives = 0;  ///< receive count of the communicator when its values were last copied
  };
  TrainerWorkers() = default;
  Status take_received(Worker& worker);

  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<std::string> names_;     ///< persistable variables
  std::vector<std::string> received_;  ///< those of them that the communicator receives
  Scope* scope_ = nullptr;
  ps::Communicator* communicator_ = nullptr;
  std::mutex taking_;  ///< guards the received variables of scope_
};

}  // namespace millrace::jobs

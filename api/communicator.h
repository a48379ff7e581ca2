#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "api/connection.h"
#include "api/scope.h"
#include "executor/array.h"
#include "framework/base/status.h"

namespace millrace {
class Program;
}

namespace millrace::api {

/// Settings of a communicator.
struct CommunicatorOptions {
  int trainer = 0;  ///< number of this trainer, from 0
  /// Settings by name, as the original has them: FLAGS_communicator_max_merge_var_num, ...
  std::map<std::string, std::string> settings = {};
  int cpu_num = 1;  ///< threads that run steps, at least 1; half-async: barrier() waits for them
  std::chrono::milliseconds deadline{180'000};  ///< longest time of one call to a server;
                                                ///< settings may shorten it
  std::chrono::milliseconds heartbeat{0};       ///< interval of signs of life; 0: none
  Log log = {};                                 ///< servers that are not up yet
};

/// Moves gradients and parameters between one trainer and its servers in the background, while the
/// caller computes gradients in any way: the Communicator of the original, without its global
/// state. A Trainer has one of its own; this class is for programs that compute themselves.
///
///   open, start, recv; for each step: compute, send() each gradient, finish_step(); stop, close
///
/// Which vars are sent and received, in which slices, and the mode (async or half-async) come from
/// a trainer's program that was distributed with `runtime_split_send_recv`.
/// After a failed call to a server every further call returns that error. Movable while it is not
/// running. Thread-safety: send(), send_rows(), barrier() and leave() may be called concurrently;
/// everything else from one thread.
class Communicator {
 public:
  /// Connects to the servers of the program, waiting for them until the deadline.
  /// \param program  main program of the trainer; is not run
  /// Errors: kInvalidArgument for a setting out of range, and for a program that sends nothing
  /// through a communicator; kDistributed.
  static StatusOr<Communicator> open(const Program& program, const Connection& connection,
                                     const CommunicatorOptions& options = {});
  Communicator(Communicator&&) noexcept;
  Communicator& operator=(Communicator&&) noexcept;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  /// Drops values that wait to be sent. Without close(), servers wait for this trainer until they
  /// take it for lost.
  ~Communicator();

  /// Names of the gradients that are sent and of the parameters that are received, sorted.
  [[nodiscard]] std::vector<std::string> sent_vars() const;
  [[nodiscard]] std::vector<std::string> received_vars() const;
  /// Settings that were changed or have no effect, one line each.
  [[nodiscard]] std::vector<std::string> remarks() const;

  /// Starts the threads.
  Status start();
  /// Sends everything that waits, then ends the threads. Errors: the first failure since start();
  /// kDistributed if not everything was sent by the deadline.
  Status stop();
  [[nodiscard]] bool is_running() const;

  /// Copies a gradient and returns, unless the queue of the var is full: then it waits. Values that
  /// are sent together are merged. \param value  dims of the whole var
  /// Errors: kNotFound for a var that is not sent; kInvalidArgument if the communicator is not
  /// running, or for dims that differ from those of queued values; kDistributed if the queue stays
  /// full until the deadline.
  Status send(const std::string& var, const Array& value);
  /// The same for the gradient of an embedding. Errors: as send(); those of Scope::set_rows().
  Status send_rows(const std::string& var, const Rows& value);
  /// Half-async: the end of the batch of one of cpu_num threads; when all have arrived, their
  /// values are sent and parameters received. Async: no effect. Errors: kDistributed.
  Status barrier();
  /// A thread runs no more steps: barrier() waits for one thread less.
  Status leave();

  /// Receives all parameters into the scope; returns when they are there. Errors: kDistributed.
  Status recv(const Scope& scope);
  /// The end of a step: moves parameters that have arrived into the scope, without waiting.
  Status finish_step(const Scope& scope);

  /// Messages sent and parameters received since start().
  struct Counts {
    int64_t sends = 0;     ///< messages, one for all slices of a var
    int64_t merged = 0;    ///< values in these messages
    int64_t receives = 0;  ///< parameters received
  };
  [[nodiscard]] Counts counts() const;

  /// Leaves the job: servers no longer wait for this trainer. Call it after stop(). Errors:
  /// kInvalidArgument while it is running; kDistributed.
  Status close();

 private:
  struct Parts;
  explicit Communicator(std::unique_ptr<Parts> parts);
  PartsPtr<Parts> parts_;
};

}  // namespace millrace::api

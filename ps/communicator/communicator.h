#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "framework/base/status.h"
#include "framework/program.h"
#include "framework/tensor/scope.h"
#include "ps/communicator/comm_context.h"
#include "ps/communicator/comm_options.h"
#include "ps/communicator/sender.h"

namespace millrace::ps {

/// Moves gradients and parameters between one trainer and its servers while the trainer computes.
///
/// One step of the trainer: its program runs; send() is called for each of its gradients (geo: for
/// the ids of each table); in sync and half-async, barrier(); then finish_step(). The
/// communicator's threads never touch the trainer's scope: received values are kept until
/// finish_step() or adopt().
///
/// After a failed call to the servers, every further call returns that error, and so does stop().
/// Thread-safety: send(), barrier(), leave() and adopt() may be called concurrently; everything
/// else from one thread.
/// Source: spec/ps_runtime.md section 5.
class Communicator {
 public:
  /// \param sender  may be shared; must stay usable as long as the communicator exists
  /// Errors: kInvalidArgument for options out of range.
  static StatusOr<std::unique_ptr<Communicator>> create(CommMode mode, CommunicatorOptions options,
                                                        std::shared_ptr<Sender> sender);
  /// The first form of the original: contexts come from the send and recv ops of a trainer program,
  /// whose recv ops get the attribute `do_not_run`. The mode is half-async if the program has a
  /// half-async send_barrier, else async. For a program that is not split at run time, a sync
  /// program or an empty one, the result is a communicator that does nothing.
  static StatusOr<std::unique_ptr<Communicator>> of_program(Program& program,
                                                            CommunicatorOptions options,
                                                            std::shared_ptr<Sender> sender);
  /// The later form, with the mode as a number (1 to 3). For geo:
  /// \param push_vars  receive contexts of the parameters; names of the deltas are derived from
  ///                   theirs
  /// \param trainers   > 0
  /// \param push_nums  steps between pushes, > 0
  /// Errors: kInvalidArgument for an unknown mode, or for geo arguments that are missing or not >
  /// 0.
  static StatusOr<std::unique_ptr<Communicator>> of_program(Program& program, int mode,
                                                            const CommContexts& push_vars,
                                                            int trainers, int push_nums,
                                                            CommunicatorOptions options,
                                                            std::shared_ptr<Sender> sender);
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  /// Stops without flushing; values that wait to be sent are dropped.
  ~Communicator();

  [[nodiscard]] CommMode mode() const;
  [[nodiscard]] const CommunicatorOptions& options() const;
  /// Forced values and calls that had no effect.
  [[nodiscard]] const Remarks& remarks() const;

  /// \param send     what is sent, by var; in geo the parameters, with the servers' names of their
  ///                 deltas
  /// \param receive  what is received, by var or table; in geo the parameters
  /// Errors: kInvalidArgument if the communicator is running, if a var is in two contexts, or if
  /// the numbers of slices, endpoints and sections differ.
  Status init_with_ctx(CommContexts send, CommContexts receive);
  [[nodiscard]] const CommContexts& send_contexts() const;
  [[nodiscard]] const CommContexts& receive_contexts() const;

  /// Starts the threads. A second call has no effect except a remark.
  /// \param scope  geo: the current parameters count as known to the servers; else unused
  /// Errors: geo: kNotFound for a parameter without a value, kUnimplemented for its element type.
  Status start(Scope* scope = nullptr);
  /// Sends everything that waits, then ends the threads. No effect if the communicator is not
  /// running.
  /// Errors: the first failure since start(); kDistributed if not everything was sent by the
  /// deadline.
  Status stop();
  [[nodiscard]] bool is_running() const;

  /// Sends a gradient: copies it and returns without waiting, unless the queue of the var is full.
  /// Geo: sends ids of rows that this step has looked up.
  /// Errors: kNotFound for a var that no context sends; kInvalidArgument if the communicator is not
  /// running, or if dims differ from those of queued values; kDistributed if the queue stays full
  /// until the deadline.
  Status send(std::string_view var, const Value& value);
  /// The same without a copy.
  Status send(std::string_view var, Value&& value);
  /// True if a context sends the var.
  [[nodiscard]] bool sends(std::string_view var) const;

  /// Sync and half-async: called by a thread at the end of its batch. When all threads that run
  /// steps have arrived, their values are merged and sent, and parameters are received; then all
  /// threads continue. Other modes: no effect. Errors: kDistributed if not all threads arrive by
  /// the deadline; later calls fail with the same error.
  Status barrier();
  /// Sets the number of threads that barrier() waits for; initially cpu_num.
  void set_barrier_trigger(int threads);
  /// Called by a thread that runs no more steps: barrier() waits for one thread less.
  Status leave();

  /// Moves parameters received since the last call into their vars. Never waits.
  Status adopt(Scope& scope);
  /// The same for one var. \returns whether there was a new value
  StatusOr<bool> adopt(std::string_view var, Value& live);
  /// The end of a training step: adopt(), but no other thread may access the scope meanwhile, since
  /// vars swap memory with the received values. In geo, every max_merge_var_num-th step pushes the
  /// difference, after waiting for the previous push if that is still in progress.
  Status finish_step(Scope& scope);

  /// Receives all dense parameters into the scope; returns when they are there.
  Status recv(Scope& scope);
  /// Trainer 0 sends its values of all receive contexts to the servers; the others wait for that
  /// and receive them.
  Status init_params(Scope& scope);
  /// Receives the parameters of one table into the scope; returns when they are there. Errors:
  /// kNotFound for the table.
  Status pull_dense(Scope& scope, int table_id);
  /// Replaces the servers' value of a sparse parameter by the trainer's.
  /// \param table_id  negative: the table of the var's send context
  /// Errors: kInvalidArgument if the communicator is not running or the var belongs to another
  /// table; kNotFound.
  Status push_sparse_param(std::string_view var, int table_id, Scope& scope);

  /// Messages sent and parameters received since start(), for tests and metrics.
  struct Counts {
    int64_t sends = 0;     ///< messages (one for all slices of a context)
    int64_t merged = 0;    ///< batches in these messages
    int64_t receives = 0;  ///< contexts received
    int64_t pushes = 0;    ///< geo: pushes of differences
  };
  [[nodiscard]] Counts counts() const;

 private:
  class Impl;
  explicit Communicator(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// Contexts of the send ops of a trainer program that is split at run time (they have
/// `send_varnames`); other send ops do not use a communicator. Errors: kInvalidProgram with the
/// op's location if the numbers of names, endpoints and sections differ.
StatusOr<CommContexts> send_contexts_of(const Program& program);
/// Contexts of the recv ops with `recv_varnames`; errors as above.
StatusOr<CommContexts> receive_contexts_of(const Program& program);

}  // namespace millrace::ps

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
/// A step of the trainer is: its program runs; send() for each of its gradients (geo: for the ids
/// of each table); in sync and half-async barrier(); finish_step(). Threads of the communicator
/// never touch the trainer's scope: what they receive waits until finish_step() or adopt().
///
/// After a failed call to the servers every further call returns that error, and so does stop().
/// Thread-safety: send(), barrier(), leave() and adopt() from several threads at once; everything
/// else from one. Source: spec/ps_runtime.md section 5.
class Communicator {
 public:
  /// \param sender  shared with nobody who would close it earlier
  /// Errors: kInvalidArgument for options out of range.
  static StatusOr<std::unique_ptr<Communicator>> create(CommMode mode, CommunicatorOptions options,
                                                        std::shared_ptr<Sender> sender);
  /// The first form of the original: contexts come from the send and recv ops of a trainer program,
  /// whose recv ops get `do_not_run`. The mode is half-async if the program has a send_barrier of
  /// that kind, else async. A program that is not split at run time, a sync one or an empty one
  /// gives a communicator that runs and does nothing.
  static StatusOr<std::unique_ptr<Communicator>> of_program(Program& program,
                                                            CommunicatorOptions options,
                                                            std::shared_ptr<Sender> sender);
  /// The later form, with the mode as a number (1 to 3). For geo:
  /// \param push_vars  receive contexts of the parameters; deltas have names after theirs
  /// \param trainers   > 0
  /// \param push_nums  steps from one push to the next, > 0
  /// Errors: kInvalidArgument for an unknown mode, or geo arguments that are missing or not > 0.
  static StatusOr<std::unique_ptr<Communicator>> of_program(Program& program, int mode,
                                                            const CommContexts& push_vars,
                                                            int trainers, int push_nums,
                                                            CommunicatorOptions options,
                                                            std::shared_ptr<Sender> sender);
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  /// Stops without flushing; what waits is dropped.
  ~Communicator();

  [[nodiscard]] CommMode mode() const;
  [[nodiscard]] const CommunicatorOptions& options() const;
  /// Values that were forced, calls without effect.
  [[nodiscard]] const Remarks& remarks() const;

  /// \param send     what is sent, by var; in geo the parameters, with the names that the servers
  ///     have for deltas
  /// \param receive  what is received, by var or table; in geo the parameters
  /// Errors: kInvalidArgument if it runs, if a var is in two contexts or if the numbers of pieces
  /// disagree.
  Status init_with_ctx(CommContexts send, CommContexts receive);
  [[nodiscard]] const CommContexts& send_contexts() const;
  [[nodiscard]] const CommContexts& receive_contexts() const;

  /// Starts the threads. A second call has no effect but a remark.
  /// \param scope  geo: what the parameters are now counts as known to the servers; unused else
  /// Errors: geo: kNotFound for a parameter without value, kUnimplemented for its element type.
  Status start(Scope* scope = nullptr);
  /// Sends all that waits, ends the threads. No effect if it does not run.
  /// Errors: the first failure since start(); kDistributed if the rest was not sent by the
  /// deadline.
  Status stop();
  [[nodiscard]] bool is_running() const;

  /// Takes a gradient: copies it once and returns, unless the queue of the var is full. Geo: ids
  /// of rows that this step has looked up.
  /// Errors: kNotFound for a var that no context sends; kInvalidArgument if it does not run, or if
  /// dims differ from those that wait; kDistributed if the queue stays full to the deadline.
  Status send(std::string_view var, const Value& value);
  /// The same without a copy.
  Status send(std::string_view var, Value&& value);
  /// True if some context sends the var.
  [[nodiscard]] bool sends(std::string_view var) const;

  /// Sync and half-async: the end of a thread's batch. When as many threads are here as run steps,
  /// what they brought is merged and sent, and parameters are received; then all go on. Other
  /// modes: nothing.
  Status barrier();
  /// Threads that barrier() waits for from now on; at first cpu_num.
  void set_barrier_trigger(int threads);
  /// A thread runs no more steps: one less for barrier() to wait for.
  Status leave();

  /// Puts parameters that came since the last call into their vars. Never waits.
  Status adopt(Scope& scope);
  /// The same for one var. \returns whether something new was there
  StatusOr<bool> adopt(std::string_view var, Value& live);
  /// The end of a step of a trainer: adopt(), but while nobody else may look at the scope, since
  /// memory of vars changes hands with what was received; in geo the difference is pushed after
  /// every max_merge_var_num-th step, after a wait if the last ones are still on their way.
  Status finish_step(Scope& scope);

  /// Receives all dense parameters into the scope, now.
  Status recv(Scope& scope);
  /// Trainer 0 gives the servers its values of all receive contexts, the others wait for that and
  /// receive them.
  Status init_params(Scope& scope);
  /// Receives the parameters of one table into the scope, now. Errors: kNotFound for the table.
  Status pull_dense(Scope& scope, int table_id);
  /// Gives the servers the trainer's value of a sparse parameter.
  /// \param table_id  negative: the table of the var's send context
  /// Errors: kInvalidArgument if it does not run or the table is another's; kNotFound.
  Status push_sparse_param(std::string_view var, int table_id, Scope& scope);

  /// Messages sent and parameters received since start(), for tests and metrics.
  struct Counts {
    int64_t sends = 0;     ///< messages (one for all pieces of a context)
    int64_t merged = 0;    ///< batches that were in them
    int64_t receives = 0;  ///< of a context
    int64_t pushes = 0;    ///< geo: rounds of differences
  };
  [[nodiscard]] Counts counts() const;

 private:
  class Impl;
  explicit Communicator(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// Contexts of the send ops of a trainer program that is split at run time (they have
/// `send_varnames`); others are not for a communicator. Errors: kInvalidProgram with the op's place
/// if the numbers of names, endpoints and sections disagree.
StatusOr<CommContexts> send_contexts_of(const Program& program);
/// Contexts of the recv ops with `recv_varnames`, as above.
StatusOr<CommContexts> receive_contexts_of(const Program& program);

}  // namespace millrace::ps

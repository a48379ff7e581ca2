#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "framework/base/boot_clock.h"
#include "ps/metrics/metrics.h"
#include "ps/protocol/messages.h"
#include "ps/server/async_pushes.h"
#include "ps/server/server_core.h"
#include "ps/server/server_term.h"
#include "ps/server/snapshots.h"
#include "ps/server/sync_steps.h"
#include "ps/transport/transport.h"

namespace millrace::ps {

class TableFiles;

/// A parameter server: handles the calls of its trainers until all have left.
///
/// Every call is checked first: job, epoch, trainer. A repeated call, recognized by its sequence
/// number, is answered but not carried out again. Source: spec/ps_runtime.md section 1.
class Service final : public Handler {
 public:
  /// \param op  listen_and_serv or fl_listen_and_serv; its program, scope and runtime must outlive
  ///     the service
  /// Errors: those of ServerCore::create().
  static StatusOr<std::unique_ptr<Service>> create(const executor::Runtime& runtime, const Op& op,
                                                   Scope& scope, ServerOptions options);

  Status handle(const Request& request, Deadline deadline, ReplySink& reply) override;
  /// True for a trainer after its hello, also if this server has only loaded the record of it.
  /// Errors: what a call that needs a hello gets without one.
  [[nodiscard]] StatusOr<bool> knows(const Request& envelope) const override;
  void heard(const Request& envelope) override;

  /// Writes the term of this server beside its snapshots; calls wait for that. Then applies steps
  /// until all trainers have left or stop() was called. Afterwards, or after an error, every call
  /// returns an error.
  /// Errors: those of ServerTerm::write() and of the optimize blocks; kDistributed for a trainer
  /// that is lost or never connected, if every trainer is lost, and if another server has begun a
  /// later term.
  Status serve();
  uint64_t term() const override;
  Status begin_term(uint64_t term) override;
  /// True once serve() returns because all trainers have left. Thread-safety: any thread.
  bool has_finished() const override { return finished_; }
  /// Makes serve() return this error. Thread-safety: any thread.
  void end(Status why) override { core_->fail(std::move(why)); }
  /// Makes serve() return after the current step. Thread-safety: any thread.
  void stop();
  /// Sets where serve() writes metrics of the server, about twice a second. Call it before serve();
  /// `metrics` must outlive the service.
  void publish_to(Metrics& metrics) { metrics_ = &metrics; }

  [[nodiscard]] uint64_t epoch() const { return core_->epoch; }

 private:
  explicit Service(std::unique_ptr<ServerCore> core) : core_(std::move(core)) {}
  /// A call that is being carried out.
  struct Call {
    const Request& request;
    Deadline deadline;
    ReplySink& reply;
    bool repeat = false;  ///< it was carried out before
    [[nodiscard]] int trainer() const { return request.caller.trainer; }
  };
  /// Rows of the table of methods.
  struct MethodRow;
  template <typename Message, Status (Service::*handler)(const Call&, const Message&)>
  static Status unpack_and_handle(Service& service, const Call& call);
  static const MethodRow* find_method(Method method);

  Status answer(const Request& request, Deadline deadline, ReplySink& reply);
  Status once(const MethodRow& row, Call call);
  /// Checks a call of a trainer, which then counts as inside. Errors: those of
  /// end_if_superseded(), ServerCore::check_served().
  Status admit(const Request& request, Deadline deadline);
  /// Ends the server if a trainer of its job has spoken to another one that serves in its place.
  /// The caller must hold the mutex. Errors: those of ServerCore::check_epoch().
  Status end_if_superseded(const Request& request);

  Status hello(const Call& call, const protocol::Hello& message);
  Status send(const Call& call, const protocol::Send& message);
  Status get(const Call& call, const protocol::Get& message);
  Status get_now(const Call& call, const protocol::GetNow& message);
  Status prefetch(const Call& call, const protocol::Prefetch& message);
  Status send_barrier(const Call& call, const protocol::SendBarrier& message);
  Status fetch_barrier(const Call& call, const protocol::FetchBarrier& message);
  Status complete(const Call& call, const protocol::Complete& message);
  Status checkpoint(const Call& call, const protocol::Checkpoint& message);
  Status count(const Call& call, const protocol::Count& message);
  Status run(const Call& call, const protocol::Run& message);
  Status pull(const Call& call, const protocol::Pull& message);
  Status push(const Call& call, const protocol::Push& message);
  Status barrier(const Call& call, const protocol::Barrier& message);
  Status watch(const Call& call, const protocol::Watch& message);
  Status end_by_call(const Call& call, const protocol::Stop& message);
  Status go_to(const Call& call, const protocol::GoTo& message);
  Status agree_on_loss(const Call& call, const protocol::Loss& message);

  void count_rows(const std::vector<RequestItem>& items) const;
  Status send_gradients(const Request& request, const std::vector<RequestItem>& vars);
  Status put_vars(const Call& call, const std::vector<std::string>& names);
  Status save_var(const Call& call, const protocol::SaveVar& what);
  /// The typed tables. Errors: kUnimplemented for a server without them.
  [[nodiscard]] StatusOr<TableHandler*> tables() const;
  /// What saves and loads typed tables. Errors: kUnimplemented for a server without it.
  [[nodiscard]] StatusOr<TableFiles*> table_files() const;
  /// Runs the block of a message. Errors: those before the block has changed anything; later ones
  /// are in the reply.
  StatusOr<KeptReplies::Reply> run_block(const protocol::Run& message);
  /// Keeps a reply for repeats of the call, and returns it.
  std::shared_ptr<const KeptReplies::Reply> keep_reply(const Call& call, KeptReplies::Reply reply);
  Status wait_at_barrier(const Call& call, CommBarrier kind);
  /// The snapshot of the step, or, unless the server is elastic, of the greatest step before.
  /// Errors: kNotFound where there is none.
  [[nodiscard]] StatusOr<Snapshots::Found> find_snapshot(int64_t step) const;
  /// Restarts a step for a trainer; an earlier one from the snapshot of that step. The other
  /// trainers have to go to that step, too, by go_to(). An elastic server without that snapshot
  /// ends.
  Status go_back(std::unique_lock<std::mutex>& lock, const Call& call,
                 const protocol::GoTo& message, const StepRules::Move& move);
  /// Goes back to a step before the one that a trainer asks for. Errors: always; kDistributed once
  /// it has done so, and the trainer has to ask all servers for their steps again.
  Status go_back_further(std::unique_lock<std::mutex>& lock, const Call& call,
                         const protocol::GoTo& message, const Snapshots::Found& found);
  /// Begins another run, with a snapshot if it is not null, without the `discarded` trainers until
  /// they have gone to its step.
  Status begin_run(std::unique_lock<std::mutex>& lock, const Call& call,
                   const std::vector<int>& discarded, const Snapshots::Found* found);
  /// Loads a snapshot, if there is one, and begins the term after that of the server that saved it.
  Status restore();
  /// Writes the term down; without snapshots there is nothing to do. The caller must hold the
  /// mutex. Errors: those of ServerTerm::write().
  Status claim_term();
  /// Waits until the term is written down. Errors: failure; kDistributed at the deadline.
  Status wait_for_term(std::unique_lock<std::mutex>& lock, Deadline deadline);
  /// After a pause of this process: ends the server if another one has begun a later term with the
  /// same snapshots. Looks at the disk only if this process was paused since the last time. The
  /// caller must hold the mutex. Errors: failure.
  Status check_after_pause();
  /// The same without a pause.
  Status check_term();
  /// Takes the first snapshot, to which other trainers may have to go back if the server is lost
  /// before the next one, as soon as there are values. The caller must hold the mutex. Errors: as
  /// take_snapshot().
  Status take_first(std::unique_lock<std::mutex>& lock);
  /// Errors: kUnimplemented for a call that changes values between steps, if this server takes
  /// snapshots of steps.
  [[nodiscard]] Status check_covered(const char* what) const;
  /// True if the vars and typed tables have the values of a job, so that there is something to
  /// save.
  [[nodiscard]] bool has_values() const;
  /// Takes a snapshot if one is due or `now` is true. The caller must hold the mutex, which is
  /// released meanwhile; trainers do not go back during it.
  Status snapshot(std::unique_lock<std::mutex>& lock, bool now);
  /// \param wait  return only when the snapshot is on disk
  Status take_snapshot(std::unique_lock<std::mutex>& lock, bool wait);
  /// Copies the state and starts to write it. The caller must hold the mutex, which is released
  /// meanwhile; calls that change variables wait.
  Status copy_snapshot(std::unique_lock<std::mutex>& lock, int64_t applied);
  /// After a failure: waits for a while so that live trainers can make a call and receive the
  /// error.
  void wait_until_notified(std::unique_lock<std::mutex>& lock);
  /// Detects lost trainers and logs which trainers wait. The caller must hold the mutex.
  Status check_trainers();
  /// Logs which trainers wait for which others, at intervals. The caller must hold the mutex.
  void report_waiting(Clock::time_point now);
  /// Stops serving a trainer of an elastic job. If other servers may have its gradients, the
  /// trainers agree with all of them on its last step first. The caller must hold the mutex.
  Status give_up(int id);
  /// The same for trainers that wait for an agreement, if no trainer is left that could ask for it.
  Status give_up_suspects();
  /// Stops serving a trainer until the servers have agreed on its last step. The caller must hold
  /// the mutex.
  void suspect(int id);
  /// The error of a server that lacks an update of a lost trainer that another one has applied.
  [[nodiscard]] Status lacks_step_of(int id, int64_t step) const;
  /// Ends a trainer at the step that the servers agreed on. Errors: kDistributed if this server has
  /// applied other steps.
  Status end_at(int id, int64_t step);
  /// Gives up a trainer: what it has not finished is dropped. The caller must hold the mutex.
  Status lose(int id);
  /// The error of an elastic job that lost every trainer; saves a snapshot first if the server
  /// takes any. The caller must hold the mutex.
  Status lost_everybody(std::unique_lock<std::mutex>& lock);
  /// Writes the metrics. The caller must hold the mutex.
  void publish();
  void publish_trainers();
  void publish_tables();
  /// Writes rows of a table to a file: all, or those that changed since the last request that
  /// compares them. The caller must hold `saving_` and the lock of the table.
  Status save_rows(const std::string& path, const std::string& table, const Value& value,
                   RowsToSave which);

  /// Arrivals at a barrier.
  struct ServerBarrierState {
    int64_t round = 0;
    std::set<int> arrived;
  };

  std::unique_ptr<ServerCore> core_;
  std::unique_ptr<SyncSteps> steps_;                  ///< synchronous servers
  std::unique_ptr<AsyncPushes> pushes_;               ///< asynchronous servers
  std::unique_ptr<Snapshots> snapshots_;              ///< null: no snapshots are taken
  std::unique_ptr<ServerTerm> term_;                  ///< null: no snapshots are taken
  bool has_claimed_ = true;                           ///< the term is written down
  Clock::duration checked_at_{0};                     ///< pauses when the term was last checked
  BootClock::duration suspended_ = suspended_time();  ///< at that time
  std::map<CommBarrier, ServerBarrierState> barriers_;
  int inside_ = 0;                ///< running calls with a sequence number
  int changing_ = 0;              ///< those of them that change variables (asynchronous servers)
  bool freezing_ = false;         ///< calls that change variables must wait
  bool going_back_ = false;       ///< no step may be applied
  bool saving_snapshot_ = false;  ///< serve() uses the snapshots without the mutex
  bool stopping_ = false;
  std::atomic<bool> finished_ = false;
  std::set<int> notified_;      ///< trainers that have received the failure
  bool restored_ = false;       ///< started from a snapshot
  bool has_first_ = false;      ///< no first snapshot is needed, or it was taken
  Clock::time_point started_;   ///< by ServerCore::now()
  Clock::time_point reported_;  ///< by ServerCore::now()

  Metrics* metrics_ = nullptr;
  int64_t carried_out_ = 0;  ///< calls with a sequence number that were carried out
  int64_t repeats_ = 0;      ///< repeats of such calls, which had no effect
  int64_t snapshots_taken_ = 0;
  int64_t snapshots_failed_ = 0;
  double snapshot_seconds_ = 0;  ///< time for which the last snapshot blocked the server
  std::chrono::system_clock::time_point snapshot_time_;

  std::mutex saving_;
  /// By table: a hash of each row as last written, for requests that save only changed rows.
  std::map<std::string, std::vector<uint64_t>> saved_rows_;
};

}  // namespace millrace::ps

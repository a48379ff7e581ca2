#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>

#include "ps/metrics/metrics.h"
#include "ps/server/async_pushes.h"
#include "ps/server/server_core.h"
#include "ps/server/snapshots.h"
#include "ps/server/sync_steps.h"
#include "ps/transport/transport.h"

namespace millrace::ps {

/// A parameter server: answers the calls of its trainers until all have left.
///
/// Every call is checked first: job, epoch, trainer; a call with a sequence number that was carried
/// out before is answered again, not carried out again. Source: spec/ps_runtime.md section 1.
class Service final : public Handler {
 public:
  /// \param op  listen_and_serv or fl_listen_and_serv; its program, scope and runtime must outlive
  ///     the service
  /// Errors: those of ServerCore::create().
  static StatusOr<std::unique_ptr<Service>> create(const executor::Runtime& runtime, const Op& op,
                                                   Scope& scope, ServerOptions options);

  Status handle(const Request& request, Deadline deadline, ReplySink& reply) override;

  /// Applies steps until all trainers have left or stop() was called. Then, or after an error,
  /// every call ends with an error.
  /// Errors: those of the optimize blocks; kDistributed for a trainer that is lost or never came.
  Status serve();
  /// Lets serve() return after the running step. Thread-safety: any thread.
  void stop();
  /// serve() writes numbers about the server there, about twice a second. Before serve(); metrics
  /// outlives the service.
  void publish_to(Metrics& metrics) { metrics_ = &metrics; }

  [[nodiscard]] uint64_t epoch() const { return core_->epoch; }

 private:
  explicit Service(std::unique_ptr<ServerCore> core) : core_(std::move(core)) {}
  Status check_epoch(const Request& request) const;
  Status answer(const Request& request, Deadline deadline, ReplySink& reply);
  Status hello(const Request& request, Deadline deadline, ReplySink& reply);
  Status once(const Request& request, Deadline deadline, ReplySink& reply);
  Status dispatch(const Request& request, Deadline deadline, ReplySink& reply, bool repeat);
  void count_rows(const Request& request) const;
  Status send(const Request& request, bool repeat);
  Status get(const Request& request, Deadline deadline, ReplySink& reply, bool repeat);
  Status get_without_barrier(const Request& request, ReplySink& reply);
  Status send_barrier(const Request& request, bool repeat);
  Status fetch_barrier(const Request& request, Deadline deadline, ReplySink& reply, bool repeat);
  Status put_vars(const Request& request, ReplySink& reply);
  Status prefetch(const Request& request, ReplySink& reply);
  Status complete(const Request& request, Deadline deadline);
  Status checkpoint(const Request& request, ReplySink& reply, bool repeat);
  Status count(const Request& request, bool repeat);
  Status run(const Request& request, ReplySink& reply);
  Status table_barrier(const Request& request, Deadline deadline);
  Status watch(ReplySink& reply);
  Status go_to(const Request& request, Deadline deadline, ReplySink& reply);
  /// Begins a step anew for a trainer, an earlier one with the snapshot of it. Others have to come
  /// to it by go_to(), too.
  Status go_back(std::unique_lock<std::mutex>& lock, int64_t step, int caller, Deadline deadline);
  /// True if others went back to the step that is next, and this trainer has not come to it yet.
  [[nodiscard]] bool must_settle(int trainer) const;
  /// Takes up a snapshot, where there is one to take up.
  Status restore();
  /// Takes one if it is due, or asked for. The caller holds the mutex.
  Status snapshot(std::unique_lock<std::mutex>& lock, bool now);
  /// \param wait  returns only when it is on the disk
  Status take_snapshot(std::unique_lock<std::mutex>& lock, bool wait);
  /// After a failure: gives the trainers that are there time to ask for something and hear of it.
  void wait_until_told(std::unique_lock<std::mutex>& lock);
  /// Looks for trainers that are lost, and reports. The caller holds the mutex.
  Status look_around();
  /// Writes the numbers. The caller holds the mutex.
  void publish();
  void publish_trainers();
  void publish_tables();
  /// The rows of a table that a request for a checkpoint wants: all, or those that changed since
  /// the last request of this kind.
  StatusOr<const Value*> rows_to_save(const std::string& table, const Value& value, int64_t mode,
                                      Value& changed);

  /// Arrivals at a barrier of its own name.
  struct NamedBarrier {
    int64_t round = 0;
    std::set<int> arrived;
  };

  std::unique_ptr<ServerCore> core_;
  std::unique_ptr<SyncSteps> steps_;      ///< synchronous servers
  std::unique_ptr<AsyncPushes> pushes_;   ///< the others
  std::unique_ptr<Snapshots> snapshots_;  ///< null: none are taken
  std::map<std::string, NamedBarrier> barriers_;
  int inside_ = 0;           ///< calls with a sequence number
  int changing_ = 0;         ///< asynchronous ones of them, which change variables
  bool freezing_ = false;    ///< no further ones for now
  bool going_back_ = false;  ///< no step is applied for now
  bool stopping_ = false;
  std::set<int> told_;     ///< trainers that have had the failure as an answer
  bool restored_ = false;  ///< began with a snapshot
  Clock::time_point started_;
  Clock::time_point reported_;

  Metrics* metrics_ = nullptr;
  int64_t carried_out_ = 0;  ///< calls with a sequence number
  int64_t repeats_ = 0;      ///< of such calls, which changed nothing
  int64_t snapshots_taken_ = 0;
  int64_t snapshots_failed_ = 0;
  double snapshot_seconds_ = 0;  ///< that the last one held the server up
  std::chrono::system_clock::time_point snapshot_time_;

  std::mutex saving_;
  /// A hash of each row as it was saved last, by table; for requests that want what has changed.
  std::map<std::string, std::vector<uint64_t>> saved_rows_;
};

}  // namespace millrace::ps

#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "ps/table/barrier_table.h"
#include "ps/table/sparse_table.h"
#include "ps/table/table.h"
#include "ps/table/table_steps.h"
#include "ps/transport/transport.h"

namespace millrace::ps {

/// Handles kPull, kPush and kTableBarrier for the typed tables of a server.
///
/// A request's `number` is the table (for a barrier: its phase, from 1). Its `text` selects the
/// variant (TableCall::what; the kind of barrier, or "leave"). The handler also responds to hellos,
/// and a trainer that completes leaves the barriers, so that the handler can be used as a complete
/// server. Repeated calls, recognised by their sequence numbers, are not carried out again.
/// Thread-safety: add() before the first call; handle() from any threads.
class TableHandler final : public Handler {
 public:
  /// \param trainers  number of trainers at barriers. The end of a "send" barrier applies pending
  ///                  pushes of all tables
  explicit TableHandler(int trainers);

  /// Errors: kInvalidArgument if the id already has a table.
  Status add(int id, std::unique_ptr<Table> table);
  /// Adds a sparse table to which synchronous steps of a program also push.
  /// \param shrink_every  steps per day; 0: days never end
  Status add_sparse(std::unique_ptr<SparseTable> table, int64_t shrink_every);
  /// Adds a sparse table to which all trainers push in every step. Pushes wait for the end of a
  /// "send" barrier; then each key gets one push with the mean of its gradients (TableSteps).
  Status add_synchronous(std::unique_ptr<SparseTable> table);
  /// Values that trainers send to those tables in a step.
  [[nodiscard]] TableSteps& steps() { return steps_; }
  /// The sparse tables that have a state, by id.
  [[nodiscard]] std::map<int, SparseTable*> sparse() const;
  /// Sets the handler of requests to save and load tables (kSaveTable, kLoadTable, kCountLoaded in
  /// ps/wire_names.h); without one they are refused. Call it before the first call.
  /// \param files  `repeat` is true for a repeat of a call that was carried out
  void answer_files(std::function<Status(const Request&, bool repeat, ReplySink&)> files) {
    files_ = std::move(files);
  }
  /// True for requests to save and load tables.
  static bool is_about_files(const Request& request);
  Status handle_files(const Request& request, bool repeat, ReplySink& reply);
  /// Ends all barriers: waiting and later calls return this error.
  void end(Status why) { barriers_.end(std::move(why)); }
  /// Forgets which pushes were carried out; for callers that filter repeats themselves.
  void forget_calls();
  /// Null if there is none.
  [[nodiscard]] Table* find(int id) const;
  [[nodiscard]] std::vector<int> ids() const;
  /// True for the methods that this class handles.
  static bool handles(Method method);

  Status handle(const Request& request, Deadline deadline, ReplySink& reply) override;

 private:
  /// Calls of one trainer that were carried out.
  struct Applied {
    uint64_t incarnation = 0;
    uint64_t low = 0;  ///< all numbers up to it were carried out
    std::set<uint64_t> done;
    std::set<uint64_t> running;
  };
  Status pull(const Request& request, ReplySink& reply);
  Status push(const Request& request);
  Status push_once(const Request& request, Deadline deadline);
  Status barrier(const Request& request, Deadline deadline);
  Status finish_step(const std::set<int>& arrived);
  Status leave(int trainer);
  StatusOr<Table*> table_of(const Request& request) const;
  Value take_spare();

  const int trainers_;
  std::map<int64_t, std::unique_ptr<Table>> tables_;
  TableSteps steps_;
  bool pushes_wait_ = false;  ///< pushes to some table wait for a barrier
  int64_t steps_done_ = 0;
  BarrierTable barriers_;
  std::function<Status(const Request&, bool, ReplySink&)> files_;  ///< may be empty
  std::mutex mutex_;
  std::condition_variable finished_;
  std::map<int, Applied> applied_;  ///< by trainer
  std::vector<Value> spare_;        ///< memory of replies
};

}  // namespace millrace::ps

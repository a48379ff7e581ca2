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

/// Answers kPull, kPush and kTableBarrier for the typed tables of a server.
///
/// A request's `number` is the table (of a barrier: its phase, from 1), its `text` says what is
/// meant (TableCall::what; the kind of barrier, or "leave"). It also says hello, and a trainer that
/// completes leaves the barriers, so that it can be a server of its own. A call with a sequence
/// number that was carried out already is not carried out again, whoever passes it on.
/// Thread-safety: add() before the first call; handle() from any threads.
class TableHandler final : public Handler {
 public:
  /// \param trainers  who meet at barriers. The end of a "send" barrier pours all tables
  explicit TableHandler(int trainers);

  /// Errors: kInvalidArgument if the id has a table.
  Status add(int id, std::unique_ptr<Table> table);
  /// A sparse table that synchronous steps of a program push to, too.
  /// \param shrink_every  steps that make a day; 0: none
  Status add_sparse(std::unique_ptr<SparseTable> table, int64_t shrink_every);
  /// A sparse table to which all trainers push in every step: pushes wait for the end of a "send"
  /// barrier, where each key gets one with the mean of its gradients (TableSteps).
  Status add_synchronous(std::unique_ptr<SparseTable> table);
  /// What trainers send to those tables in a step.
  [[nodiscard]] TableSteps& steps() { return steps_; }
  /// The sparse tables that have a state, by id.
  [[nodiscard]] std::map<int, SparseTable*> sparse() const;
  /// Answers requests to save and load tables (kSaveTable, kLoadTable, kCountLoaded in
  /// ps/wire_names.h); without it they are refused. Before the first call.
  /// \param files  is told whether the call is a repeat of one that was carried out
  void answer_files(std::function<Status(const Request&, bool repeat, ReplySink&)> files) {
    files_ = std::move(files);
  }
  /// True for such requests.
  static bool is_about_files(const Request& request);
  Status handle_files(const Request& request, bool repeat, ReplySink& reply);
  /// Nobody meets at barriers any more: whoever waits there gets this error.
  void end(Status why) { barriers_.end(std::move(why)); }
  /// Forgets which pushes were carried out: whoever passes calls on knows.
  void forget_calls();
  /// Null if there is none.
  [[nodiscard]] Table* find(int id) const;
  [[nodiscard]] std::vector<int> ids() const;
  /// True for the methods that it answers.
  static bool handles(Method method);

  Status handle(const Request& request, Deadline deadline, ReplySink& reply) override;

 private:
  /// Calls of one trainer that were carried out.
  struct Applied {
    uint64_t incarnation = 0;
    uint64_t low = 0;  ///< all numbers up to it
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
  bool pushes_wait_ = false;  ///< of some table
  int64_t steps_done_ = 0;
  BarrierTable barriers_;
  std::function<Status(const Request&, bool, ReplySink&)> files_;  ///< may be empty
  std::mutex mutex_;
  std::condition_variable finished_;
  std::map<int, Applied> applied_;  ///< by trainer
  std::vector<Value> spare_;        ///< memory of replies
};

}  // namespace millrace::ps

#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "ps/protocol/answers.h"
#include "ps/protocol/messages.h"
#include "ps/sequence_window.h"
#include "ps/table/barrier_table.h"
#include "ps/table/dense_table.h"
#include "ps/table/rate_table.h"
#include "ps/table/sparse_table.h"
#include "ps/table/table.h"
#include "ps/table/table_steps.h"
#include "ps/transport/transport.h"

namespace millrace::ps {

/// Saves and loads the typed tables of a server in files. Thread-safety: any threads.
class TableFiles {
 public:
  TableFiles() = default;
  TableFiles(const TableFiles&) = delete;
  TableFiles& operator=(const TableFiles&) = delete;
  virtual ~TableFiles() = default;

  /// \param repeat  true for a repeat of a call that was carried out: reports the same file
  /// Errors: those of protocol::SaveTable.
  virtual StatusOr<protocol::SavedFile> save(const protocol::SaveTable& what, bool repeat) = 0;
  /// \param repeat  true for a repeat of a call that was carried out: loads nothing
  /// Errors: those of protocol::LoadTable.
  virtual Status load(const protocol::LoadTable& what, bool repeat) = 0;
  /// Number of dense tables loaded since the server started.
  [[nodiscard]] virtual int64_t loaded() const = 0;
};

/// Carries out calls for the typed tables of a server.
///
/// A Service calls the functions for single messages. handle() makes the object a complete server
/// by itself: it responds to Pull, Push, Barrier and Hello, and a trainer that completes leaves the
/// barriers. Thread-safety: add() and set_files() before the first call; the rest from any threads.
class TableHandler final : public Handler {
 public:
  /// \param trainers  number of trainers at barriers
  explicit TableHandler(int trainers);

  /// Errors: kInvalidArgument if the id already has a table, or for a synchronous dense table.
  Status add(int id, std::unique_ptr<Table> table);
  /// Adds a sparse table to which synchronous steps of a program also push.
  /// \param shrink_every  steps per day; 0: days never end
  Status add_sparse(std::unique_ptr<SparseTable> table, int64_t shrink_every);
  /// Adds a table of a synchronous server. Trainers send its gradients, or the rate, with the send
  /// barriers of steps (TableSteps); pushes of updates are refused.
  Status add_in_steps(std::unique_ptr<SparseTable> table);
  Status add_in_steps(std::unique_ptr<DenseTable> table);
  Status add_in_steps(int id, std::unique_ptr<RateTable> table);
  /// True if there is such a table.
  [[nodiscard]] bool has_steps() const { return !in_steps_.empty(); }
  /// Trainers set the first values. Until then pulls and pushes of updates are refused: this server
  /// may have been started again in the middle of a job.
  void wait_for_values() { waits_for_values_ = true; }
  [[nodiscard]] bool waits_for_values() const { return waits_for_values_; }
  /// True if the tables have the values of a job: they need none, a snapshot was loaded, trainers
  /// have met after setting them (a kInit barrier), or, in steps, all dense tables are set.
  [[nodiscard]] bool is_ready() const;
  /// Errors: kDistributed if not is_ready(). A trainer that is done must not end well then: what it
  /// has sent is lost with the server that had it.
  [[nodiscard]] Status check_ready() const;
  /// A snapshot was loaded. Barriers continue at the phases that trainers name.
  void resume();
  /// Values that trainers send to those tables in a step.
  [[nodiscard]] TableSteps& steps() { return steps_; }
  [[nodiscard]] std::map<int, SparseTable*> sparse() const;
  /// Sets what saves and loads tables; it must outlive this object.
  void set_files(TableFiles& files) { files_ = &files; }
  /// Null: tables are not saved or loaded by calls.
  [[nodiscard]] TableFiles* files() const { return files_; }
  /// Ends all barriers: waiting and later calls return this error.
  void end(Status why) override { barriers_.end(std::move(why)); }
  /// Null if there is none.
  [[nodiscard]] Table* find(int id) const;
  [[nodiscard]] std::vector<int> ids() const;

  /// Puts what is pulled into the reply. \param from  the envelope of the call
  /// Errors: those of protocol::Pull.
  Status pull(const Request& from, const protocol::Pull& pull, ReplySink& reply);
  /// Carries a push out. The caller has filtered repeats. \param from  the envelope of the call
  /// Errors: those of protocol::Push.
  Status push(const Request& from, const protocol::Push& push);
  /// Errors: those of BarrierTable::arrive().
  Status arrive(const protocol::TableBarrier& barrier, int trainer, Deadline deadline);
  /// A trainer is done or lost: barriers no longer wait for it. Errors: those of
  /// BarrierTable::leave().
  Status leave(int trainer) { return barriers_.leave(trainer); }
  /// Another process replaces a trainer that left. Errors: those of BarrierTable::join().
  Status join(int trainer) { return barriers_.join(trainer); }

  Status handle(const Request& request, Deadline deadline, ReplySink& reply) override;

 private:
  /// Pushes of one trainer that were carried out by push_once().
  struct Carried {
    uint64_t incarnation = 0;
    SequenceWindow window;
  };
  /// Carries a push out unless one with its number was. Errors: also kDistributed if the first call
  /// does not end by the deadline.
  Status push_once(const Request& from, Deadline deadline);
  /// Forgets pushes that the caller will not repeat.
  void settle(const Caller& caller, uint64_t number);
  /// The caller must hold the mutex.
  Carried& carried_of(const Caller& caller);
  Status barrier(const Request& request, Deadline deadline);
  /// Errors: kInvalidArgument if the id already has a table.
  Status insert(int id, std::unique_ptr<Table> table);
  [[nodiscard]] Status check_update(int64_t id) const;
  [[nodiscard]] StatusOr<Table*> table_of(int64_t id) const;
  Value take_spare();

  std::map<int64_t, std::unique_ptr<Table>> tables_;
  TableSteps steps_;
  std::set<int64_t> in_steps_;  ///< tables of add_in_steps()
  bool waits_for_values_ = false;
  mutable std::atomic<bool> has_begun_ = false;  ///< is_ready() stays true
  BarrierTable barriers_;
  TableFiles* files_ = nullptr;
  std::mutex mutex_;
  std::condition_variable finished_;
  std::map<int, Carried> carried_;  ///< by trainer
  std::vector<Value> spare_;        ///< memory of replies
};

}  // namespace millrace::ps

#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <vector>

#include <llvm/ADT/StringMap.h>

#include "executor/parallel/device_threads.h"
#include "executor/runtime.h"
#include "framework/base/pause_watch.h"
#include "framework/base/status.h"
#include "framework/program.h"
#include "framework/tensor/scope.h"
#include "ps/server/serve_plan.h"
#include "ps/server/server_block.h"
#include "ps/server/trainers.h"
#include "ps/server/var_guards.h"
#include "ps/transport/transport.h"

namespace millrace::ps {

class KillPoint;
class TableHandler;

/// Settings of a server.
struct ServerOptions {
  std::string job;  ///< calls of other jobs are refused
  PlanFacts plan;   ///< what the server's program does not say about the distribution
  /// The index of this server among all, where its program does not say it (geo): it names the
  /// folder of its snapshots.
  std::optional<int> server;
  uint64_t epoch = 0;  ///< initial epoch; 0: a run of term 1 (ps/transport/epoch.h)
  int threads = 1;     ///< threads for update blocks, >= 1
  uint64_t seed = 0;
  /// How long to wait for all trainers at the start; 0: without limit.
  std::chrono::milliseconds start_timeout{180'000};
  /// A trainer that is silent for this long counts as lost; 0: never.
  std::chrono::milliseconds silence_timeout{0};
  /// Interval of log lines that say which trainers wait for which others; 0: none.
  std::chrono::milliseconds report_interval{30'000};
  double dc_lambda = 1;        ///< strength of delay compensation (DC-ASGD)
  bool continues = false;      ///< parameters were loaded: schedules continue from their counters
  bool elastic = false;        ///< the job continues without a lost trainer
  std::string files_root;      ///< folder for the files of checkpoint requests; empty: refused
  std::string snapshot_root;   ///< folder for snapshots; empty: none are taken
  int64_t snapshot_every = 0;  ///< steps between snapshots (synchronous servers); 0: none
  std::chrono::milliseconds snapshot_interval{0};  ///< time between snapshots; 0: none
  /// Trainers wait after each step until its snapshot is on disk, so that a restarted server has
  /// lost nothing.
  bool snapshot_durable = false;
  /// Handles pulls and pushes of typed tables, and table barriers with a phase (TableHandler); must
  /// outlive the server. Null: the server has no such tables.
  TableHandler* tables = nullptr;
  /// Where the process kills itself, for tests; null: nowhere.
  std::shared_ptr<KillPoint> kill_point;
  std::function<void(const std::string&)> log;  ///< receives log lines; may be empty
};

/// A var that calls may name.
struct ServerVar {
  const Var* var = nullptr;
  Value* value = nullptr;
  std::shared_mutex* mutex = nullptr;  ///< lock shared to read the value, exclusively to write it
};

/// State shared by the components of one server: its program, its vars with their locks, its
/// compiled blocks, and the state that waiting calls depend on.
class ServerCore {
 public:
  /// \param op  listen_and_serv; its program, scope and runtime must outlive the result
  /// Errors: those of ServePlan::read() and of compilation.
  static StatusOr<std::unique_ptr<ServerCore>> create(const executor::Runtime& runtime,
                                                      const Op& op, Scope& scope,
                                                      ServerOptions options);
  ServerCore(const ServerCore&) = delete;
  ServerCore& operator=(const ServerCore&) = delete;

  ServePlan plan;
  ServerOptions options;
  /// Epoch of the server's state (ps/transport/epoch.h); increases when the server goes back to a
  /// snapshot. Calls with an older epoch are refused.
  std::atomic<uint64_t> epoch{0};
  /// Begins another run of the term and ends all waiting calls with an error. The caller must hold
  /// the mutex.
  void begin_run();
  /// Sets the term; no call may have been answered yet.
  void set_term(uint64_t term);
  /// How long this process did not run: trainers are not blamed for that time.
  PauseWatch pauses;
  /// The time by which trainers are judged: it stands still while this process is paused.
  [[nodiscard]] Clock::time_point now() const { return pauses.now(); }

  [[nodiscard]] const Program& program() const { return program_; }
  [[nodiscard]] const llvm::StringMap<ServerVar>& vars() const { return vars_; }
  /// Errors: kNotFound naming the var.
  [[nodiscard]] StatusOr<const ServerVar*> find_var(llvm::StringRef name) const;
  /// Locks all vars against changes as long as the result exists.
  [[nodiscard]] std::vector<std::unique_lock<std::shared_mutex>> freeze() const {
    return guards_->lock_all();
  }
  /// The compiled block of an index; never null for blocks of the plan.
  [[nodiscard]] ServerBlock* block(int32_t index) const;
  /// Runs blocks in parallel; run() is called for each block, from several threads.
  /// \returns the error of the first block in order that failed
  Status run_group(llvm::ArrayRef<int32_t> blocks,
                   llvm::function_ref<Status(ServerBlock&)> run) const;

  /// Copies a var into a reply. Errors: kNotFound; kExecution for a var without a value.
  Status put_var(llvm::StringRef name, ReplySink& reply) const;
  /// The same, for a caller that holds the lock.
  static Status put(llvm::StringRef name, const ServerVar& var, ReplySink& reply);
  /// The same into a pair of name and value.
  static Status copy(const std::string& name, const ServerVar& var,
                     std::pair<std::string, Value>& to);

  /// Compares a value with the declaration of a var. Errors: kInvalidArgument naming the var, with
  /// expected and found.
  static Status check(const RequestItem& item, const ServerVar& to);
  /// Copies the value of an item into a var, under its lock. Errors: those of check(); kResource.
  static Status store(const RequestItem& item, const ServerVar& to);
  /// The same without check and lock, for a caller that has done both.
  static Status take(const RequestItem& item, Value& to);

  // ---- state of the run, guarded by mutex
  std::mutex mutex;
  std::condition_variable changed;  ///< signalled when anything below changes
  Trainers trainers;
  Status failure;  ///< returned by every waiting or new call

  /// Checks whether a call may still act: it is of the current epoch, and its trainer was neither
  /// lost nor replaced. To be asked again whenever the mutex was released. The caller must hold the
  /// mutex.
  /// Errors: those of check_epoch(), Trainers::check_served(); failure.
  [[nodiscard]] Status check_served(const Request& request) const;
  /// Errors: kDistributed for a call that names another run than this server's, or a higher term:
  /// then another process serves in place of this one (is_superseded_by()).
  [[nodiscard]] Status check_epoch(const Request& request) const;
  /// True if the call was made by a trainer that has spoken to a server of a higher term.
  [[nodiscard]] bool is_superseded_by(const Request& request) const;
  /// The error of a server in whose place another one serves.
  [[nodiscard]] Status superseded(uint64_t term) const;
  /// Waits until a condition holds, or until the call may not act any more. what() describes what
  /// is waited for, for the error. The deadline does not pass while this process is paused.
  /// Errors: those of check_served(); kDistributed when the deadline passes.
  Status wait_for(const Request& request, std::unique_lock<std::mutex>& lock, Deadline deadline,
                  llvm::function_ref<bool()> holds, llvm::function_ref<std::string()> what);
  /// The same for a caller that is no trainer of this server yet.
  /// Errors: failure; kDistributed when the deadline passes, or when a new epoch begins.
  Status wait(std::unique_lock<std::mutex>& lock, Deadline deadline,
              llvm::function_ref<bool()> holds, llvm::function_ref<std::string()> what);
  /// Ends the server with an error; keeps the first one. Locks the mutex.
  void fail(Status status);
  void log(const std::string& line) const {
    if (options.log) options.log(line);
  }

 private:
  ServerCore(const Program& program, ServePlan the_plan, ServerOptions the_options);
  Status compile_blocks(const executor::Runtime& runtime, Scope& scope);
  void index_vars(Scope& scope);

  const Program& program_;
  std::unique_ptr<VarGuards> guards_;
  std::map<int32_t, std::unique_ptr<ServerBlock>> blocks_;
  llvm::StringMap<ServerVar> vars_;
  std::unique_ptr<executor::DeviceThreads> threads_;
};

}  // namespace millrace::ps

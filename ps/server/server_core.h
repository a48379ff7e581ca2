#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <vector>

#include <llvm/ADT/StringMap.h>

#include "executor/parallel/device_threads.h"
#include "executor/runtime.h"
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

/// How a server behaves.
struct ServerOptions {
  std::string job;     ///< calls of other jobs are refused
  uint64_t epoch = 0;  ///< that the server begins with; 0: chosen at start
  int threads = 1;     ///< that update blocks may use, >= 1
  uint64_t seed = 0;
  /// How long all trainers may take to come; 0: for ever.
  std::chrono::milliseconds start_timeout{180'000};
  /// A trainer that is silent for so long is lost; 0: none ever is.
  std::chrono::milliseconds silence_timeout{0};
  /// Between two lines that say who waits for whom; 0: none.
  std::chrono::milliseconds report_interval{30'000};
  double dc_lambda = 1;        ///< strength of delay compensation (DC-ASGD)
  bool goes_on = false;        ///< parameters were loaded: schedules go on where their counters are
  bool elastic = false;        ///< the job goes on without a trainer that is lost
  std::string files_root;      ///< folder for the files of checkpoint requests; empty: refused
  std::string snapshot_root;   ///< folder for snapshots; empty: none are taken
  int64_t snapshot_every = 0;  ///< steps from one to the next (synchronous servers); 0: none
  std::chrono::milliseconds snapshot_interval{0};  ///< time from one to the next; 0: none
  /// No trainer goes on from a step before its snapshot is on the disk, so that a server that comes
  /// back has lost nothing.
  bool snapshot_durable = false;
  /// Answers pulls and pushes of typed tables, and table barriers with a phase (TableHandler);
  /// outlives the server. Null: it has no such tables.
  TableHandler* tables = nullptr;
  std::shared_ptr<KillPoint> kill_point;        ///< where the process ends itself; null: nowhere
  std::function<void(const std::string&)> log;  ///< lines for people; may be empty
};

/// A var that calls name.
struct ServerVar {
  const Var* var = nullptr;
  Value* value = nullptr;
  std::shared_mutex* mutex = nullptr;  ///< shared to read, exclusive to write the value
};

/// What the parts of one server share: its program, its vars with their locks, its compiled blocks,
/// and the state that waiting calls look at.
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
  /// Of this incarnation of the server's state; another one after going back to a snapshot. Calls
  /// for an older one are refused.
  std::atomic<uint64_t> epoch{0};
  /// Chooses another epoch and lets all that wait end with an error. The caller holds the mutex.
  void begin_epoch();

  [[nodiscard]] const Program& program() const { return program_; }
  [[nodiscard]] const llvm::StringMap<ServerVar>& vars() const { return vars_; }
  /// Errors: kNotFound naming the var.
  [[nodiscard]] StatusOr<const ServerVar*> find_var(llvm::StringRef name) const;
  /// Keeps all vars as they are as long as the result lives.
  [[nodiscard]] std::vector<std::unique_lock<std::shared_mutex>> freeze() const {
    return guards_->lock_all();
  }
  /// A compiled block of the plan. Never null for those.
  [[nodiscard]] ServerBlock* block(int32_t index) const;
  /// Runs blocks side by side; run() is called for each, by several threads at once.
  /// \returns the error of the first block in order that failed
  Status run_group(llvm::ArrayRef<int32_t> blocks,
                   llvm::function_ref<Status(ServerBlock&)> run) const;

  /// Copies a var into a reply. Errors: kNotFound; kExecution for a var without value.
  Status put_var(llvm::StringRef name, ReplySink& reply) const;
  /// The same for who holds the lock.
  static Status put(llvm::StringRef name, const ServerVar& var, ReplySink& reply);

  /// Compares a value with the declaration of a var. Errors: kInvalidArgument naming the var, with
  /// expected and found.
  static Status check(const RequestItem& item, const ServerVar& to);
  /// Takes the value of an item into a var, under its lock. Errors: those of check(); kResource.
  static Status store(const RequestItem& item, const ServerVar& to);
  /// The same without check and lock, for those who have both.
  static Status take(const RequestItem& item, Value& to);

  // ---- state of the run, guarded by mutex
  std::mutex mutex;
  std::condition_variable changed;  ///< of anything below
  Trainers trainers;
  Status failure;  ///< every call that waits or comes returns it

  /// Waits until a condition holds. what() says what is waited for, for the error.
  /// Errors: failure; kDistributed when the deadline passes, and when another epoch begins.
  Status wait(std::unique_lock<std::mutex>& lock, Deadline deadline,
              llvm::function_ref<bool()> holds, llvm::function_ref<std::string()> what);
  /// Ends the server with an error; the first one stays. Takes the mutex.
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

#pragma once

#include <map>
#include <memory>
#include <string>

#include <llvm/ADT/StringMap.h>

#include "ps/server/changed_rows.h"
#include "ps/server/server_core.h"

namespace millrace::ps {

/// Asynchronous training, half-asynchronous and geo included: what a trainer sends is applied at
/// once, in the thread of the call. Source: spec/ps_runtime.md section 3.
///
/// Thread-safety: any thread; what touches the same block waits.
class AsyncPushes {
 public:
  /// Runs the block of the learning rate once if no gradient does. Errors: those of that block;
  /// kInvalidProgram for tables whose height is not known.
  static StatusOr<std::unique_ptr<AsyncPushes>> create(ServerCore& core);

  /// Applies one gradient, delta or federated parameter. Errors: kNotFound for a name that starts
  /// no block; kInvalidArgument for a value that does not fit; those of the block.
  Status push(int trainer, const RequestItem& item);
  /// Sets a var of the server. Errors: kNotFound, kInvalidArgument.
  Status set(const RequestItem& item);
  /// Adds steps to the counter of a trainer and computes the learning rate.
  /// Errors: kInvalidArgument if the server has no such counter or no block for the rate.
  Status count(const std::string& counter, int64_t steps);
  /// Replies with a var; with delay compensation the caller's copy is kept.
  Status get(int trainer, const std::string& name, ReplySink& reply);
  /// Replies with the rows of a table that changed since the trainer last asked.
  /// Errors: kInvalidArgument for a var that is no sparse table.
  Status get_changed(int trainer, const std::string& name, bool repeat, ReplySink& reply);

 private:
  explicit AsyncPushes(ServerCore& core) : core_(core) {}
  Status add_tables();
  [[nodiscard]] Status reset_counters(const ServerBlock& block) const;
  Status run_compensated(ServerBlock& block, int trainer);
  Status replace_param(int trainer, const RequestItem& item);

  ServerCore& core_;
  std::map<std::string, std::unique_ptr<ChangedRows>> tables_;  // by parameter
  llvm::StringMap<ChangedRows*> tables_of_;                     // by what is pushed
};

}  // namespace millrace::ps

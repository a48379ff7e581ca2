#pragma once

#include <map>
#include <memory>
#include <string>

#include <llvm/ADT/StringMap.h>

#include "ps/server/changed_rows.h"
#include "ps/server/server_core.h"

namespace millrace::ps {

/// Asynchronous training, including half-asynchronous and geo: values that a trainer sends are
/// applied immediately, in the thread of the call. Source: spec/ps_runtime.md section 3.
///
/// Thread-safety: any thread; calls that use the same block wait for each other.
class AsyncPushes {
 public:
  /// Runs the learning rate block once at the start, unless a gradient triggers it. Errors: those
  /// of that block; kInvalidProgram for tables without a declared height.
  static StatusOr<std::unique_ptr<AsyncPushes>> create(ServerCore& core);

  /// Applies one gradient, delta or federated parameter. Errors: kNotFound for a name without a
  /// block; kInvalidArgument for a value of the wrong type or dims; those of the block.
  Status push(int trainer, const RequestItem& item);
  /// Sets a var of the server. Errors: kNotFound, kInvalidArgument.
  Status set(const RequestItem& item);
  /// Adds steps to a trainer's counter and computes the learning rate.
  /// Errors: kInvalidArgument if the server has no such counter or no block for the rate.
  Status count(const std::string& counter, int64_t steps);
  /// Replies with a var; with delay compensation, keeps a copy of what the trainer received.
  Status get(int trainer, const std::string& name, ReplySink& reply);
  /// Replies with the rows of a table that changed since the trainer's last request.
  /// Errors: kInvalidArgument for a var that is not a sparse table.
  Status get_changed(int trainer, const std::string& name, bool repeat, ReplySink& reply);

 private:
  explicit AsyncPushes(ServerCore& core) : core_(core) {}
  Status add_tables();
  [[nodiscard]] Status reset_counters(const ServerBlock& block) const;
  Status compute_rates(ServerBlock& block) const;
  Status run_compensated(ServerBlock& block, int trainer);
  Status replace_param(int trainer, const RequestItem& item);

  ServerCore& core_;
  std::map<std::string, std::unique_ptr<ChangedRows>> tables_;  // by parameter
  llvm::StringMap<ChangedRows*> tables_of_;                     // by name of the pushed var
};

}  // namespace millrace::ps

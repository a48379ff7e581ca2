#pragma once

#include <cstdint>
#include <string_view>

#include "framework/base/status.h"

/// The choices that calls between trainers and servers name. Thread-safety: all functions are pure.
namespace millrace::ps {

/// When a server applies gradients.
enum class ServerMode {
  kSync,   ///< when those of all trainers have arrived
  kAsync,  ///< each on arrival; half-async is the same for a server
  kGeo,    ///< as kAsync, but gets of sparse tables return only changed rows
};
/// "sync", "async" or "geo".
std::string_view server_mode_name(ServerMode mode);

/// Barriers at which all trainers wait for each other.
enum class CommBarrier {
  kSend,     ///< all trainers have sent the gradients of their step
  kReceive,  ///< all trainers have received the parameters of their step
  kInit,     ///< the initial values are on the servers
  kLoad,     ///< before and after a worker of a fleet job has servers load tables
  kShrink,   ///< before and after a worker ends a day of the tables
  kWorker,   ///< fleet.barrier_worker()
};
/// "send", "receive", "init", "load", "shrink" or "worker".
std::string_view barrier_name(CommBarrier kind);

/// What the values of a send are.
enum class SendKind {
  kGradients,  ///< the server applies them as its program says
  kValues,     ///< they replace the values of the server's vars
};

/// What a get returns.
enum class GetKind {
  kValues,       ///< the vars
  kChangedRows,  ///< of sparse tables, the rows that changed since the trainer's last such get
};

/// Rows that a checkpoint of a var has. The numbers are those of the attribute `mode` of
/// checkpoint_notify.
enum class RowsToSave : int64_t {
  kAll = 0,
  kChanged = 1,    ///< those that changed since the last request of kChanged or kAllAsBase
  kAllAsBase = 2,  ///< all; the next request of kChanged compares with them
};
/// The rows of an attribute `mode`. \param table  for the message
/// Errors: kInvalidArgument naming the table, with expected and found.
StatusOr<RowsToSave> rows_to_save(std::string_view table, int64_t mode);

/// What a pull from a typed table returns, and whether it counts accesses for the entry policy.
enum class PullKind {
  kPlain,        ///< rows or values, of a table whose policy does not count accesses
  kCounted,      ///< rows; accesses are counted, once however often the call is repeated
  kQuiet,        ///< rows; accesses are not counted
  kChangedRows,  ///< geo: rows that changed since the trainer's last such pull
};

/// What a push to a typed table does.
enum class PushKind {
  kUpdate,  ///< applies gradients or differences; adds steps; sets a rate: as the table's class
            ///< does
  kValues,  ///< replaces rows or values
  kEndDay,  ///< ends a day of a sparse table, which may drop rows; has no values
};

}  // namespace millrace::ps

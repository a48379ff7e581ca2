#include "ps/protocol/kinds.h"

#include "framework/base/errors.h"

namespace millrace::ps {

std::string_view server_mode_name(ServerMode mode) {
  switch (mode) {
    case ServerMode::kSync:
      return "sync";
    case ServerMode::kAsync:
      return "async";
    case ServerMode::kGeo:
      return "geo";
  }
  return "";
}

std::string_view barrier_name(CommBarrier kind) {
  switch (kind) {
    case CommBarrier::kSend:
      return "send";
    case CommBarrier::kReceive:
      return "receive";
    case CommBarrier::kInit:
      return "init";
    case CommBarrier::kLoad:
      return "load";
    case CommBarrier::kShrink:
      return "shrink";
    case CommBarrier::kWorker:
      return "worker";
  }
  return "";
}

StatusOr<RowsToSave> rows_to_save(std::string_view table, int64_t mode) {
  for (const RowsToSave rows : {RowsToSave::kAll, RowsToSave::kChanged, RowsToSave::kAllAsBase}) {
    if (static_cast<int64_t>(rows) == mode) return rows;
  }
  return InvalidArgument("'{}': checkpoint mode is {}, expected 0, 1 or 2", table, mode);
}

}  // namespace millrace::ps

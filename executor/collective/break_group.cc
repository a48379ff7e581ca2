#include "executor/collective/break_group.h"

#include <fmt/format.h>

namespace millrace::executor {

Status break_group(CollectiveGroup* group, std::string_view member, Status status) {
  if (group != nullptr && !status.ok())
    group->abort(Status(StatusCode::kDistributed,
                        fmt::format("{} {}: {}", member, group->rank(), status.message())));
  return status;
}

}  // namespace millrace::executor

#include "framework/persistable.h"

namespace millrace {

bool is_persistable(const Var& var) {
  switch (var.kind()) {
    case VarKind::kFeedMinibatch:
    case VarKind::kFetchList:
    case VarKind::kReader:
      return false;
    default:
      return var.persistable();
  }
}

}  // namespace millrace

#include "executor/collective/engines.h"
#include "framework/base/errors.h"

namespace millrace::executor {

bool has_gloo() {
  return false;
}

StatusOr<std::unique_ptr<CollectiveGroup>> open_gloo_group(const GroupSettings& /*settings*/,
                                                           const GlooPlace& /*place*/) {
  return Unimplemented("this build has no Gloo, which connects ranks on several machines");
}

}  // namespace millrace::executor

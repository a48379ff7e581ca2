#include "executor/collective/engines.h"
#include "framework/base/module.h"

namespace millrace::executor {

bool has_mpi() {
  return true;
}

StatusOr<std::unique_ptr<CollectiveGroup>> open_mpi_group(const GroupSettings& settings) {
  MILLRACE_ASSIGN_OR_RETURN(const MpiEngine* const engine, load_functions<MpiEngine>("mpi"));
  return engine->open(settings);
}

}  // namespace millrace::executor

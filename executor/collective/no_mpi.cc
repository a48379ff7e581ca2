#include "executor/collective/engines.h"
#include "framework/base/errors.h"

namespace millrace::executor {

bool has_mpi() {
  return false;
}

StatusOr<std::unique_ptr<CollectiveGroup>> open_mpi_group(const GroupSettings& /*settings*/) {
  return Unimplemented("this build has no MPI, which connects the processes that mpirun starts");
}

}  // namespace millrace::executor

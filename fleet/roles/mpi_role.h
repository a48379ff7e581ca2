#pragma once

#include <string>

#include "fleet/launch/job_environment.h"
#include "fleet/roles/role_maker.h"
#include "framework/base/status.h"

namespace millrace::fleet {

/// The role of a process that mpirun has started: even ranks are servers, odd ranks are workers
/// (symmetric_role()). All ranks call it; MPI is initialized and finalized by the call, which
/// therefore can be made once in a process.
/// \param host  at which this rank's server listens, without a port; empty: 127.0.0.1 if all ranks
///              are on one machine, else the name of this machine. Servers choose free ports
/// Errors: kInvalidArgument for a process without mpirun; kUnimplemented for a build without MPI;
/// those of gather_symmetric_role().
StatusOr<RoleMaker> mpi_symmetric_role(const EnvironmentReader& read, const std::string& host = {});

}  // namespace millrace::fleet

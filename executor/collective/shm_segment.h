#pragma once

#include <memory>
#include <string>

#include "executor/collective/shared_group.h"

namespace millrace::executor {

/// Shared memory of processes on one machine: a file in memory that all of them map. It is unlinked
/// as soon as all have joined, so that nothing is left behind. Each process locks a byte of the
/// file, which shows the others whether it is alive.

/// Creates the memory; called by rank 0. \param key  receives the name for attach_shm().
/// Errors: kResource if the machine does not have enough shared memory.
StatusOr<std::shared_ptr<SharedSegment>> create_shm(int ranks, std::string& key);
/// Attaches to it. Errors: kDistributed if there is no such memory of the expected size.
StatusOr<std::shared_ptr<SharedSegment>> attach_shm(int ranks, int rank, const std::string& key);

}  // namespace millrace::executor

#pragma once

#include <memory>
#include <string>

#include "executor/collective/shared_group.h"

namespace millrace::executor {

/// Shared memory of processes on one machine: a file in memory that all of them map. It loses its
/// name as soon as all have come, so that nothing stays behind. Each process locks a byte of the
/// file, by which the others see whether it lives.

/// Makes the memory; rank 0 does. \param key  receives the name for attach_shm().
/// Errors: kResource where the machine has not enough of such memory.
StatusOr<std::shared_ptr<SharedSegment>> create_shm(int ranks, std::string& key);
/// Errors: kDistributed where there is no such memory of the expected size.
StatusOr<std::shared_ptr<SharedSegment>> attach_shm(int ranks, int rank, const std::string& key);

}  // namespace millrace::executor

#pragma once

#include "framework/program.h"

namespace millrace::jobs {

/// True if ops of the program exchange values with other ranks.
bool has_collective_ops(const Program& program);
/// The op of a startup program of mode nccl2 that generates group ids: the main program is then run
/// data-parallel over all ranks. Null if there is none.
const Op* find_group_ids(const Program& startup);

}  // namespace millrace::jobs

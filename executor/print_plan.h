#pragma once

#include <string>

#include "executor/block_runner.h"

namespace millrace::executor {

/// The ops of a block in order, one line each: index, op type, outputs with dtype, dims and
/// offset in the shared memory, and which neighbours run in parallel; then the memory. Dims,
/// offsets and neighbours are known after a run; before it they are left out.
std::string print_plan(const BlockRunner& runner);

}  // namespace millrace::executor

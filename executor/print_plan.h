#pragma once

#include <string>

#include "executor/block_runner.h"

namespace millrace::executor {

/// The steps of a block in order, a line each: index, op type, outputs with dtype, dims and place
/// in the shared memory, and which neighbours run side by side; then the memory. Dims, places and
/// neighbours are known after a run; before it they are left out.
std::string print_plan(const BlockRunner& runner);

}  // namespace millrace::executor

#pragma once

#include <vector>

#include "framework/program.h"

namespace millrace::executor {

/// The ops of block 0 in an order that reduces memory traffic: each update of a parameter is placed
/// directly after the last op that it depends on, together with the optimizer ops (decay, clipping
/// of one gradient) that only it needs. Its gradient is then still in the cache, and its memory is
/// freed before the next gradient is computed. All other ops keep their relative order, and no op
/// moves past one that reads or writes what it writes, or writes what it reads, so results are
/// bit-identical. A failed run keeps the updates made before the failure.
///
/// Updates that draw random numbers are not moved, nor are updates of vars that other blocks or
/// attributes mention. Cost: O(uses of the vars of the updates).
std::vector<const Op*> order_with_early_updates(const Program& program);

}  // namespace millrace::executor

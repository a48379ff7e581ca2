#pragma once

#include <vector>

#include "framework/program.h"

namespace millrace::executor {

/// The ops of block 0 in an order that is easy on memory: each update of a parameter stands right
/// behind the last op that it has to wait for, together with those ops of the optimizer (decay,
/// clipping of one gradient) that work for it alone. Its gradient is then still in the cache and
/// gives up its memory before the next one is made. All other ops keep their places among each
/// other, and no op moves past one that reads or writes what it writes, or writes what it reads;
/// so results are the same bits. A run that fails leaves the updates made before the failure.
///
/// Updates that draw random numbers stay, as do those of vars that other blocks or attributes
/// mention. Cost: O(uses of the vars of the updates).
std::vector<const Op*> order_with_early_updates(const Program& program);

}  // namespace millrace::executor

#pragma once

#include "ops/op_def.h"
#include "ops/registry.h"

namespace millrace::ops {

/// Op families of this folder, one per file.
void add_collective_ops(OpRegistry& registry);
void add_communicator_ops(OpRegistry& registry);
void add_exchange_ops(OpRegistry& registry);

}  // namespace millrace::ops

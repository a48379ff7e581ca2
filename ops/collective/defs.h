#pragma once

#include "ops/op_def.h"
#include "ops/registry.h"

namespace millrace::ops {

/// Families of this folder, one a file.
void add_collective_ops(OpRegistry& registry);
void add_communicator_ops(OpRegistry& registry);
void add_exchange_ops(OpRegistry& registry);

}  // namespace millrace::ops

#pragma once

#include "ops/op_def.h"
#include "ops/registry.h"

namespace millrace::ops {

/// Op families of this folder, one per file.
void add_foreign_ops(OpRegistry& registry);

}  // namespace millrace::ops

#pragma once

#include "ops/op_def.h"
#include "ops/registry.h"

namespace millrace::ops {

/// Op families of this folder, one per file.
void add_fake_quant_ops(OpRegistry& registry);
void add_linear_quant_ops(OpRegistry& registry);
void add_dictionary_ops(OpRegistry& registry);

}  // namespace millrace::ops
